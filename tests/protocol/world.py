"""A walk through what may happen between a sensor and the fleet table, and what must hold at its end: no message lost,
none counted twice; by an at-least-once flow only what had left ahead of a checkpoint that a crash prevented. The
protocol's own code takes part, not a copy of it; chance comes from a seed."""

from __future__ import annotations

import asyncio
import random
import shutil
import sqlite3
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Final
from unittest import mock

from edgert.core.clock import VirtualClock
from edgert.core.errors import EdgertError, StoreError
from edgert.mqtt.topics import covers
from tests.protocol.board import Board, document, drive
from tests.protocol.central_side import CentralSide
from tests.protocol.fleet_side import FleetSide
from tests.protocol.sensors_broker import Copy, SensorsBroker

WALL: Final = 1_700_000_000.0
AT_LEAST_ONCE: Final = range(1_000, 2_000)
"""With these seeds one of the flows is."""
RESULTS_FLOW: Final = range(2_000, 3_000)
"""With these results land all the time, late ones too: so the fleet job has something to do."""
ROTS: Final = range(3_000, 4_000)
"""With these the card does."""
BLOCKS: Final = range(4_000, 5_000)
"""With these operators are blocked for long."""
PAST_S: Final = (0, 3, 6, 9, 3_600, 7_200, 7_203, 86_400)
"""How old a message may be, whose window is then one that the tables have."""
ROUNDS: Final = 400
"""Until all is settled at the end; it takes some twenty."""


class Died(Exception):
    """The gateway was killed in the midst of something."""


