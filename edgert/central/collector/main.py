"""`edgert-collector`: results from the broker to the landing tables, acknowledgements back.

It may be killed at any point: the tables' own transaction identifiers say what landed, and what was not acknowledged
is sent again. On SIGTERM it ends the commit under way, says what it landed, and goes.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import secrets
import signal
import sys
import threading
import time
from collections.abc import Collection
from pathlib import Path
from typing import Any, Final

from edgert.central.collector.collector import Collector
from edgert.central.collector.inbox import ResultInbox, ResultMessage
from edgert.central.collector.macs import ResultMacs
from edgert.central.collector.messages import ResultTopics, partition_of_topic
from edgert.central.collector.partition_leases import PartitionLeases
from edgert.central.collector.waiting_acknowledgements import WaitingAcknowledgements
from edgert.central.landing.landing import Landing
from edgert.central.tables import fleet_claim, object_store
from edgert.central.tables.lease import LeaseLost, own_name
from edgert.central.tables.table import CommitConflict, TableError
from edgert.central.upkeep.upkeep import UpkeepSchedule
from edgert.core import log as logs
from edgert.core.config import left_behind, load
from edgert.core.errors import EdgertError
from edgert.core.packing import MAX_BYTES
from edgert.core.results.macs import OVERHEAD
from edgert.core.results.results import acks_topic, results_filter
from edgert.core.settings.cautions import cautions
from edgert.core.settings.central import CollectorSettings
from edgert.core.settings.folders import data_folder
from edgert.core.system_clock import SystemClock
from edgert.mqtt.address import split_broker
from edgert.mqtt.clients.control_plane import ControlConnection
from edgert.mqtt.clients.credentials import others_may_read, read_mac_keys

log = logging.getLogger("edgert.collector")
INBOX_BYTES: Final = 64 * 1024 * 1024
HOLD_BYTES: Final = 32 * 1024 * 1024
GATHER_BYTES: Final = 2 * 1024 * 1024
"""Some 20,000 rows, half a second's work: who catches up must not make others wait."""
STATUS_S: Final = 5.0
_UNTOLD: Final = ("last_error", "newest_not_authentic", "newest_unsaid")
"""Texts, which the log has elsewhere."""
TELL_S: Final = 60.0
RETRY_S: Final = 15.0
"""Longest wait between two tries to write a table that cannot be written."""


