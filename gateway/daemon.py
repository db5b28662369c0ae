"""The gateway daemon: puts the parts together and takes them apart again."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from edgert.core.clock import Clock
from edgert.core.errors import EdgertError, StoreError
from edgert.core.settings.folders import data_folder
from edgert.core.settings.gateway import GatewaySettings, revoked_request, update_request
from edgert.core.system_clock import SystemClock
from edgert.flow.physical import Fusion
from edgert.limits import service_memory
from edgert.machine import notify, own_gateway_id
from edgert.mqtt.clients.credentials import read_mac_key
from edgert.operators.base.logic import PlainMessage
from edgert.operators.base.memory import state_bytes
from edgert.operators.registry import with_installed
from edgert.runtime.flow_run import FlowRun
from edgert.runtime.instance.instance import Instance
from edgert.runtime.interpreter import Garbage
from edgert.runtime.pool.from_settings import make_pool
from edgert.runtime.ticks import IDLE_TICK_S, TICK_S
from edgert.store.database import Database
from edgert.store.outbox.outbox import BatchLimits
from gateway.base.tasks import to_its_end
from gateway.checkpoint.checkpointer import Checkpointer
from gateway.checkpoint.early_results import EarlyResults
from gateway.control.broker_saves import saving
from gateway.control.central import CentralConnection
from gateway.control.commands import Commands
from gateway.control.control_socket import ControlSocket
from gateway.control.live_settings import apply_settings
from gateway.control.mqtt_api import MqttApi
from gateway.control.revoked import RevokedList
from gateway.control.updates import BoardUpdates
from gateway.flows.files import deploy_files
from gateway.flows.flows import Flows
from gateway.flows.guests import Guests
from gateway.flows.parts import Parts
from gateway.hosts.host import Host
from gateway.hosts.in_process import InProcess
from gateway.ingest.ingest import Ingest
from gateway.registry.registry import FlowRegistry
from gateway.status.sections import LOST_IDS, not_connected, status_of
from gateway.uplink.macs import Macs
from gateway.uplink.uplink import Uplink

if TYPE_CHECKING:
    from gateway.links.flow_links import FlowLinks

log = logging.getLogger(__name__)

FILES_S = 60.0
"""Longest wait of a start for the documents of `flows.files`: a change may wait for a full disk, and what frees the
disk begins only after that wait."""
END_S = 5.0
"""Longest wait of an end for each of three things: a change of a flow, then queues that flows work off, then the
broker's answers to what they published."""
FIRST_CONNECTION_S = 0.5
"""The longest wait for the brokers' answers before the log says that the gateway is ready."""
FIRST_LOOKS = 20
"""The number of looks for these answers in that time."""