class World:
    """`run`, then `settle` and `check`."""

    def __init__(self, seed: int, folder: Path) -> None:
        draw = self.draw = random.Random(seed)
        self.folder = folder
        self.clock = VirtualClock(wall=WALL)
        self.unique = draw.random() < 0.6
        """Whether each message has a payload of its own: then none is ambiguous."""
        self.qos = draw.choice([1, 1, 2])
        self.flows = {"a": "t/+/+", "b": draw.choice(["t/+/+", "t/0/+", "t/0/+"])}
        """By name: what it reads. One subscription for both, or two that overlap."""
        ahead, self.results_flow = seed in AT_LEAST_ONCE, seed in RESULTS_FLOW
        self.delivery = {"a": "exactly-once", "b": "at-least-once" if ahead else "exactly-once"}
        self._acts = [*ACTS[:-2], *ACTS[-2:-1] * ahead, *ACTS[-1:] * self.results_flow]
        self.repeated: Counter[str] = Counter()
        """Rows that had left ahead of a checkpoint when the gateway was killed, by flow."""
        filters = tuple(dict.fromkeys(self.flows.values()))
        self.broker = SensorsBroker(
            draw, filters, self.qos, draw.choice([1, 1, 2, 4]), draw.random() < 0.5, draw.random() < 0.7
        )
        self.may_forget = draw.random() < 0.4
        self.may_go_back = draw.random() < 0.5
        self.may_change = draw.random() < 0.6
        self._letters = draw.choice(["x", "xy"])
        self.central = CentralSide(draw, self.clock, draw.choice([1, 2]), self.results_flow)
        # With chance of its own, so that a seed means the same whatever the fleet job does.
        self.fleet = FleetSide(random.Random(f"fleet {seed}"), self.central, self.flows, self.step, self._say)
        self.most = draw.randint(6, 30) * (3 if self.results_flow else 1) + 30 * (seed in ROTS or seed in BLOCKS)
        self.steps = 0
        self.said: list[str] = []
        """What happened, to be read."""
        self.topics: dict[int, str] = {}
        self.keys: dict[int, str] = {}
        self.ambiguous = 0
        """As counted by gateways that are dead."""
        self.gap: dict[str, set[int]] = {name: set() for name in self.flows}
        """By flow: what a restored or damaged card may have lost, or counted twice where it says so."""
        self.may_rot, self.may_block = seed in ROTS, seed in BLOCKS
        self.covered: dict[str, dict[int, set[Copy]]] = {name: {} for name in self.flows}
        """By flow and number of its last delta: what had been acknowledged when that was new and nothing waited."""
        self.version = 1
        self.backups: list[tuple[Path, set[Copy], int]] = []
        self.board: Board | None = self._start()
        for name, topic in self.flows.items():
            self.board.deploy(document(name, topic, self.qos, self.delivery[name]))
        self.board.connect()
        while self.broker.receive() or self.board.receive(9):
            pass
        self.board.uplink.connected()
        assert set(self.broker.session.subscriptions) == {*filters, self.board.ingest.drops.topic}

    @property
    def path(self) -> Path:
        return self.folder / "gateway.db"

    def _start(self) -> Board:
        return Board(self.path, self.broker, self.clock, self.central.broker.publish)

    # -- what may happen

    def run(self) -> None:
        """Some hundred steps; of them some may come within others."""
        most = self.draw.choice([150, 300, 500])
        while self.steps < most:
            self.step()

    def step(self) -> None:
        """One thing."""
        self.steps += 1
        acts, weights = zip(*self._acts, strict=True)
        act: Callable[[World], None] = self.draw.choices(acts, weights)[0]
        self._say(act.__name__.strip("_"))
        act(self)
        self.fleet.step()

    def _say(self, text: str) -> None:
        self.said.append(text)

    def _publish(self) -> None:
        uid = len(self.topics) + 1
        if uid > self.most:
            return
        self.topics[uid] = f"t/{self.draw.choice([0, 0, 1])}/s"
        self.keys[uid] = str(uid) if self.unique else self.draw.choice(self._letters)
        more = ""
        if self.results_flow:
            more = f', "id": {uid}' * self.unique + f', "time": {WALL - self.draw.choice(PAST_S)}'
            self.keys[uid] = self.draw.choice("wxyz")  # so that many have one window
        self.broker.publish(uid, self.topics[uid], f'{{"u": "{self.keys[uid]}"{more}}}'.encode())

    def _broker_sends(self) -> None:
        self.broker.send()

    def _broker_receives(self) -> None:
        self.broker.receive()

    def _receive(self) -> None:
        if self.board and not self.board.wire.paused:
            self.board.receive(self.draw.randint(1, 3))

    def _begin_turn(self) -> None:
        if self.board:
            self.board.begin_turn()

    def _work(self) -> None:
        if self.board and not (self.may_block and self.draw.random() < 0.8):
            self.board.work()

    def _time_passes(self) -> None:
        self.clock.advance(self.draw.choice([0.1, 1.0, 4.0, 40.0]))
        if self.board:
            self.board.host.tick(self.board.flows.runs.values())

    def _checkpoint(self) -> None:
        if not self.board:
            return
        if self.may_block:
            self.clock.advance(6.0)  # so that it has been for too long the second time
        if self.may_rot:  # so that there is something to go back to
            self._publish()
            self._broker_sends()
            self._receive()
            self.board.work()
        if self.draw.random() < 0.5:
            self.board.meanwhile = self.draw.choice([self._receive, self._receive, self._fill, self._work])
        self.board.checkpoint(self.draw.choice([(), ("a",), ("b",)]))
        self.board.meanwhile = lambda: None
        for name, covered in self.covered.items():
            waits = self.board.database.queue(name)
            covered.setdefault(self.board.database.last_state(name), set() if waits else set(self.broker.acknowledged))

    def _send_ahead(self) -> None:
        if self.board:
            for _ in range(self.draw.choice([0, 2, 2])):  # devices fall silent, and windows end
                self.clock.advance(40.0)
                self.board.host.tick(self.board.flows.runs.values())
                self.board.work()
            self._publish()  # and others begin
            self._broker_sends()
            self._receive()
            self.board.work()
            if self.draw.random() < 0.2:
                self.board.meanwhile = self._fill
            self.board.send_ahead()
            self.board.meanwhile = lambda: None

    def _results(self) -> None:
        """A message goes all the way, and what waits before it."""
        self._publish()
        self._broker_sends()
        if self.board:
            self.board.connect()
            self.board.receive(9)
            self.board.work()
            for _ in range(self.draw.choice([0, 0, 2])):  # or it waits in a window
                self.clock.advance(40.0)
                self.board.host.tick(self.board.flows.runs.values())
                self.board.work()
            self.board.checkpoint()
            self._uplink()
        self._collect()
        self._acknowledge()

    def _connect(self) -> None:
        if self.board:
            self.board.connect()

    def _cut(self) -> None:
        if self.board:
            self.board.cut()

    def _fill(self) -> None:
        if self.board:
            self.board.full = not self.board.full

    def _crash(self) -> None:
        if self.board:
            self.ambiguous += self.board.ingest.inbox.counters.ambiguous
            self.repeated.update(self.board.left_ahead())
            connected = self.board.wire.status.connected
            self.board.crash()
            self.board = None
            if connected:
                self.broker.cut()

    def _restart(self) -> None:
        if not self.board:
            if self.backups and self.draw.random() < 0.5:
                self._go_back()
            if self.may_rot and self.draw.random() < 0.4:
                self._rot(self.draw.choice("ab"))
            self.board = self._start()
            if not self.central.broker.away:
                self.board.uplink.connected()

    def _new_version(self) -> None:
        if self.board and self.may_change:
            name = self.draw.choice("ab")
            self.version += 1
            made = document(name, self.flows[name], self.qos, self.delivery[name], f"version {self.version}")
            try:
                with mock.patch.object(asyncio, "sleep", self._sleeps):
                    self.board.deploy(made)
            except EdgertError as error:
                self._say(str(error))
            except Died:
                self._crash()

    async def _sleeps(self, seconds: float) -> None:
        """What goes on when the disk has room again: it has now, or the gateway is killed before."""
        if self.draw.random() < 0.5:
            raise Died
        assert self.board
        self.board.full = False

    def _uplink(self) -> None:
        if self.board:
            try:
                drive(self.board.uplink._turn())
            except StoreError as error:
                self._say(str(error))

    def _acknowledge(self) -> None:
        if self.board and self.central.broker.acks and not self.central.broker.away:
            drive(self.board.uplink.acknowledged_untrusted(self.central.broker.acks.popleft()))

    def _collect(self) -> None:
        messages = self.central.broker.take(self.draw.randint(1, 6), self.draw.random() < 0.3)
        numbers = range(len(self.central.collectors))
        for number in numbers if self.draw.random() < 0.3 else [self.draw.choice(numbers)]:
            self.central.handle(messages, number, race=len(numbers) > 1 and self.draw.random() < 0.3)

    def _collector_dies(self) -> None:
        self.central.restart(self.draw.randrange(len(self.central.collectors)))

    def _central_goes(self) -> None:
        broker = self.central.broker
        broker.away = not broker.away
        if self.board:
            if broker.away:
                self.board.uplink.disconnected()
            else:
                self.board.uplink.connected()

    def _central_loses(self) -> None:
        self.central.broker.lose()
        if self.board and not self.central.broker.away:
            self.board.uplink.connected()

    def _broker_snaps(self) -> None:
        self.broker.snap()

    def _broker_dies(self) -> None:
        self._cut()
        self.broker.die()

    def _broker_forgets(self) -> None:
        if self.may_forget:
            self._cut()
            self.broker.forget()

    def _back_up(self) -> None:
        """Somebody copies the card while the gateway is off."""
        if self.may_go_back and not self.board:
            path = self.folder / f"backup{len(self.backups)}"
            shutil.copy(self.path, path)
            self.backups.append((path, set(self.broker.acknowledged), self.version))

    def _go_back(self) -> None:
        path, acknowledged, version = self.draw.choice(self.backups)
        self._say(f"goes back to {path.name}")
        for old in self.folder.glob("gateway.db*"):
            old.unlink()
        shutil.copy(path, self.path)
        for name in self.flows:
            self.gap[name] |= {copy.uid for copy in self.broker.acknowledged - acknowledged}
            self.covered[name].clear()
        if version != self.version:  # it has an epoch that the card does not know: open windows may count twice
            self.broker.again.update(self.topics.keys())

    def _rot(self, flow: str) -> None:
        """One byte of what is stored of a flow's state, or of its queues, is another. It goes on from the delta before
        that, or where there is none, with nothing in its windows."""
        with closing(sqlite3.connect(self.path)) as db:
            query = "SELECT number, position FROM state WHERE flow = ? ORDER BY number"
            pieces = db.execute(query, (flow,)).fetchall()
            of_queue = not pieces or self.draw.random() < 0.1
            at = self.draw.choice([len(pieces) - 1] * 3 + [self.draw.randrange(len(pieces))]) if pieces else 0
            table, key, value = ("queue", "flow", flow) if of_queue else ("state", "number", pieces[at][0])
            found = db.execute(f"SELECT blob FROM {table} WHERE {key} = ?", (value,)).fetchone()
            if not found or not found[0]:
                return
            raw = bytearray(found[0])
            raw[self.draw.randrange(len(raw))] ^= 0xFF
            db.execute(f"UPDATE {table} SET blob = ? WHERE {key} = ?", (bytes(raw), value))
            db.commit()
        back_to = next((number for number, position in reversed(pieces[:at]) if position is not None), None)
        self.version += 1  # another epoch
        self._say(f"flow {flow} rots: {table} {value} of {pieces}, back to {back_to}")
        if of_queue or back_to is None:
            self.gap[flow] |= set(self.topics)
        else:
            missing = self.broker.acknowledged - self.covered[flow].get(back_to, set())
            self.gap[flow] |= {copy.uid for copy in missing}

    # -- the end

    def settle(self) -> None:
        """No more faults: everything is brought to its end."""
        self._say("settles")
        self.most = 0
        self._restart()
        board = self.board
        assert board
        board.full = False
        if self.central.broker.away:
            self._central_goes()
        board.connect()
        self._until_quiet(board)
        for name in list(board.flows.runs):
            board.remove(name)
        self._until_quiet(board)
        self.ambiguous += board.ingest.inbox.counters.ambiguous
        self.fleet.settle()

    def _until_quiet(self, board: Board) -> None:
        for _ in range(ROUNDS):
            while self.broker.send() or board.receive(5) or self.broker.receive():
                pass
            board.work()
            assert board.checkpoint()
            self.clock.advance(10.0)  # of every wait for an answer
            self._uplink()
            while self.central.broker.results:
                self.central.handle(self.central.broker.take(50, disorder=False), 0)
            while self.central.broker.acks:
                self._acknowledge()
            idle = not (self.broker.session.waiting or self.broker.session.flying or self.broker.up or self.broker.down)
            if idle and not board.database.outbox_size.batches:
                return
        raise AssertionError(
            f"it does not come to an end: {self.broker.session}, {board.database.outbox_size}, {board.uplink.status}"
        )

    def check(self) -> None:
        """Against the truth."""
        for name in self.flows:
            self.fleet.check(name)
            found: Counter[str] = Counter()
            for (_, key), n in self.fleet.counted(name).items():
                found[key] += n
            self._check(name, found)

    def _check(self, name: str, counted: Counter[str]) -> None:
        topic = self.flows[name]
        of = {u for u, its in self.topics.items() if covers(topic, its)}
        expected = Counter(self.keys[u] for u in of)
        spared = Counter(self.keys[u] for u in of & (self.broker.lost | self.gap[name]))
        again = Counter(self.keys[u] for u in self.broker.again.elements() if u in of)
        doubled = counted - expected - again
        repeated = self.repeated[name] if self.delivery[name] == "at-least-once" else 0
        foreseen = doubled.total() <= repeated if self.unique else not doubled or repeated
        assert foreseen or self.broker.again.keys() >= of, f"flow {name} counted twice: {doubled}, {repeated} foreseen"
        lost = expected - counted - spared
        if self.unique:
            assert not lost, f"flow {name} lost {lost}"
        assert lost.total() <= self.ambiguous, f"flow {name} lost {lost}, {self.ambiguous} ambiguous"

    def close(self) -> None:
        if self.board:
            self.board.crash()


ACTS: Final[list[tuple[Callable[[World], None], float]]] = [
    (World._publish, 5), (World._broker_sends, 6), (World._broker_receives, 5), (World._receive, 6),
    (World._begin_turn, 2), (World._work, 3), (World._time_passes, 2), (World._checkpoint, 5), (World._connect, 3),
    (World._cut, 1.5), (World._fill, 0.5), (World._crash, 0.7), (World._restart, 3), (World._new_version, 0.4),
    (World._uplink, 4), (World._acknowledge, 4), (World._collect, 5), (World._collector_dies, 0.5),
    (World._central_goes, 0.7), (World._central_loses, 0.4), (World._broker_snaps, 0.4), (World._broker_dies, 0.4),
    (World._broker_forgets, 0.8), (World._back_up, 2),
    (World._send_ahead, 6), (World._results, 8),
]  # fmt: skip
"""The last but one where a flow is at-least-once, the last where results land all the time."""


def walk(seed: int, folder: Path) -> World:
    """One, from its beginning to the check at its end."""
    world = World(seed, folder)
    try:
        world.run()
        world.settle()
        world.check()
    finally:
        world.close()
    return world