class Program:
    """One collector: the broker's thread fills the inbox, `run` empties it."""

    def __init__(self, settings: CollectorSettings, root: str) -> None:
        self.settings, self.retry_s = settings, RETRY_S
        own = settings.collector
        self._root = root
        self._fleet = own.fleet
        self._gather_s = own.gather_s
        self._inbox = ResultInbox(INBOX_BYTES)
        holder = f"{own.id}:{own_name()}"
        self._lease_s = own.lease_s
        self._leases = PartitionLeases(root, holder, own.lease_s) if own.lease_s else None
        self._taken: frozenset[int] = frozenset()
        """Partitions that are subscribed to, where there are leases."""
        guard = self._leases.hold if self._leases else lambda: None
        self._landing = Landing(root, guard=guard, most_tables=own.tables_per_flow)
        self._collector = Collector(own.id, self._landing, SystemClock(), own.hold_s, HOLD_BYTES)
        self._topics = ResultTopics(own.fleet, self._collector.counters)
        self._macs = ResultMacs(
            own.fleet, read_mac_keys(own.mac_key_file, "collector"), own.accept_unsigned, self._collector.counters,
            SystemClock(),
        )  # fmt: skip
        self._status_topic = f"edgert/v1/{own.fleet}/@collector/{own.id}/status"
        self._broker = ControlConnection(
            settings.central,
            f"edgert-{own.id}-{secrets.token_hex(4)}",
            subscriptions=[] if self._leases else [(results_filter(own.fleet), 1)],
            will=(self._status_topic, json.dumps({"online": False, "collector": own.id}).encode()),
            on_message=lambda topic, payload, request: self._received_untrusted(topic, payload),
            max_message_bytes=MAX_BYTES + OVERHEAD,
            on_retained=lambda topic, payload, request: None,  # results are never retained: a stranger's
        )
        self._upkeep = UpkeepSchedule(root, settings.upkeep)
        self._stopping = threading.Event()
        self._acknowledgements = WaitingAcknowledgements(
            self._room, self._publish, self._collector.counters, SystemClock()
        )
        self._due = {"status": 0.0, "share": 0.0, "tell": time.monotonic() + TELL_S}
        self._told: dict[str, Any] = {}

    def _received_untrusted(self, topic: str, payload: bytes) -> None:
        """On the broker's thread."""
        content = self._macs.payload_untrusted(payload, topic) if self._topics.has_untrusted(topic) else None
        if content is not None:
            self._inbox.put(ResultMessage(topic, content))

    def stop(self) -> None:
        """End after the commit under way. May be called from a signal handler's thread."""
        self._stopping.set()
        self._inbox.close()

    def run(self) -> None:
        """Runs until `stop`. Raises `EdgertError` only for settings that cannot be used."""
        log.info("tables in %s, fleet %s", self._root, self._fleet)
        self._claim_root()
        self._broker.start()
        self._upkeep.start()
        wait_s = 0.0
        while not self._stopping.is_set():
            if self._collector.late:
                wait_s, messages = 0.0, self._inbox.take(0, 0, 0)
            elif self._collector.waits:
                wait_s = min(self.retry_s, self._lease_s / 5 or self.retry_s, max(0.5, wait_s * 2))
                self._stopping.wait(wait_s)
                messages = []
            else:
                wait_s = 0.0
                messages = self._inbox.take(self._gather_s, GATHER_BYTES, patience_s=1.0)
            self._handle(messages)
            if self._leases and self._is_due("share", self._lease_s / 5):
                self._share(self._leases)
            self._housekeeping()
        self._handle(self._inbox.take(0, 0, 0))
        if self._leases:
            self._leave(self._leases)
        self._upkeep.stop()
        self._broker.stop(farewell=(self._status_topic, self._status(online=False)))
        self._tell()

    def _claim_root(self) -> None:
        said = ""
        while not self._stopping.is_set():
            try:
                fleet_claim.claim(self._root, self._fleet)
                break
            except (TableError, CommitConflict) as error:
                if str(error) != said:
                    log.warning("%s; trying again", error)
                said = str(error)
                self._stopping.wait(self.retry_s)

    def _handle(self, messages: list[ResultMessage]) -> None:
        """Land and acknowledge what is ours, and stop taking what is ours no more."""
        if self._leases is None:
            self._acknowledgements.keep(self._collector.handle(messages))
            self._say()
            return
        names = set(map(str, self._taken))
        self._acknowledgements.keep(
            self._collector.handle([m for m in messages if partition_of_topic(m.topic) in names])
        )
        try:
            if self._acknowledgements:  # an acknowledgement is retained: an old one must not replace a new holder's
                self._leases.hold()
        except LeaseLost:
            pass  # it says so itself
        except (TableError, CommitConflict) as error:
            log.warning("leases: %s; trying again", error)
            return
        self._follow(self._leases.held)
        self._say()

    def _share(self, leases: PartitionLeases) -> None:
        """See what our share of the partitions is: take what is free of it, give back what is beyond it."""
        try:
            surplus = leases.turn()
            self._follow(leases.held)
            if surplus:
                self._subscribe(self._taken - surplus)
                self._handle(self._inbox.take(0, 0, 0))  # what had come by then is landed first
                leases.give_back(surplus)
                self._follow(leases.held)
        except (TableError, CommitConflict) as error:
            log.warning("leases: %s; trying again", error)
            self._subscribe(self._taken)  # what was not given back is heard

    def _follow(self, held: frozenset[int]) -> None:
        """Take the results of these partitions from now on, and of no others."""
        changed = held ^ self._taken
        if not changed:
            return
        self._taken = held
        self._acknowledgements.forget(self._collector.forget({str(partition) for partition in changed}))
        self._subscribe(held)
        log.info("takes partitions %s", ", ".join(map(str, sorted(held))) or "none")

    def _subscribe(self, partitions: Collection[int]) -> None:
        self._broker.subscribe([(results_filter(self._fleet, p), 1) for p in sorted(partitions)])

    def _leave(self, leases: PartitionLeases) -> None:
        try:
            leases.leave()
        except (TableError, CommitConflict) as error:
            log.warning("leases could not be given back, they run out: %s", error)

    def _say(self) -> None:
        """Publishes acknowledgements; what finds no connection is said when there is one."""
        if self._broker.connected:
            self._acknowledgements.say()
        self._collector.counters.unsaid_gateways = len(self._acknowledgements)

    def _room(self, gateway: str) -> int | None:
        room = self._broker.limits.room(acks_topic(self._fleet, gateway))
        return None if room is None else room - self._macs.overhead

    def _publish(self, gateway: str, payload: bytes) -> bool:
        topic = acks_topic(self._fleet, gateway)
        return self._broker.publish(topic, self._macs.signed(payload, gateway), retain=True)

    def _housekeeping(self) -> None:
        if self._is_due("status", STATUS_S):
            self._broker.publish(self._status_topic, self._status(online=True), retain=True)
        if self._is_due("tell", TELL_S):
            self._tell()

    def _is_due(self, what: str, every_s: float) -> bool:
        now = time.monotonic()
        if now < self._due[what]:
            return False
        self._due[what] = now + every_s
        return True

    def _status(self, online: bool) -> bytes:
        counters = self._collector.counters.plain()
        dropped = self._inbox.dropped + self._broker.oversized
        upkeep = self._upkeep.totals
        who: dict[str, Any] = {"online": online, "collector": self.settings.collector.id}
        if self._leases:
            who |= {"partitions": sorted(self._taken), "lost_leases": self._leases.lost}
        return json.dumps({**who, **counters, "dropped": dropped, "upkeep": upkeep}).encode()

    def _tell(self) -> None:
        now = self._collector.counters.plain()
        if now == self._told:
            return
        said = {k: v for k, v in now.items() if v and k not in _UNTOLD}
        log.info("so far: %s", ", ".join(f"{k} {v}" for k, v in said.items()) or "nothing")
        self._told = now


