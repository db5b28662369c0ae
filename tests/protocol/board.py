"""A gateway's delivery as it is in the product (ingest, flows, pool, checkpoints, database, uplink), without sockets,
threads or waits: whoever drives it says what happens next, and a crash is to drop it."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

from edgert.core.clock import VirtualClock
from edgert.core.errors import EdgertError, StoreError
from edgert.core.settings import Sensors
from edgert.core.settings import Uplink as UplinkSettings
from edgert.flow.document import from_plain
from edgert.flow.full_outbox import WhenFull
from edgert.flow.physical import Fusion
from edgert.mqtt.events import Connected, Subscribed
from edgert.mqtt.packets import Subscription
from edgert.operators.registry import REGISTRY
from edgert.runtime import flow_run
from edgert.runtime.instance import Instance, Turn
from edgert.runtime.pool import Pool
from edgert.store.database import Database
from gateway import hosts
from gateway.ahead import Ahead
from gateway.checkpointer import Checkpointer
from gateway.flows import Flows
from gateway.hosts import Entries, InProcess, kept
from gateway.ingest import Ingest
from gateway.uplink import Uplink
from tests.protocol.sensors_broker import Packet, SensorsBroker

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

    with (
        mock.patch.object(asyncio, "to_thread", inline),
        mock.patch.object(flow_run, "HOLD_S", 0.0),
        mock.patch("gateway.flows.HOLD_S", 0.0),
        mock.patch("gateway.uplink.BACKLOG", 1),
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


class Wire:
    """The gateway's end of the connection to its sensors' broker: notes what is to go out."""

    def __init__(self, broker: SensorsBroker) -> None:
        self.broker = broker
        self.connection = 0
        self.paused = False
        self.status = SimpleNamespace(connected=False, protocol="5", error="")
        self._tokens = 0

    def acknowledge(self, packets: Sequence[tuple[int, int]], connection: int | None = None) -> bool:
        if connection == self.connection and self.status.connected:
            self.broker.up += [("ack", packet_id) for packet_id, _ in packets]
        return True

    def subscribe(self, subscriptions: Sequence[Subscription]) -> int:
        self._tokens += 1
        self.broker.up.append(("subscribe", (self._tokens, tuple(subscriptions))))
        return self._tokens

    def unsubscribe(self, filters: Sequence[str]) -> int:
        self.broker.up.append(("unsubscribe", tuple(filters)))
        return 0

    def pause(self) -> None:
        self.paused = True

    def resume(self) -> None:
        self.paused = False


class Board:
    """Starts from what the database holds. `publish` takes what leaves for the central side; false: no connection."""

    FUSION: Fusion = "full"

    def __init__(
        self,
        path: Path,
        broker: SensorsBroker,
        clock: VirtualClock,
        publish: Callable[[str, bytes], bool],
        quota_bytes: float = math.inf,
    ) -> None:
        self.clock, self.broker = clock, broker
        self.database = Database(path, GATEWAY, quota_bytes)
        self.database._db.execute("PRAGMA synchronous = OFF")  # the machine does not die here, only the gateway
        self.full = False
        """Whether nothing can be written."""
        self.meanwhile: Callable[[], None] = lambda: None
        """Called between a capture and its commit, and between what is taken to leave ahead of one and its writing."""
        self.host = self._make_host()
        self.ingest = Ingest(
            Sensors(), "id", self.host, clock, forget_session=self._forget_session, wants_checkpoint=lambda: None,
            save_subscriptions=lambda text: self.store(lambda: self.database.set_meta("subscriptions", text)),
        )  # fmt: skip
        self.wire = Wire(broker)
        self.ingest.client = self.wire  # type: ignore[assignment]
        self.ingest._spawn = drive  # type: ignore[method-assign, assignment]
        self.uplink = Uplink(FLEET, GATEWAY, self.database, clock, self.store, publish, UplinkSettings(outage_s=5.0))
        self.checkpointer = Checkpointer(self.database, self.store, self.host, self.ingest, self.uplink.committed)
        self.ahead = Ahead(self.database, self.store, self.host, self.checkpointer, self.uplink.may_leave)
        self.flows = Flows(
            REGISTRY, self.database, self.store, self.host, self.ingest, self.checkpointer, self.FUSION
        )  # fmt: skip
        self.uplink.on_epoch = self.flows.epoch_renamed
        self.turns: list[tuple[Instance, Turn]] = []
        """Under way: an operator that blocks."""
        self._write = self.database.commit
        self.database.commit = self._commit  # type: ignore[method-assign, assignment]
        self._write_ahead = self.database.put_ahead
        self.database.put_ahead = self._put_ahead  # type: ignore[method-assign, assignment]
        self._start()

    def _make_host(self) -> hosts.Host:
        self.pool = Pool(self.clock)
        return Host(self.pool, self.clock)

    def _start(self) -> None:
        inbox = self.ingest.inbox
        inbox.table.load(self.database.pages())
        inbox.next_index = int(self.database.meta("next_index", 1))
        self.ingest._subscriptions.load(self.database.meta("subscriptions", ""))
        self.flows.load()

    async def store(self, call: Callable[[], Any]) -> Any:
        if self.full:
            raise StoreError("disk full")
        return call()

    async def _forget_session(self) -> None:
        await self.store(lambda: self.checkpointer.write(lambda pages, index: self._write([], pages, index)))

    def _commit(self, *given: Any) -> Any:
        self.meanwhile()
        if self.full:
            raise StoreError("disk full")
        return self._write(*given)

    def _put_ahead(self, *given: Any) -> Any:
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
        if not self.wire.status.connected and not self.full:
            present = self.broker.connect()
            self.wire.connection += 1
            self.wire.status.connected = True
            self.ingest._connected(Connected(present, "5", self.wire.connection, "id", 65_535))

    def cut(self) -> None:
        if self.wire.status.connected:
            down = self.broker.cut()
            self._take(down)
            self.wire.status.connected = False
            self.ingest._disconnected("cut")

    def receive(self, most: int) -> bool:
        """Takes so many packets of what has come, in one read."""
        down = self.broker.down
        taken = [down.popleft() for _ in range(min(most, len(down)))]
        self._take(taken)
        return bool(taken)

    def _take(self, packets: Sequence[Packet]) -> None:
        read: list[Any] = []
        for kind, what in packets:
            if kind == "publish":
                read.append(what)
                continue
            self._read(read)
            read = []
            if kind == "release":
                self.ingest._released(what)
                self.broker.up.append(("complete", what))
            else:
                self.ingest._answered(Subscribed(*what))
        self._read(read)

    def _read(self, messages: list[Any]) -> None:
        if messages:
            self.ingest._messages(messages)

    # -- operators

    def begin_turn(self) -> bool:
        """A worker takes rows, and is not done with them yet."""
        pool = self.pool
        with pool._lock:
            number = pool._gate.choose(self.clock.monotonic())
            if number is None:
                return False
            instance, entries = pool._take(number)
        self.turns.append((instance, pool._turn(instance, entries)))
        return True

    def end_turns(self) -> None:
        """Those under way."""
        turns, self.turns = self.turns, []
        for instance, turn in turns:
            with self.pool._lock:
                self.pool._hand_on(instance, turn)

    def work(self) -> None:
        """Until nothing waits."""
        self.end_turns()
        while self.begin_turn():
            self.end_turns()

    # -- flows

    def checkpoint(self, flows: Sequence[str] = ()) -> bool:
        """Of these flows, or of all."""
        runs = [run for name, run in self.flows.runs.items() if name in flows or not flows]
        return bool(drive(self.checkpointer.checkpoint(runs)))

    def send_ahead(self) -> bool:
        """Of at-least-once flows."""
        return bool(drive(self.ahead.send()))

    def deploy(self, made: Any) -> None:
        """A flow, or a new version of one. `EdgertError` where that cannot be done now; a blocked one is not left to
        itself here."""
        old = self.flows.runs.get(made.name)
        if old and self.checkpointer.blocked.is_blocked(old):
            raise EdgertError(f"flow {made.name} is blocked")
        drive(self.flows._deploy(made, "mqtt"))

    def remove(self, name: str) -> None:
        drive(self.flows.remove(name))
