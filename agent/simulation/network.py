"""Machines of the membership protocol on a simulated network: packets, exchanges over TCP, starved and dead boards.

Time, delays and losses are the subclass's.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from agent.membership.events import Datagram, MemberEvent, StreamPing, Sync
from agent.membership.gossip import PACKET_COST
from agent.membership.members import Address, Peer
from agent.membership.packets import Starts
from agent.membership.protocol import Membership

SOCKET_PACKETS: Final = 200
"""Packets that a socket's buffer keeps for a starved board."""
PORT: Final = 7946
STREAM_COST: Final = 600
"""Bytes that each side of a connection sends beside what it carries: headers of TCP and IP of some seven packets, the
hello or the greeting, and two sealed frames."""
SEGMENT_COST: Final = 52 / 1_448
"""Headers of TCP and IP for each byte that a connection carries."""


@dataclass(slots=True)
class Station:
    """One board on the network."""

    machine: Membership
    address: Address
    running: bool = True
    starved_until: float = -1.0
    wakes_at: float = 0.0
    """When the machine is to be called next."""
    timer_at: float = float("-inf")
    """The earliest call that is on the agenda; it looks at `wakes_at`."""
    waiting: list[Callable[[], None]] = field(default_factory=list)
    """Packets that arrived while the board was starved: its socket keeps them."""
    sent_bytes: int = 0
    starts: dict[str, Starts] = field(default_factory=dict)
    """Sender -> the starts of it of which packets are taken, as in `Sealer`."""
    sealed: int = 0
    """Packets that it has sealed."""

    def takes(self, sender: Peer, counter: int) -> bool:
        """False for a packet of an older start of its sender."""
        starts = self.starts.setdefault(sender.name, Starts(sender.epoch))
        return starts.accept(sender.epoch, counter, self.machine.roster.epoch_of(sender.name))


