"""A fleet of `Membership` machines on a virtual clock and a simulated network: latency, loss, cuts, starved members."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from agent.membership.events import Changed, Datagram, Event, StreamPing, Sync
from agent.membership.members import Address, State
from agent.membership.messages import Claim
from agent.membership.parameters import Parameters
from agent.membership.protocol import PACKET_COST, Membership


@dataclass(slots=True)
class Board:
    machine: Membership
    address: Address
    running: bool = True
    starved_until: float = -1.0
    wakes_at: float = 0.0
    waiting: list[Callable[[], None]] = field(default_factory=list)
    """What arrived while the board was starved: its socket keeps it."""
    sent_bytes: int = 0


class SimulatedFleet:
    """`members` boards that know each other, unless `joined` is False: then all but the first have it as seed."""

    def __init__(
        self, members: int, seed: int, parameters: Parameters | None = None, *, loss: float = 0.0, joined: bool = True
    ) -> None:
        print(f"seed {seed}")
        self.random = Random(seed)
        self.parameters = parameters or Parameters()
        self.loss = loss
        self.now = 100.0
        self.boards: dict[str, Board] = {}
        self.events: list[tuple[float, str, Event]] = []
        self.cut: Callable[[str, str], bool] = lambda sender, receiver: False
        self._by_address: dict[Address, str] = {}
        self._agenda: list[tuple[float, int, Callable[[], None]]] = []
        self._order = 0
        for number in range(members):
            self.start(f"board-{number}", number, joined)
        if joined:
            self._introduce()

    def start(self, name: str, number: int, joined: bool, epoch: int = 1) -> None:
        """Start a board; again under its name and with a greater epoch is a restart."""
        address = (f"10.0.{number // 250}.{number % 250 + 1}", 7946)
        machine = Membership(name, address, epoch, self.parameters, Random(self.random.random()), self.now)
        if not joined and number:
            machine.seeds = [("10.0.0.1", 7946)]
        self.boards[name] = Board(machine, address)
        self._by_address[address] = name
        self._wake(name)

    def _introduce(self) -> None:
        claims = [Claim(n, 1, 0, State.ALIVE, *b.address, n) for n, b in self.boards.items()]
        for board in self.boards.values():
            for claim in claims:
                board.machine.claims.consider(claim, self.now)
            board.machine.take_events()
            for claim in claims:
                board.machine._queue.discard_claims(claim.name)
            board.machine._next_sync = self.now + self.random.random() * self.parameters.sync_interval(len(claims))

    # Time

    def at(self, time: float, action: Callable[[], None]) -> None:
        self._order += 1
        heapq.heappush(self._agenda, (time, self._order, action))

    def run(self, seconds: float) -> None:
        end = self.now + seconds
        while self._agenda and self._agenda[0][0] <= end:
            self.now, _, action = heapq.heappop(self._agenda)
            action()
        self.now = end

    def run_until(self, condition: Callable[[], bool], seconds: float) -> float:
        """Seconds until `condition` held; AssertionError if it does not within `seconds`."""
        began = self.now
        while not condition():
            assert self.now < began + seconds, f"waited {seconds} virtual seconds"
            self.run(0.1)
        return self.now - began

    def _wake(self, name: str) -> None:
        board = self.boards[name]
        board.wakes_at = max(self.now, board.machine.next_wakeup())
        machine = board.machine
        self.at(board.wakes_at, lambda: self._tick(name, machine))

    def _tick(self, name: str, machine: Membership) -> None:
        board = self.boards[name]
        if not board.running or board.machine is not machine:
            return
        if self.now < board.starved_until:
            self.at(board.starved_until, lambda: self._tick(name, machine))
            return
        if self.now < board.wakes_at:  # a later call replaced this one
            return
        machine.tick(self.now)
        self._carry_out(name)

    # Network

    def _carry_out(self, name: str) -> None:
        board = self.boards[name]
        for output in board.machine.take_outputs():
            match output:
                case Datagram(address, payload):
                    board.sent_bytes += len(payload) + PACKET_COST
                    self._send(name, address, payload)
                case Sync(address):
                    self._stream(name, address, self._exchange)
                case StreamPing(address, _, sequence):
                    self._stream(name, address, lambda a, b, s=sequence: self._answer_stream(a, s))  # type: ignore[misc]
        self.events += [(self.now, name, event) for event in board.machine.take_events()]
        self._wake(name)

    def _delay(self) -> float:
        return 0.001 + self.random.expovariate(1 / 0.004)

    def _send(self, sender: str, address: Address, payload: bytes) -> None:
        receiver = self._by_address.get(address)
        if receiver is None or self.cut(sender, receiver) or self.random.random() < self.loss:
            return
        source = self.boards[sender].address
        self.at(self.now + self._delay(), lambda: self._deliver(receiver, sender, source, payload))

    def _deliver(self, receiver: str, sender: str, source: Address, payload: bytes) -> None:
        board = self.boards[receiver]

        def take() -> None:
            board.machine.receive_untrusted(payload, sender, source, self.now)
            self._carry_out(receiver)

        self._when_it_runs(receiver, board, take)

    def _when_it_runs(self, name: str, board: Board, action: Callable[[], None]) -> None:
        if not board.running or self.boards[name] is not board:
            return
        if self.now >= board.starved_until:
            action()
        elif len(board.waiting) < 200:  # a socket's buffer
            board.waiting.append(action)

    def _stream(self, sender: str, address: Address, done: Callable[[str, str], None]) -> None:
        receiver = self._by_address.get(address)
        if receiver is None or self.cut(sender, receiver) or self.cut(receiver, sender):
            return
        board = self.boards[receiver]

        def connect() -> None:
            self._when_it_runs(receiver, board, lambda: done(sender, receiver))

        self.at(self.now + 2 * self._delay(), connect)

    def _exchange(self, sender: str, receiver: str) -> None:
        first, second = self.boards[sender], self.boards[receiver]
        table = first.machine.table()
        answer = second.machine.answer_table_untrusted(table, self.now)
        first.sent_bytes += len(table)
        second.sent_bytes += len(answer)
        self._carry_out(receiver)

        def merge() -> None:
            first.machine.merge_untrusted(answer, self.now)
            self._carry_out(sender)

        self._when_it_runs(sender, first, merge)

    def _answer_stream(self, sender: str, sequence: int) -> None:
        board = self.boards[sender]

        def take() -> None:
            board.machine.stream_acknowledged(sequence, self.now)
            self._carry_out(sender)

        self._when_it_runs(sender, board, take)

    # Faults

    def kill(self, name: str) -> None:
        self.boards[name].running = False

    def starve(self, name: str, seconds: float) -> None:
        """The process of the board does not run for so long; what arrives waits in its socket."""
        board = self.boards[name]
        board.starved_until = self.now + seconds

        def go_on() -> None:
            waiting, board.waiting = board.waiting, []
            for action in waiting:
                action()

        self.at(board.starved_until, go_on)

    def starve_often(self, names: list[str], shortest: float, longest: float, until: float) -> None:
        """Each of `names` runs for up to a quarter of a second, then is starved for `shortest` to `longest`."""

        def again(name: str) -> None:
            if self.now < until:
                pause = self.random.uniform(shortest, longest)
                self.starve(name, pause)
                self.at(self.now + pause + self.random.uniform(0.01, 0.25), lambda: again(name))

        for name in names:
            self.at(self.now + self.random.uniform(0, longest), lambda n=name: again(n))  # type: ignore[misc]

    # Truth

    def state(self, observer: str, of: str) -> State | None:
        member = self.boards[observer].machine.roster.get(of)
        return member.state if member else None

    def all_agree(self, of: str, *states: State | None, among: list[str] | None = None) -> bool:
        """Every running board (of `among`) holds `of` for one of `states`."""
        observers = [n for n in among or self.boards if self.boards[n].running and n != of]
        return all(self.state(observer, of) in states for observer in observers)

    def deaths(self) -> list[tuple[float, str, str]]:
        """(time, observer, member) of each declaration of a death."""
        return [(t, n, e.name) for t, n, e in self.events if isinstance(e, Changed) and e.what == "died"]