class Daemon:
    """One gateway. `run` returns when a stop was asked for."""

    def __init__(self, settings: GatewaySettings, clock: Clock | None = None) -> None:
        """`clock`: of all parts; the machine's unless given."""
        self.settings = settings
        self.gateway = settings.gateway.id or own_gateway_id()
        self.clock = clock or SystemClock()
        folder = settings.gateway.data_dir or data_folder(os.environ, os.geteuid() == 0)
        self.database = Database(
            Path(folder) / "gateway.db",
            self.gateway,
            settings.outbox.quota_bytes,
            link_quota_bytes=settings.links.quota_bytes,
            batch_limits=BatchLimits(settings.outbox.batch_rows, settings.outbox.batch_bytes),
        )
        self._store_thread = ThreadPoolExecutor(1, thread_name_prefix="store")
        self.registry, failed = with_installed()
        for point, why in failed.items():
            log.error("operators of the package behind %s cannot be used: %s", point, why)
        self.flow_registry = FlowRegistry(self.database, self.store, self.clock, self._tell_links)
        self.host: Host = self._make_host()
        self.ingest = Ingest(
            settings.sensors, f"edgert-{self.gateway}", self.host, self.clock,
            forget_session=self._write_table, wants_checkpoint=lambda: self.checkpointer.ask(),  # noqa: PLW0108 - which is made later
            save_subscriptions=lambda text: self.store(lambda: self.database.set_meta("subscriptions", text)),
            lock=self.flow_registry.feeding,
        )  # fmt: skip
        self.links = self._make_links() if settings.links.enabled else None
        self.central = CentralConnection(settings, self.gateway)
        self.uplink = Uplink(
            settings.gateway.fleet, self.gateway, self.database, self.clock, self.store,
            self.central.publish, settings.uplink, self.central.max_packet_bytes,
            on_epoch=lambda flow, epoch: self.flows.epoch_renamed(flow, epoch),  # noqa: PLW0108 - as above
            macs=Macs(read_mac_key(settings.central.mac_key_file)),
        )  # fmt: skip
        self.checkpointer = Checkpointer(
            self.flow_registry, self.host, self.ingest, self.uplink.committed, settings.outbox.greatest_age_s,
            self.links.committed if self.links else lambda runs: None,
        )  # fmt: skip
        self.early_results = EarlyResults(self.flow_registry, self.host, self.checkpointer, self.uplink.may_leave)
        self.flows = Flows(
            self.registry, self.flow_registry, self.host, self.ingest, self.checkpointer,
            cast(Fusion, settings.pool.fusion), settings.pool.fission,
        )  # fmt: skip
        self.parts = Parts(self.gateway, self.flows, self.host, self.database, self.store, self.clock, self.links)
        self.guests = Guests(self.parts)
        self.status = status_of(
            settings, self.gateway, self.ingest, self.uplink, self.checkpointer, self.flows, self.host, self.links,
            self.central.drops, lambda: self.central.connection, lambda: self.web.section() if self.web else {},
        )  # fmt: skip
        self.commands = commands = Commands(
            self.gateway, settings.pool, self.flows, self.host, self.parts, self.guests, self.links, self.status,
            self.clock,
        )  # fmt: skip
        root, connects = os.geteuid() == 0, self.central.connects
        self.updates = BoardUpdates(
            settings.updates, update_request(settings, os.environ, root), self._tell("update/state"), connects
        )
        self.revoked = RevokedList(
            settings.links.crl, revoked_request(settings, os.environ, root), self._tell("crl/state"), connects
        )
        self.mqtt_api = MqttApi(
            settings.gateway.fleet, self.gateway, self.flows, self.central.answer,
            lambda document: apply_settings(document, settings.pool.consumption, self.host),
            commands.of_control_plane() | {"update": self.updates.update},
            self.revoked.take_untrusted if settings.links.crl else None,
        )  # fmt: skip
        self.central.connect(self.mqtt_api, self.uplink, self.flows)
        self.control = ControlSocket(settings, commands.of_control_plane() | commands.of_agent(), self.status)
        self.web: Any = None
        self._stop = asyncio.Event()
        self.files_s = FILES_S
        self.tasks: list[asyncio.Task[None]] = []
        self.fault = ""
        self._garbage: Garbage | None = None

    def _tell(self, below: str) -> Callable[[bytes], bool]:
        """Publishes retained states of the board."""
        return lambda state: self.central.publish(f"{self.mqtt_api.base}/{below}", state, retain=True)

    async def store(self, call: Callable[[], Any]) -> Any:
        """Runs `call` on the store thread, the only one that touches the database."""
        return await to_its_end(asyncio.get_running_loop().run_in_executor(self._store_thread, call))

    def _make_host(self) -> Host:
        settings = self.settings.pool
        state_limit = state_bytes(settings.memory_bytes or service_memory(), settings.slots + 1)
        if settings.slots:
            from gateway.hosts.slots import Slots  # costs a megabyte, so only where it is wanted

            return Slots(
                settings, self.registry, self.clock,
                level=self.settings.log.level, send=self._send, recovery=self.flow_registry,
                state_limit_bytes=state_limit,
            )  # fmt: skip
        pool = make_pool(
            self.clock, policy=settings.policy, consumption=settings.consumption,
            consumption_rows=settings.consumption_rows, workers=settings.workers, send=self._send,
        )  # fmt: skip
        return InProcess(pool, self.clock, state_limit)

    def _make_links(self) -> FlowLinks:
        from gateway.links.flow_links import FlowLinks  # costs memory, so only where it is wanted

        settings = self.settings
        return FlowLinks(
            settings.gateway.fleet, self.gateway, settings.links, self.database, self.store, self.host, self.ingest,
            self.clock,
        )  # fmt: skip

    async def _tell_links(self, runs: Mapping[str, FlowRun]) -> None:
        if self.links:
            await self.links.sync(runs)

    def _send(self, instance: Instance, messages: Sequence[PlainMessage]) -> None:
        self.ingest.publishing.send(instance, messages)

    # -- life

    async def run(self, garbage: Garbage | None = None) -> None:
        """Starts, serves until `stop` or a signal, ends cleanly. `garbage`: None where the process is not ours."""
        self._garbage = garbage
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.stop)
        await self.start()
        about = self.gateway, self.settings.gateway.fleet
        notify("READY=1")
        if away := await self._not_connected():
            log.warning("gateway %s of fleet %s is ready, and not connected yet to %s", *about, "; ".join(away))
        else:
            log.info("gateway %s of fleet %s is ready", *about)
        await self._stop.wait()
        notify("STOPPING=1")
        log.info("stopping")
        await self.end()
        if self.fault:
            raise EdgertError(f"a part of the gateway ended: {self.fault}")

    async def _not_connected(self) -> list[str]:
        """Waits a moment for the connections. Returns the brokers that are not connected then, with the reason if
        known."""
        for _ in range(FIRST_LOOKS):
            if self._stop.is_set() or not not_connected(self.ingest, self.central.connection):
                break
            await asyncio.sleep(FIRST_CONNECTION_S / FIRST_LOOKS)
        return not_connected(self.ingest, self.central.connection)

    def stop(self) -> None:
        """Asks `run` to end the gateway. The second call (a second Ctrl-C or SIGTERM) ends the process at once: a crash
        costs only a redelivery."""
        if self._stop.is_set():
            log.warning("ending at once")
            os._exit(1)
        self._stop.set()

    def _task_ended(self, task: asyncio.Task[None]) -> None:
        """Stops the gateway when a task of it ends, which no task does by itself. Without that task the gateway would
        only seem to work; systemd starts it again."""
        if not task.cancelled():
            self.fault = repr(task.exception())
            log.error("a part of the gateway ended, so all of it does", exc_info=task.exception())
            self._stop.set()

    async def start(self) -> None:
        """Starts all parts, and the flows of the database. The parts run in `tasks`; `fault` says why one ended.

        1. The id table and the subscriptions are loaded, first of all: flows that are loaded change them.
        2. The flows are loaded. `parts.load` reads fences and prepared plans before that, by which `flows.load` knows
           the flows that are not to run; `parts.loaded` records those afterwards, when they exist.
        3. The slots, the page, the links and the control socket start, before any input: people can look at a
           start that waits, and act.
        4. Flows of a damaged database are restored, and the documents of `flows.files` are deployed, so that the
           first message finds its flow.
        5. The sensors' broker is connected, now that all its readers are there; then the central broker.
        6. The tasks begin, last: they need all of the above.
        """
        rescued = self.database.rescued()
        await self._load_input(rescued is not None)  # stage 1
        self.parts.load()  # stage 2
        self.flows.load()
        self.parts.loaded()
        await self.host.start()  # stage 3
        if (web := self.settings.web).enabled:
            from gateway.web.server import WebServer  # costs 9 MB, so only where it is wanted

            told, agent = self.status, self.control.agent
            self.web = WebServer(web.host, web.port, told.object, told.results, told.history.plot, agent.socket)
            await self.web.start(agent.serves_page)
        if self.links:
            await self.links.start()
            await self.links.sync(self.flows.runs)
        await self.control.start()
        if rescued is not None:  # stage 4
            await self.flows.restore(rescued, str(self.database.meta("begun_anew")))
        files = asyncio.create_task(deploy_files(self.flows, self.settings.flows.files))
        await self._wait_for(files)
        await self.ingest.start()  # stage 5
        self.central.start()
        work = (  # stage 6
            self.checkpointer.run(),
            self.early_results.run(),
            self.uplink.run(),
            self._tick(),
            self.guests.run(),
            self.updates.run(),
            *([self.revoked.run()] if self.settings.links.crl else []),
            *saving(self.settings, self.ingest, self.mqtt_api.accepted),
            *self.central.serving(files),
        )
        self.tasks = [asyncio.create_task(w) for w in work]
        for task in self.tasks:
            task.add_done_callback(self._task_ended)
        self.tasks.append(files)  # it may end, so `_task_ended` is not called for it

    async def _load_input(self, rescued: bool) -> None:
        """Loads the id table and the subscriptions. `rescued`: a damaged database was set aside."""
        database, inbox = self.database, self.ingest.inbox
        older = rescued or database.went_back
        """The database is older than the session at the sensors' broker."""
        if older:
            inbox.table.lose_all()
        inbox.table.load(database.pages())
        if inbox.table.lost:
            log.error("%s", LOST_IDS.format(len(inbox.table.lost)))
        inbox.next_index = int(database.meta("next_index", 1))
        saved = str(database.meta("subscriptions", "")), str(database.meta("broker_drops", ""))
        self.ingest.load(*saved, older=older or bool(database.lost))
        if rescued:
            database.note("subscriptions", self.ingest.to_save())  # written with the note that all is restored
        elif not saved[0]:
            with suppress(StoreError):  # else the next start would not know that there was a session
                await self.store(lambda: database.set_meta("subscriptions", self.ingest.to_save()))

    async def _wait_for(self, files: asyncio.Task[None]) -> None:
        """Waits for the documents of `flows.files`, for `files_s` at most, or until a stop is asked for."""
        stopped = asyncio.create_task(self._stop.wait())
        done, _ = await asyncio.wait((files, stopped), timeout=self.files_s, return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        if files in done:
            await files
        elif not done:
            log.error("a document of flows.files still waits; the rest of the gateway begins without it")

    async def end(self) -> None:
        """Processes and commits all input, so that the next start repeats nothing.

        1. `ingest.close` takes in nothing more, so that the input has an end. The connection stays: the broker still
           answers to what flows publish, and gets the last acknowledgements. `ingest.stop` ends it in stage 6.
        2. A change of a flow may end, and the tasks are cancelled, so that nothing else makes checkpoints or changes.
           A checkpoint under way only writes what it has (`hurries`), since all flows get one more in stage 5.
        3. `host.leave` brings back no slot that dies from now on. The slots still run, for stage 4; `host.stop` ends
           them in stage 6.
        4. Flows work off their queues, so that the last checkpoint covers all input. `publishing.settled` waits for the
           broker's answers to their messages; `publishing.give_up` counts the messages without an answer as drops.
        5. The last checkpoint takes every flow (`hurries` is over) and every drop, also of flows whose drops are told
           once a minute otherwise (`drops.ending`).
        6. Connections and slots end. The database is closed last, since the others write to it.
        """
        self.ingest.close()  # stage 1
        self.checkpointer.hurries = True
        await self.flow_registry.settled(END_S)  # stage 2
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        await self.host.leave()  # stage 3
        await self.checkpointer.compaction.stop()
        async with self.flow_registry.busy:  # stage 4
            runs = [run for run in self.flows.runs.values() if not run.ended]
            runs = await asyncio.to_thread(self.host.checkpoints.quiesce, runs, self.checkpointer.feeding, END_S)
        await asyncio.sleep(0)  # the loop publishes the last messages of the flows
        await self.ingest.publishing.settled(END_S)
        self.ingest.publishing.give_up()
        for run in runs:
            self.host.checkpoints.recount(run)
        self.checkpointer.drops.ending, self.checkpointer.hurries = True, False  # stage 5
        written = await self.checkpointer.checkpoint(self.flows.runs.values())
        await asyncio.sleep(0)  # the loop writes the last acknowledgements
        ends = [  # stage 6
            self._leave_sensors(written),
            self.central.stop(),
            self.host.stop(),
            self.control.stop(),
            *([self.links.stop()] if self.links else []),
            *([self.web.stop()] if self.web else []),
        ]  # together, since each may wait some seconds for a peer that hangs
        for found in await asyncio.gather(*ends, return_exceptions=True):  # if one fails, the others still end
            if isinstance(found, Exception):
                self.fault = repr(found)
                log.error("a part of the gateway did not end as it should", exc_info=found)
        await self.flows.stop()
        self._store_thread.shutdown()
        self.database.close()

    async def _leave_sensors(self, written: bool) -> None:
        """Ends the connection to the sensors' broker, and then writes the id table, which changes no more. `written`:
        the last commit did not fail, so the database takes it."""
        await self.ingest.stop()
        if written and (self.ingest.drops.unsaved or self.ingest.inbox.table.dirty):
            try:
                await self._write_table()
            except StoreError as error:
                log.warning("what the sensors' broker said last may be counted again at the next start: %s", error)

    async def _tick(self) -> None:
        """At each tick: time passes for sources without input, the log gets samples of malformed payloads, and
        the policy learns what operators cost."""
        busy = True
        while True:
            await asyncio.sleep(TICK_S if busy or self.links else IDLE_TICK_S)
            notify("WATCHDOG=1")
            if self.database.damaged:  # the next start looks at the database, and sets a damaged one aside
                raise StoreError(self.database.damaged)
            busy = self.host.tick(list(self.flows.runs.values()))
            self.status.look()
            if self.links:
                self.links.tick()
            if self._garbage:
                self._garbage.look(self.clock.monotonic(), self.host.memory.held_bytes)

    async def _write_table(self) -> None:
        def write() -> None:
            with self.checkpointer.id_table() as table:
                self.database.commit([], *table)

        await self.store(write)
