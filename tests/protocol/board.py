"""A gateway's delivery as it is in the product (ingest, flows, pool, checkpoints, database, uplink), without sockets,
threads or waits: whoever drives it says what happens next, and a crash is to drop it."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

from edgert.core.clock import VirtualClock
from edgert.core.errors import EdgertError, StoreError
from edgert.core.settings.gateway import Sensors
from edgert.core.settings.gateway import Uplink as UplinkSettings
from edgert.flow.document import from_plain
from edgert.flow.options.full_outbox import WhenFull
from edgert.flow.physical import Fusion
from edgert.operators.registry import REGISTRY
from edgert.runtime import flow_run
from edgert.runtime.instance.instance import Instance
from edgert.runtime.instance.turn import Turn
from edgert.runtime.pool.pool import Pool
from edgert.scheduling.consumption import at_most
from edgert.store.database import Database
from gateway.checkpoint.checkpointer import Checkpointer
from gateway.checkpoint.early_results import EarlyResults
from gateway.flows.flows import Flows
from gateway.flows.retire import LastTurns
from gateway.hosts import host
from gateway.hosts.host import Entries
from gateway.hosts.in_process import InProcess, kept
from gateway.ingest.inbox import Inbox, Route
from gateway.ingest.ingest import Ingest
from gateway.registry.registry import FlowRegistry
from gateway.uplink.uplink import Uplink
from tests.protocol.ledger import Copy, Ledger
from tests.protocol.sensors_broker import SensorsBroker
from tests.protocol.shedding import watch
from tests.protocol.wire import Packet, Wire

FLEET, GATEWAY = "fleet", "g1"


def drive(coroutine: Coroutine[Any, Any, Any] | Awaitable[Any]) -> Any:
    """Runs to its end what never has to wait here."""
    assert isinstance(coroutine, Coroutine)
    try:
        coroutine.send(None)
    except StopIteration as stop:
        return stop.value
    coroutine.close()
    raise AssertionError("it waits for something that will not come")


@contextmanager
def at_once() -> Iterator[None]:
    """What the product gives to other threads is done at once, and nobody waits for a turn that is under way. A few
    batches are a backlog, to which new results do not queue up."""

    async def inline(call: Callable[..., Any], *given: Any) -> Any:
        return call(*given)

    async def ends(turns: LastTurns, name: str, still_s: float) -> None:
        turns.run()

    async def to_its_end(work: Awaitable[Any]) -> Any:
        return await work

    with (
        mock.patch.object(asyncio, "to_thread", inline),
        mock.patch("gateway.flows.retire.on_a_thread", ends),
        mock.patch("gateway.checkpoint.checkpointer.to_its_end", to_its_end),
        mock.patch("gateway.registry.registry.to_its_end", to_its_end),
        mock.patch("gateway.flows.retire.to_its_end", to_its_end),
        mock.patch.object(flow_run, "HOLD_S", 0.0),
        mock.patch("gateway.uplink.uplink.BACKLOG", 1),
    ):
        yield


def document(name: str, topic: str, qos: int, delivery: str, full: WhenFull, description: str = "") -> Any:
    """Counts messages by their field `u`, in windows that end soon; late ones are one more contribution."""
    operators = {
        "in": {"type": "mqtt_source", "topic": topic, "qos": qos},
        "by": {"type": "key_by", "input": "in", "keys": ["u"]},
        "each": {
            "type": "tumbling_window", "input": "by", "size_s": 3, "late": "ship", "aggregates": {"n": "count()"},
        },
        "out": {"type": "ship", "input": "each"},
    }  # fmt: skip
    top = {"name": name, "description": description, "delivery": delivery, "outbox": {"full": full}}
    return from_plain({**top, "operators": operators}, REGISTRY)


class Host(InProcess):
    """Who has turns, and when, is not up to the ingest."""

    def put(self, entries: Entries) -> None:
        self.pool.put(kept(entries))

    def lend(self) -> None:
        """Nobody works here by himself."""


class WatchedInbox(Inbox):
    """Says what it takes for a redelivery."""

    def __init__(self, dropped: Callable[[int, list[Any], bool], None]) -> None:
        super().__init__()
        self._dropped = dropped

    def _redelivered(self, packet_id: int, index: int, route: Route, qos: int) -> Route:
        before = self.counters.ambiguous
        left = super()._redelivered(packet_id, index, route, qos)
        gone = [flow for flow in route.flows if flow not in left.flows]
        self._dropped(packet_id, gone, self.counters.ambiguous > before)
        return left


class Board:
    """Starts from what the database holds. `publish` takes what leaves for the central side; false: no connection."""

    FUSION: Fusion = "full"

    def __init__(
        self,
        path: Path,
        broker: SensorsBroker,
        ledger: Ledger,
        clock: VirtualClock,
        publish: Callable[[str, bytes], bool],
        quota_bytes: float = math.inf,
    ) -> None:
        self.clock, self.broker, self.ledger = clock, broker, ledger
        self._arriving: dict[int, Copy] = {}
        """By packet id: the messages of a read."""
        self._dropped: set[tuple[str, int]] = set()
        """Those of them that were taken for redeliveries, by flow."""
        self._committed: set[str] = set()
        """Flows, by a commit."""
        self.database = Database(path, GATEWAY, quota_bytes)
        self.database.db.execute("PRAGMA synchronous = OFF")  # the machine does not die here, only the gateway
        watch(self.database, ledger)
        self.full = False
        """Whether nothing can be written."""
        self.meanwhile: Callable[[], None] = lambda: None
        """Called between a capture and its commit, and between what is taken to leave ahead of one and its writing."""
        self.flow_registry = FlowRegistry(self.database, self.store, clock)
        self.host = self._make_host()
        self.ingest = Ingest(
            Sensors(), "id", self.host, clock, forget_session=self._forget_session, wants_checkpoint=lambda: None,
            save_subscriptions=lambda text: self.store(lambda: self.database.set_meta("subscriptions", text)),
            lock=self.flow_registry.feeding, inbox=WatchedInbox(self._taken_for_redelivery),
        )  # fmt: skip
        self.wire = Wire(self.ingest.client, broker.qos, broker.hear)
        self.ingest.tasks.begin = self._begin  # type: ignore[method-assign, assignment]
        self.ingest.read_limits.look_later = lambda: None  # type: ignore[method-assign]  # when checkpoints come is up to the walk
        self.uplink = Uplink(
            FLEET, GATEWAY, self.database, clock, self.store, publish, UplinkSettings(outage_s=5.0),
            on_epoch=lambda flow, epoch: self.flows.epoch_renamed(flow, epoch),  # noqa: PLW0108 - which is made later
        )  # fmt: skip
        self.checkpointer = Checkpointer(self.flow_registry, self.host, self.ingest, self.uplink.committed)
        self.early_results = EarlyResults(self.flow_registry, self.host, self.checkpointer, self.uplink.may_leave)
        self.flows = Flows(
            REGISTRY, self.flow_registry, self.host, self.ingest, self.checkpointer, self.FUSION
        )  # fmt: skip
        self.flows.retirement.hold_s = self.flows.retirement.hold_turn_s = 0.0
        self.turns: list[tuple[Instance, Turn[Instance]]] = []
        """Under way: an operator that blocks."""
        self._write = self.database.commit
        self.database.commit = self._commit  # type: ignore[method-assign, assignment]
        self._write_ahead = self.database.put_early
        self.database.put_early = self._put_early  # type: ignore[method-assign, assignment]
        self._start()

    def _begin(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        """A task that would wait for room on the disk is not there: it is begun again with the next connection."""
        if self.full:
            coroutine.close()
        else:
            drive(coroutine)

    def _make_host(self) -> host.Host:
        self.pool = Pool(self.clock, consumption=at_most(50))  # by which the seeds of mutants were chosen
        return Host(self.pool, self.clock)

    def _start(self) -> None:
        inbox = self.ingest.inbox
        inbox.table.load(self.database.pages())
        inbox.next_index = int(self.database.meta("next_index", 1))
        self.ingest.load(self.database.meta("subscriptions", ""), older=bool(self.database.lost))
        try:
            self.flows.load()
        except EdgertError:
            self.database.close()  # as its process does
            raise

    async def store(self, call: Callable[[], Any]) -> Any:
        if self.full:
            raise StoreError("disk full")
        return call()

    async def _forget_session(self) -> None:
        def write() -> None:
            with self.checkpointer.id_table() as table:
                self._write([], *table)

        await self.store(write)

    def _commit(self, *given: Any) -> Any:
        self.meanwhile()
        if self.full:
            raise StoreError("disk full")
        refused = self._write(*given)
        self._committed |= {commit.flow for commit in given[0]} - refused
        self._committed |= {spill.flow for spill in given[3]} if len(given) > 3 else set()
        return refused

    def _put_early(self, *given: Any) -> Any:
        self.meanwhile()
        if self.full:
            raise StoreError("disk full")
        return self._write_ahead(*given)

    def left_ahead(self) -> dict[str, int]:
        """By flow: rows that left ahead of the checkpoint that is to cover them."""
        return dict(self.database._rows("SELECT flow, rows FROM ahead WHERE rows > 0"))

    def shed(self) -> dict[str, int]:
        """By flow: rows that made way in the outbox."""
        return {flow: rows for (flow, _), rows in self.database.shed.items()}

    def crash(self) -> None:
        """Nothing of it is left but the file."""
        self.database.close()

    # -- the sensors' broker

    def connect(self) -> None:
        if not self.wire.connected and not self.full:
            self.wire.connect(self.broker.connect())

    def cut(self) -> None:
        if self.wire.connected:
            self._take(self.broker.cut())
            self.wire.lose()

    def receive(self, most: int) -> bool:
        """Takes so many packets of what has come, in one read."""
        down = self.broker.down
        taken = [down.popleft() for _ in range(min(most, len(down)))]
        self._take(taken)
        return bool(taken)

    def _take(self, packets: list[Packet]) -> None:
        self._arriving = {what[1]: what[0] for kind, what in packets if kind == "publish"}
        self._dropped = set()
        copies = self._arriving.values()
        unknown = [copy for copy in copies if copy.ids and not self.ingest.subscriptions.known(copy.ids)]
        self.wire.bring(packets)
        self.ledger.arrived(copies, self._dropped, unknown)

    def _taken_for_redelivery(self, packet_id: int, flows: list[Any], ambiguous: bool) -> None:
        """`flows` have it already, it is said."""
        copy = self._arriving[packet_id]
        runs = [*self.flows.runs.values(), *self.flows.entering]
        for name in {run.flow.name for run in runs if run.progress in flows}:
            self._dropped.add((name, copy.uid))
            if ambiguous and not self.ledger.has(name, copy.uid):
                self.ledger.doubted[name].add(copy.uid)

    # -- operators

    def begin_turn(self) -> bool:
        """A worker takes rows, and is not done with them yet."""
        pool = self.pool
        with pool.lock:
            number = pool.backpressure.choose(self.clock.monotonic())
            if number is None:
                return False
            instance, entries = pool.take(number)
        self.turns.append((instance, pool.run_turn(instance, entries)))
        return True

    def end_turns(self) -> None:
        """Those under way."""
        turns, self.turns = self.turns, []
        for instance, turn in turns:
            with self.pool.lock:
                self.pool.settle_turn(instance, turn)

    def work(self) -> None:
        """Until nothing waits."""
        self.end_turns()
        while self.begin_turn():
            self.end_turns()

    # -- flows

    def checkpoint(self, flows: Sequence[str] = ()) -> bool:
        """Of these flows, or of all."""
        runs = [run for name, run in self.flows.runs.items() if name in flows or not flows]
        covered = {run.flow.name: {*self.ledger.in_hand[run.flow.name]} for run in runs if not run.pending}
        self._committed.clear()
        made = bool(drive(self.checkpointer.checkpoint(runs)))
        for name in self._committed & covered.keys():
            self.ledger.kept[name] |= covered[name]
        return made

    def send_ahead(self) -> bool:
        """Of at-least-once flows."""
        return bool(drive(self.early_results.send()))

    def deploy(self, made: Any) -> None:
        """A flow, or a new version of one. `EdgertError` where that cannot be done now; a stuck one is not left to
        itself here."""
        if self.is_stuck(made.name):
            raise EdgertError(f"flow {made.name} is stuck")
        had = {*self.ledger.in_hand[made.name]}
        drive(self.flows._deploy(made, "mqtt", {}, 0))
        self.ledger.kept[made.name] |= had
        self.ledger.absent.discard(made.name)

    def is_stuck(self, name: str) -> bool:
        run = self.flows.runs.get(name)
        return run is not None and self.checkpointer.input_spill.is_stuck(run)

    def remove(self, name: str) -> None:
        drive(self.flows.remove(name))