class MembershipNetwork(ABC):
    """Boards by key: the name, where no second agent has the same one. A board that starts anew gets another
    `Station`."""

    def __init__(self) -> None:
        self.boards: dict[str, Station] = {}
        self._by_address: dict[Address, str] = {}

    # Of the subclass

    @property
    @abstractmethod
    def now(self) -> float:
        """Seconds."""

    @abstractmethod
    def at(self, time: float, action: Callable[[], None]) -> None:
        """Calls `action` at that time."""

    @abstractmethod
    def delay(self, sender: str, receiver: str, size: int) -> float | None:
        """Seconds that a packet of `size` bytes takes now; None where it is lost."""

    @abstractmethod
    def stream_delay(self, sender: str, receiver: str) -> float:
        """Seconds until a connection over TCP is answered: what is lost is sent again."""

    def connections(self, sender: str, receiver: str) -> int:
        """Connections that a request takes: a receiver that has started anew greets the second one."""
        there = self.boards[receiver].machine
        known = self.boards[sender].machine.roster.epoch_of(there.name)
        return 1 if known is None or known == there.epoch else 2

    @abstractmethod
    def is_cut(self, sender: str, receiver: str) -> bool:
        """True if nothing from `sender` arrives at `receiver`."""

    @abstractmethod
    def happened(self, name: str, event: MemberEvent) -> None:
        """An event of a board's machine."""

    # Boards

    def add(self, machine: Membership, key: str = "") -> None:
        """The machine runs from now on, under its name (or `key`) and address."""
        name, address = key or machine.name, machine.roster.own.address
        self.boards[name] = Station(machine, address)
        self._by_address[address] = name
        self._wake(name)

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

    def step(self, name: str) -> None:
        """Carries out what was asked of a board's machine; to be called after anything was."""
        self._carry_out(name)

    # Time

    def _wake(self, name: str) -> None:
        board = self.boards[name]
        board.wakes_at = max(self.now, board.machine.next_wakeup(self.now))
        if board.wakes_at < board.timer_at or board.timer_at < self.now:
            self._set_timer(name, board, board.wakes_at)

    def _set_timer(self, name: str, board: Station, time: float) -> None:
        board.timer_at = time
        self.at(time, lambda: self._tick(name, board, time))

    def _tick(self, name: str, board: Station, time: float) -> None:
        if not board.running or self.boards[name] is not board or board.timer_at != time:
            return
        if self.now < board.starved_until:
            self._set_timer(name, board, board.starved_until)
            return
        if self.now < board.wakes_at:  # something later was to be done after all
            self._set_timer(name, board, board.wakes_at)
            return
        board.timer_at = float("-inf")
        board.machine.tick(self.now)
        self._carry_out(name)

    # Packets and exchanges

    def _carry_out(self, name: str) -> None:
        board = self.boards[name]
        for output in board.machine.take_outputs():
            match output:
                case Datagram(to, payload):
                    board.sent_bytes += len(payload) + PACKET_COST
                    self._send(name, to, payload)
                case Sync(address):
                    self._stream(name, address, self._exchange)
                case StreamPing(address, target, sequence):
                    self._stream(name, address, lambda a, b, t=target, s=sequence: self._answer_stream(a, b, t, s))  # type: ignore[misc]
        for event in board.machine.take_events():
            self.happened(name, event)
        self._wake(name)

    def _send(self, sender: str, to: Peer, payload: bytes) -> None:
        receiver = self._by_address.get(to.address)
        if receiver is None or self.is_cut(sender, receiver):
            return
        delay = self.delay(sender, receiver, len(payload) + PACKET_COST)
        if delay is not None:
            station = self.boards[sender]
            station.sealed += 1
            source, counter = station.machine.roster.own.peer, station.sealed
            self.at(self.now + delay, lambda: self._deliver(receiver, source, counter, to, payload))

    def _deliver(self, receiver: str, source: Peer, counter: int, to: Peer, payload: bytes) -> None:
        """A packet opens only at that start of the board that it was sealed for."""
        board = self.boards[receiver]

        def take() -> None:
            machine = board.machine
            if (to.name, to.epoch) != (machine.name, machine.epoch):
                return
            if board.takes(source, counter):
                machine.receive_untrusted(payload, source, self.now)
            else:
                machine.claims.refusals.tell(source, self.now, board.starts[source.name].newest)
            self._carry_out(receiver)

        self._when_it_runs(receiver, board, take)

    def _when_it_runs(self, name: str, board: Station, action: Callable[[], None]) -> None:
        if not board.running or self.boards[name] is not board:
            return
        if self.now >= board.starved_until:
            action()
        elif len(board.waiting) < SOCKET_PACKETS:
            board.waiting.append(action)

    def _stream(self, sender: str, address: Address, done: Callable[[str, str], None]) -> None:
        receiver = self._by_address.get(address)
        if receiver is None or self.is_cut(sender, receiver) or self.is_cut(receiver, sender):
            return
        board = self.boards[receiver]

        def connect() -> None:
            self._when_it_runs(receiver, board, lambda: done(sender, receiver))

        connections = self.connections(sender, receiver)
        self.boards[sender].sent_bytes += (connections - 1) * STREAM_COST
        self.at(self.now + connections * self.stream_delay(sender, receiver), connect)

    def _exchange(self, sender: str, receiver: str) -> None:
        first, second = self.boards[sender], self.boards[receiver]
        first.sealed += 1
        asking = first.machine.roster.own.peer
        if not second.takes(asking, first.sealed):
            refusal = second.machine.claims.refusals.answer(asking, second.starts[asking.name].newest)

            def take() -> None:
                first.machine.claims.own.told_untrusted(refusal, self.now)
                self._carry_out(sender)

            self._when_it_runs(sender, first, take)
            return
        table = first.machine.table()
        answer = second.machine.answer_table_untrusted(table, self.now)
        first.sent_bytes += stream_bytes(len(table))
        second.sent_bytes += stream_bytes(len(answer))
        self._carry_out(receiver)

        def merge() -> None:
            first.machine.merge_untrusted(answer, self.now)
            self._carry_out(sender)

        self._when_it_runs(sender, first, merge)

    def _answer_stream(self, sender: str, receiver: str, target: str, sequence: int) -> None:
        board, there = self.boards[sender], self.boards[receiver].machine
        board.sealed += 1
        if there.name != target or not self.boards[receiver].takes(board.machine.roster.own.peer, board.sealed):
            return
        epoch = there.epoch
        for end in (board, self.boards[receiver]):
            end.sent_bytes += stream_bytes(0)

        def take() -> None:
            board.machine.stream_acknowledged(target, epoch, sequence, self.now)
            self._carry_out(sender)

        self._when_it_runs(sender, board, take)


def stream_bytes(carried: int) -> int:
    """Bytes on the network of one side of a connection that sends so many."""
    return STREAM_COST + carried + int(carried * SEGMENT_COST)


def address_of(number: int) -> Address:
    """The address of the board with that number."""
    return f"10.0.{number // 250}.{number % 250 + 1}", PORT
