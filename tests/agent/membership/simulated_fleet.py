"""A fleet of `Membership` machines on a virtual clock and a simulated network: latency, loss, cuts, starved members."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from random import Random
from typing import Any

from agent.interference.ring import PACKED_BYTES
from agent.membership.events import Changed, MemberEvent
from agent.membership.members import Address, State
from agent.membership.messages import Claim
from agent.membership.parameters import Parameters
from agent.membership.protocol import Membership
from agent.simulation.network import MembershipNetwork, address_of
from edgert.core.packing import pack

LOOK_S, ROUND_S, PEERS, PINGS = 5.0, 10.0, 8, 3
"""As the settings of agents are: of state that changes, and of the rounds of coordinates."""
COORDINATE = (12.5,) * 6
"""As long as that of the default algorithm."""


class SimulatedFleet(MembershipNetwork):
    """`members` boards that know each other, unless `joined` is False: then all but the first have it as seed."""

    def __init__(
        self, members: int, seed: int, parameters: Parameters | None = None, *, loss: float = 0.0, joined: bool = True
    ) -> None:
        print(f"seed {seed}")
        self.random = Random(seed)
        self.parameters = parameters or Parameters()
        self.loss = loss
        super().__init__()
        self._now = 100.0
        self.events: list[tuple[float, str, MemberEvent]] = []
        self.cut: Callable[[str, str], bool] = lambda sender, receiver: False
        self._agenda: list[tuple[float, int, Callable[[], None]]] = []
        self._order = 0
        for number in range(members):
            self.start(f"board-{number}", number, joined)
        if joined:
            self._introduce()

    def start(self, name: str, number: int, joined: bool, epoch: int = 1, key: str = "") -> None:
        """Start a board; again under its name and with a greater epoch is a restart. `key`: in place of the name in
        `boards`, for a second agent of a name."""
        machine = Membership(name, address_of(number), epoch, self.parameters, Random(self.random.random()), self.now)
        machine.coordinate = COORDINATE
        if not joined and number:
            machine.seeds = [address_of(0)]
        self.add(machine, key)

    def _introduce(self) -> None:
        claims = [Claim(n, 1, 0, State.ALIVE, *b.address, n) for n, b in self.boards.items()]
        for board in self.boards.values():
            for claim in claims:
                board.machine.claims.consider(claim, self.now)
            board.machine.take_events()
            for claim in claims:
                board.machine.queue.discard_claims(claim.name)
            board.machine._next_sync = self.now + self.random.random() * self.parameters.sync_interval(len(claims))

    # Time

    @property
    def now(self) -> float:
        return self._now

    def at(self, time: float, action: Callable[[], None]) -> None:
        self._order += 1
        heapq.heappush(self._agenda, (time, self._order, action))

    def run(self, seconds: float) -> None:
        end = self.now + seconds
        while self._agenda and self._agenda[0][0] <= end:
            self._now, _, action = heapq.heappop(self._agenda)
            action()
        self._now = end

    def run_until(self, condition: Callable[[], bool], seconds: float) -> float:
        """Seconds until `condition` held; AssertionError if it does not within `seconds`."""
        began = self.now
        while not condition():
            assert self.now < began + seconds, f"waited {seconds} virtual seconds"
            self.run(0.1)
        return self.now - began

    # Network

    def delay(self, sender: str, receiver: str, size: int) -> float | None:
        return None if self.random.random() < self.loss else self._delay()

    def stream_delay(self, sender: str, receiver: str) -> float:
        return 2 * self._delay()

    def _delay(self) -> float:
        return 0.001 + self.random.expovariate(1 / 0.004)

    def is_cut(self, sender: str, receiver: str) -> bool:
        return self.cut(sender, receiver)

    def happened(self, name: str, event: MemberEvent) -> None:
        self.events.append((self.now, name, event))

    # What agents add

    def live_as_agents_do(self) -> None:
        """From now on all boards publish the sections that an agent publishes, with a load that changes all the time,
        and ping peers for their coordinates."""
        for name in self.boards:
            self.at(self.now + self.random.uniform(0, ROUND_S), lambda n=name: self._measure(n))  # type: ignore[misc]
            self.at(self.now + self.random.uniform(0, LOOK_S), lambda n=name: self._publish(n))  # type: ignore[misc]

    def _publish(self, name: str) -> None:
        board, draw = self.boards[name], self.random
        if not board.running:
            return
        machine = board.machine
        able: dict[str, Any] = {"cores": 4, "speed": 20.0, "memory_mib": 1024, "bandwidth_mbit": 1000.0}
        able |= {"link": list(board.address), "labels": {}}
        peaks = {"room": [2.8, 5e6], "high": [round(draw.random(), 2), 0.0], "takes": True, "drained": False}
        machine.publish("board", pack(able))
        machine.publish("coordinate", pack({"at": list(machine.coordinate), "by": "remembering"}))
        machine.publish("flows", pack({"flows": {"city-air": [1, 1]}, "gateway": True}))
        machine.publish("load", pack({"load": round(draw.random(), 1), "available_mib": 16 * draw.randrange(64)}))
        machine.publish("ring", draw.randbytes(PACKED_BYTES))
        machine.publish("moves", pack(peaks))
        self.step(name)
        self.at(self.now + max(LOOK_S, self.parameters.state_interval(machine.roster.present)),
                lambda: self._publish(name))  # fmt: skip

    def _measure(self, name: str) -> None:
        board = self.boards[name]
        if board.running:
            for peer in self.random.sample(list(self.boards), min(PEERS, len(self.boards))) * PINGS:
                board.machine.measure(peer, self.now)
            self.step(name)
            self.at(self.now + ROUND_S, lambda: self._measure(name))

    # Faults

    def readdress(self, name: str, address: Address) -> None:
        """The board loses its address, and has another one from now on."""
        board = self.boards[name]
        del self._by_address[board.address]
        board.address = address
        self._by_address[address] = name
        board.machine.move(address, self.now)
        self.step(name)

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