def table_root(settings: CollectorSettings) -> str:
    """Where the tables lie: what is set, else `tables` in the service's folder."""
    return settings.collector.table_root or f"{data_folder(os.environ, os.geteuid() == 0)}/tables"


def settings_of(options: argparse.Namespace) -> CollectorSettings:
    """File, then environment, then command line. Raises `DocumentError`, `EdgertError`."""
    env = dict(os.environ)
    if options.root == "":
        raise EdgertError("--root: expected a folder or URI, got an empty text")
    if options.root is not None:
        env["EDGERT_COLLECTOR_TABLE_ROOT"] = options.root
    if (fleet := getattr(options, "fleet", None)) is not None:
        env["EDGERT_COLLECTOR_FLEET"] = fleet
    if (broker := getattr(options, "broker", None)) is not None:
        host, port = split_broker(broker)
        env["EDGERT_CENTRAL_HOST"], env["EDGERT_CENTRAL_PORT"] = host, str(port)
    # The gateway's settings have a section of the same name: what only it knows is not ours to refuse.
    env.pop("EDGERT_CENTRAL_ENABLED", None)
    return load(CollectorSettings, options.config, env)


def make_root(root: str) -> None:
    """Makes a folder of tables that is not there yet. Raises `EdgertError` if it cannot be: better at the start."""
    if "://" in root:
        return
    try:
        Path(root).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise EdgertError(f"tables in {root}: expected a folder that can be made, got: {error.strerror}") from error


def collect(options: argparse.Namespace) -> int:
    """Run a collector until SIGTERM or SIGINT; returns the exit status."""
    try:
        settings = settings_of(options)
        logs.set_up(settings.log.level, env=os.environ)
        for caution in cautions(settings, others_may_read):
            log.warning("%s", caution)
        root = table_root(settings)
        if why := left_behind(options.config, "collector.table_root", root, "landing"):
            raise EdgertError(why)
        object_store.prepare(root, settings.object_store, os.environ)
        make_root(root)
        program = Program(settings, root)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: threading.Thread(target=program.stop).start())
        program.run()
    except EdgertError as error:
        print(f"edgert-collector: {error}", file=sys.stderr)
        return 2
    return 0
