"""A walk through what may happen between a sensor and the fleet table, and what must hold at its end: no message lost,
none counted twice; by an at-least-once flow only what had left ahead of a checkpoint that a crash prevented. The
protocol's own code takes part, not a copy of it; chance comes from a seed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Final
from unittest import mock

from edgert.core.errors import EdgertError, StoreError
from tests.protocol import cards, filters
from tests.protocol.board import Board, drive
from tests.protocol.board_in_slots import BoardInSlots
from tests.protocol.kinds import AT_LEAST_ONCE, EQUAL, FILTERS, SLOTS
from tests.protocol.state import WALL, State
from tests.protocol.truth import check

PAST_S: Final = (0, 3, 6, 9, 3_600, 7_200, 7_203, 86_400)
"""How old a message may be, whose window is then one that the tables have."""
ROUNDS: Final = 400
"""Until all is settled at the end; it takes some twenty."""


class Died(Exception):
    """The gateway was killed in the midst of something."""


class World(State):
    """`run`, then `settle` and `check`."""

    def __init__(self, seed: int, folder: Path) -> None:
        super().__init__(seed, folder)
        chosen = [
            (AHEAD_ACTS, seed in AT_LEAST_ONCE), (RESULTS_ACTS, self.results_flow), (SLOT_ACTS, seed in SLOTS),
            (FILTER_ACTS, seed in FILTERS), (EQUAL_ACTS, seed in EQUAL),
        ]  # fmt: skip
        self._acts = [*ACTS, *(act for acts, wanted in chosen if wanted for act in acts)]

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
        self.say(act.__name__.strip("_"))
        act(self)
        self.fleet.step()

    def publish(self) -> None:
        uid = len(self.topics) + 1
        if uid > self.most:
            return
        self.topics[uid] = f"t/{self.draw.choice([0, 0, 1])}/s"
        for name in self.ledger.absent:
            self.ledger.lost[name].add(uid)
        self.keys[uid] = str(uid) if self.unique else self.draw.choice(self.letters)
        more = ""
        if self.results_flow:
            more = f', "id": {uid}' * self.unique + f', "time": {WALL - self.draw.choice(PAST_S)}'
            self.keys[uid] = str(uid) if self.may_rot else self.draw.choice("wxyz")  # so that many have one window
        self.broker.publish(uid, self.topics[uid], f'{{"u": "{self.keys[uid]}"{more}}}'.encode())

    def broker_sends(self) -> None:
        self.broker.send()

    def broker_receives(self) -> None:
        self.broker.receive()

    def receive(self) -> None:
        if self.board and not self.board.wire.paused:
            self.board.receive(self.draw.randint(1, 3))

    def begin_turn(self) -> None:
        if self.board:
            self.board.begin_turn()

    def work(self) -> None:
        if self.board and not (self.may_block and self.draw.random() < 0.8):
            self.board.work()

    def slot_dies(self) -> None:
        if isinstance(self.board, BoardInSlots):
            self.board.slot_dies(self.draw.randrange(2))

    def slots_sleep(self) -> None:
        if isinstance(self.board, BoardInSlots):
            self.board.asleep = not self.board.asleep

    def time_passes(self) -> None:
        self.clock.advance(self.draw.choice([0.1, 1.0, 4.0, 40.0]))
        if self.board:
            self.board.host.tick(self.board.flows.runs.values())

    def checkpoint(self) -> None:
        if not self.board:
            return
        if self.may_block:
            self.clock.advance(6.0)  # so that it has been for too long the second time
        if self.may_rot:  # so that there is something to go back to
            self.publish()
            self.broker_sends()
            self.receive()
            self.board.work()
        if self.draw.random() < 0.5:
            meanwhile = [self.receive, self.receive, self.fill, self.work, *[self.slot_dies] * self.in_slots]
            self.board.meanwhile = self.draw.choice(meanwhile)
        self.board.checkpoint(self.draw.choice([(), ("a",), ("b",)]))
        self.board.meanwhile = lambda: None
        cards.note(self)

    def send_ahead(self) -> None:
        if self.board:
            for _ in range(self.draw.choice([0, 2, 2])):  # devices fall silent, and windows end
                self.clock.advance(40.0)
                self.board.host.tick(self.board.flows.runs.values())
                self.board.work()
            self.publish()  # and others begin
            self.broker_sends()
            self.receive()
            self.board.work()
            if self.draw.random() < 0.2:
                self.board.meanwhile = self.fill
            self.board.send_ahead()
            self.board.meanwhile = lambda: None

    def results(self) -> None:
        """A message goes all the way, and what waits before it."""
        self.publish()
        self.broker_sends()
        if self.board:
            self.board.connect()
            self.board.receive(9)
            self.board.work()
            for _ in range(self.draw.choice([0, 0, 2])):  # or it waits in a window
                self.clock.advance(40.0)
                self.board.host.tick(self.board.flows.runs.values())
                self.board.work()
            self.board.checkpoint()
            self.uplink()
        self.collect()
        self.acknowledge()

    def connect(self) -> None:
        if self.board:
            self.board.connect()

    def cut(self) -> None:
        if self.board:
            self.board.cut()

    def fill(self) -> None:
        if self.board:
            self.board.full = not self.board.full

    def crash(self) -> None:
        if self.board:
            self.repeated.update(self.board.left_ahead())
            self.shed.update(self.board.shed())
            connected = self.board.wire.connected
            self.board.crash()
            self.board = None
            if connected:
                self.broker.cut()
            self.ledger.died(self.broker.holds())

    def restart(self) -> None:
        if not self.board:
            if self.backups and self.draw.random() < 0.5:
                cards.go_back(self)
            if self.may_rot and self.draw.random() < 0.4:
                cards.rot(self, self.draw.choice("ab"))
            full = self.may_rot and self.most and self.draw.random() < 0.2
            try:
                with cards.full_disk() if full else nullcontext():
                    self.board = self._start()
            except EdgertError as error:
                self.say(str(error))
                return
            filters.note(self)
            self.ledger.absent = self.flows.keys() - self.board.flows.runs.keys()
            if not self.central.broker.away:
                self.board.uplink.connected()

    def new_version(self) -> None:
        if self.board and self.may_change:
            self.deploy(self.draw.choice("ab"))

    def other_filter(self) -> None:
        if self.board:
            filters.change(self, self.draw.choice("ab"))

    def deploy(self, name: str) -> None:
        """A new version of a flow, or the attempt."""
        assert self.board
        self.versions[name] += 1
        made = self._document(name, f"version {self.versions[name]}")
        try:
            with mock.patch.object(asyncio, "sleep", self._sleeps):
                self.board.deploy(made)
        except EdgertError as error:
            self.say(str(error))
        except Died:
            self.crash()

    def begin_anew(self) -> None:
        """A flow is removed, and soon there is another of its name."""
        board = self.board
        if not (board and self.may_change) or board.full:
            return
        name = self.draw.choice("ab")
        if self.strict and not (board.wire.connected and not self.ledger.held(name, self.broker.holds())):
            return  # what is under way then, or comes before the broker knows of the new one, would be for nobody
        if board.is_stuck(name):
            return  # it would be left to itself, with what it holds
        self.versions[name] += 1
        try:
            if name not in self.ledger.absent:
                board.remove(name)
                self.ledger.removed(name, self.broker.holds())
            if self.strict or self.draw.random() < 0.7:
                board.deploy(self._document(name, f"version {self.versions[name]}"))
        except EdgertError as error:
            self.say(str(error))
        while self.strict and (self.broker.receive() or board.receive(9)):
            pass

    async def _sleeps(self, seconds: float) -> None:
        """What goes on when the disk has room again: it has now, or the gateway is killed before."""
        if self.draw.random() < 0.5:
            raise Died
        assert self.board
        self.board.full = False

    def uplink(self) -> None:
        if self.board:
            try:
                drive(self.board.uplink.turn())
            except StoreError as error:
                self.say(str(error))

    def acknowledge(self) -> None:
        if self.board and self.central.broker.acks and not self.central.broker.away:
            drive(self.board.uplink.acknowledged_untrusted(self.central.broker.acks.popleft()))

    def collect(self) -> None:
        messages = self.central.broker.take(self.draw.randint(1, 6), self.draw.random() < 0.3)
        numbers = range(len(self.central.collectors))
        for number in numbers if self.draw.random() < 0.3 else [self.draw.choice(numbers)]:
            self.central.handle(messages, number, race=len(numbers) > 1 and self.draw.random() < 0.3)

    def collector_dies(self) -> None:
        self.central.restart(self.draw.randrange(len(self.central.collectors)))

    def central_goes(self) -> None:
        broker = self.central.broker
        broker.away = not broker.away
        if self.board:
            if broker.away:
                self.board.uplink.disconnected()
            else:
                self.board.uplink.connected()

    def central_loses(self) -> None:
        self.central.broker.lose()
        if self.board and not self.central.broker.away:
            self.board.uplink.connected()

    def broker_snaps(self) -> None:
        self.broker.snap()

    def broker_dies(self) -> None:
        self.cut()
        self.broker.die()

    def broker_forgets(self) -> None:
        if self.may_forget:
            self.cut()
            self.broker.forget()

    def back_up(self) -> None:
        if self.may_go_back and not self.board:
            cards.back_up(self)

    def breaks_in_haste(self) -> None:
        """All that is under way arrives, and nothing of it is committed; the next message gets lost on its way."""
        if self.board and not self.board.wire.paused:
            if self.draw.random() < 0.3:
                self.broker_forgets()
            self.board.connect()
            while self.broker.receive() or self.board.receive(9):
                pass
            self.publish()
            self.broker_sends()
            if self.draw.random() < 0.7:
                self.crash()
                self.restart()
            else:
                self.cut()
            self.connect()

    # -- the end

    def settle(self) -> None:
        """No more faults: everything is brought to its end."""
        self.say("settles")
        self.most = 0
        self.restart()
        board = self.board
        assert board
        board.full = False
        if isinstance(board, BoardInSlots):
            board.asleep = False
        if self.central.broker.away:
            self.central_goes()
        board.connect()
        self._until_quiet(board)
        wanted = {self.flows[name] for name in self.flows.keys() - self.ledger.absent}
        assert wanted <= self.broker.session.subscriptions.keys(), "the broker does not know what the flows want"
        for name in list(board.flows.runs):
            board.remove(name)
        self._until_quiet(board)
        self.shed.update(board.shed())
        self.fleet.settle()

    def _until_quiet(self, board: Board) -> None:
        for _ in range(ROUNDS):
            while self.broker.send() or board.receive(5) or self.broker.receive():
                pass
            board.work()
            assert board.checkpoint()
            self.clock.advance(10.0)  # of every wait for an answer
            self.uplink()
            while self.central.broker.results:
                self.central.handle(self.central.broker.take(50, disorder=False), 0)
            while self.central.broker.acks:
                self.acknowledge()
            idle = not (self.broker.session.waiting or self.broker.session.flying or self.broker.up or self.broker.down)
            if idle and not board.database.outbox_size.batches:
                return
        raise AssertionError(
            f"it does not come to an end: {self.broker.session}, {board.database.outbox_size}, {board.uplink.status}"
        )


ACTS: Final[list[tuple[Callable[[World], None], float]]] = [
    (World.publish, 5), (World.broker_sends, 6), (World.broker_receives, 5), (World.receive, 6),
    (World.begin_turn, 2), (World.work, 3), (World.time_passes, 2), (World.checkpoint, 5), (World.connect, 3),
    (World.cut, 1.5), (World.fill, 0.5), (World.crash, 0.7), (World.restart, 3), (World.new_version, 0.4),
    (World.begin_anew, 0.3),
    (World.uplink, 4), (World.acknowledge, 4), (World.collect, 5), (World.collector_dies, 0.5),
    (World.central_goes, 0.7), (World.central_loses, 0.4), (World.broker_snaps, 0.4), (World.broker_dies, 0.4),
    (World.broker_forgets, 0.8), (World.back_up, 2),
]  # fmt: skip
AHEAD_ACTS: Final = [(World.send_ahead, 6)]
"""Where a flow is at-least-once."""
EQUAL_ACTS: Final = [
    (World.publish, 5), (World.broker_sends, 8), (World.cut, 2), (World.connect, 6), (World.receive, 3),
    (World.breaks_in_haste, 6),
]  # fmt: skip
"""Where only packet ids tell messages apart."""
RESULTS_ACTS: Final = [(World.results, 8)]
"""Where results land all the time."""
SLOT_ACTS: Final = [(World.slot_dies, 2), (World.slots_sleep, 1)]
FILTER_ACTS: Final = [(World.other_filter, 3)]
ALL_ACTS: Final = [*ACTS, *AHEAD_ACTS, *EQUAL_ACTS, *RESULTS_ACTS, *SLOT_ACTS]


def walk(seed: int, folder: Path) -> World:
    """One, from its beginning to the check at its end."""
    world = World(seed, folder)
    try:
        world.run()
        world.settle()
        check(world)
    finally:
        world.close()
    return world
