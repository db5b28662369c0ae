"""Virtual boards on a virtual network, with agents and gateways, and what goes wrong with them.

Everything that is drawn comes from the seed, and all time from the loop: one seed gives one run.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from math import inf
from random import Random
from typing import Any, Final

from agent.membership.events import Changed, MemberEvent
from agent.membership.gossip import PACKET_COST
from agent.network.transport import RequestError, UnansweredError
from agent.placement.rendezvous import coordinator
from agent.simulation.agent import VirtualAgent, cores_of
from agent.simulation.described.description import Description
from agent.simulation.described.events import COORDINATOR, FleetEvent
from agent.simulation.gateway import Disk, VirtualGateway
from agent.simulation.loop import LoopClock
from agent.simulation.network import MembershipNetwork, address_of, stream_bytes
from agent.simulation.rows import SimulatedRows, Working
from agent.simulation.shape import PlanShapes
from agent.simulation.watch import PartSeen, Watch
from edgert.core.packing import pack

SYN_S: Final = 1.0
"""First wait until a connection that is not answered is tried again; each wait is twice the last one (Linux)."""
RESEND_S: Final = 0.2
"""First wait until lost data of a connection are sent again; each wait is twice the last one."""
STACK_S: Final = 0.0002
"""Time that the work of two boards adds to a packet's way, seconds."""
SEEDS: Final = 3
"""Boards that all others join by."""
STEP_S: Final = 1.0
"""Step of the rows, seconds."""
REQUEST_BYTES: Final = 1_000
READING: Final = ("part.status", "figures", "status", "part.check")
"""Verbs that change nothing."""


class VirtualFleet(MembershipNetwork):
    """To be used on a `VirtualLoop`."""

    def __init__(
        self, description: Description, shapes: PlanShapes, rows: SimulatedRows, seed: int,
        gateway: type[VirtualGateway] = VirtualGateway,
    ) -> None:  # fmt: skip
        super().__init__()
        self.description, self.shapes, self.rows, self.flow = description, shapes, rows, shapes.flow.name
        self._loop = asyncio.get_running_loop()
        self._gateway = gateway
        self._seed = seed
        self._draw = Random(f"{seed} network").random
        self._described = {board.name: board for board in description.boards}
        self._number = {board.name: n for n, board in enumerate(description.boards)}
        self._ways = description.ways
        self._cuts: Counter[tuple[str, str]] = Counter()
        self._clocks = {board.name: LoopClock(self._loop) for board in description.boards}
        self._disks = {name: Disk() for name in self._described}
        self._epochs: dict[str, int] = {}
        self.agents: dict[str, VirtualAgent] = {}
        """Agents of the boards that live."""
        self._down_until: dict[str, float] = {}
        self._sent_before = 0
        """Bytes of gossip of machines that are gone."""
        self.requests = 0
        """Between agents."""
        self.request_bytes = 0
        """Bytes of requests and their answers, of all boards together."""
        self.began = self._loop.time()
        self.watch = Watch(lambda: self._loop.time() - self.began, self.connected)
        for name in self._described:
            self.start(name)
        self._rows_task = self._loop.create_task(self._run_rows())

    # -- network

    @property
    def now(self) -> float:
        return self._loop.time()

    def at(self, time: float, action: Callable[[], None]) -> None:
        self._loop.call_at(time, action)

    def delay(self, sender: str, receiver: str, size: int) -> float | None:
        way = self._ways[sender, receiver]
        if way.loss and self._draw() < way.loss:
            return None
        jitter = way.jitter_s * self._draw() if way.jitter_s else 0.0
        return STACK_S + way.delay_s + jitter + (size / way.bytes_per_s if way.bytes_per_s else 0.0)

    def stream_delay(self, sender: str, receiver: str) -> float:
        there, back = self._ways[sender, receiver], self._ways[receiver, sender]
        return 2 * STACK_S + there.delay_s + back.delay_s

    def is_cut(self, sender: str, receiver: str) -> bool:
        return self._cuts[sender, receiver] > 0

    def connected(self, a: str, b: str) -> bool:
        """True if two boards hear each other, both ways."""
        return not (self.is_cut(a, b) or self.is_cut(b, a))

    def happened(self, name: str, event: MemberEvent) -> None:
        agent = self.agents[name]
        agent.happened(event)
        if isinstance(event, Changed) and event.what not in ("updated", "suspected", "refuted"):
            if event.what == "died":
                self.watch.holds_for_dead(name, event.name, set(self.agents))
            if alive := agent.alive():  # none where all have left
                self.watch.coordinates(self.flow, name, coordinator(self.flow, alive))

    async def request(self, sender: str, receiver: str, verb: str, args: Mapping[str, Any], timeout_s: float) -> Any:
        """Works as `agent.network.transport.Transport.request`. Raises `RequestError`."""
        member = self.agents[sender].membership.roster.get(receiver)
        if member is None or not member.present:
            state = "unknown" if member is None else member.state.name.lower()
            raise RequestError(f"{receiver}: expected a member that is alive, got one that is {state}")
        self.requests += 1
        try:
            async with asyncio.timeout(timeout_s):
                return await self._converse(sender, receiver, verb, args)
        except TimeoutError:
            raise UnansweredError(f"{receiver}: no answer to {verb} within {timeout_s:g} s") from None

    async def _converse(self, sender: str, receiver: str, verb: str, args: Mapping[str, Any]) -> Any:
        for _ in range(self.connections(sender, receiver)):
            wait_s = SYN_S
            while (round_trip_s := self._round_trip(sender, receiver)) is None:
                await asyncio.sleep(wait_s)
                wait_s *= 2
            await asyncio.sleep(round_trip_s)
        self.request_bytes += stream_bytes(len(pack(args)))
        agent = self.agents.get(receiver)
        await self._carry(sender, receiver)
        if agent is None or self.agents.get(receiver) is not agent:  # it died meanwhile: no answer comes
            await asyncio.get_running_loop().create_future()
        assert agent is not None
        if args.get("verb") in READING:  # is answered at once: no task, which costs most of a run
            answer = await agent.serve(sender, verb, args)
            self.request_bytes += stream_bytes(len(pack(answer)))
            await self._carry(receiver, sender)
            return answer
        done, _ = await asyncio.wait([agent.begin(agent.serve(sender, verb, args))])
        (task,) = done
        if task.cancelled():
            await asyncio.get_running_loop().create_future()
        self.request_bytes += stream_bytes(0 if task.exception() else len(pack(task.result())))
        await self._carry(receiver, sender)
        return task.result()

    def _round_trip(self, sender: str, receiver: str) -> float | None:
        """Returns the round trip of the first packets of a connection; None where one is lost."""
        if receiver not in self.agents or not self.connected(sender, receiver):
            return None
        there, back = self.delay(sender, receiver, PACKET_COST), self.delay(receiver, sender, PACKET_COST)
        return None if there is None or back is None else there + back

    async def _carry(self, sender: str, receiver: str) -> None:
        """Data of a connection: sent again until it arrives."""
        wait_s = RESEND_S
        while (delay_s := self.delay(sender, receiver, REQUEST_BYTES)) is None or self.is_cut(sender, receiver):
            await asyncio.sleep(wait_s)
            wait_s *= 2
        await asyncio.sleep(delay_s)

    # -- boards

    def start(self, name: str, gateway: VirtualGateway | None = None) -> None:
        """The board starts, with what is on its disk; or its agent alone, where its gateway ran on."""
        clock = self._clocks[name]
        epoch = self._epochs[name] = max(self._epochs.get(name, 0) + 1, int(clock.wall()))
        gateway = gateway or self._gateway(name, self._disks[name], self.shapes, clock, self.look)
        random = Random(f"{self._seed} {name} {epoch}")
        agent = VirtualAgent(
            self._described[name], self._number[name], epoch, gateway, clock, random, self.request, self.step
        )
        agent.membership.seeds = [address_of(n) for n in range(min(SEEDS, len(self._number)))]
        self.agents[name] = agent
        self.add(agent.membership)
        agent.start()
        self.watch.started(name)
        self.look()

    def die(self, name: str) -> None:
        """The board loses its power."""
        agent = self.agents.pop(name)
        agent.end()
        agent.virtual_gateway.end()
        self.kill(name)
        self._sent_before += self.boards[name].sent_bytes
        self.boards[name].sent_bytes = 0
        self.watch.died(name)
        self.look()

    def step(self, name: str) -> None:
        if name in self.agents:
            super().step(name)

    def look(self) -> None:
        """Something changed: the watch looks at all parts."""
        parts = {}
        for name, agent in self.agents.items():
            run = agent.virtual_gateway.runs.get(self.flow)
            if run is not None:
                running = not run.stopped
                parts[name] = PartSeen(run.part.plan, running, run.part.assignment)
        self.watch.look(parts, set(self.agents))

    # -- faults

    def apply(self, fault: FleetEvent) -> None:
        """Lets an event of the description happen now."""
        boards = tuple(self._named(name) for name in fault.boards)
        self.watch.say(f"* {FleetEvent(fault.at_s, fault.kind, boards, fault.for_s, fault.one_way, fault.by_s)}")
        first, name = boards[0], boards[0]
        if fault.kind in ("kill", "card"):
            until = inf if fault.for_s is None else self.now + fault.for_s
            self._down_until[name] = max(until, self._down_until.get(name, 0.0))
            if name in self.agents:
                self.die(name)
            if fault.kind == "card":
                self._disks[name] = Disk()
            if fault.for_s is not None:
                self._loop.call_later(fault.for_s, self._restart, name)
        elif fault.kind == "restart":
            self._down_until.pop(name, None)
            self._restart(name)
        elif fault.kind == "clock":
            self._clocks[name].jump(fault.by_s)
        else:
            others = boards[1:] or tuple(other for other in self._described if other != first)
            ways = [(first, other) for other in others]
            if fault.kind == "heal" or not fault.one_way:
                ways += [(b, a) for a, b in ways]
            self._cut(ways, fault.kind == "heal", fault.for_s)

    def _named(self, name: str) -> str:
        if name != COORDINATOR:
            return name
        known = Counter(self.watch.coordinators.values())
        return max(sorted(known), key=lambda chosen: known[chosen])

    def _restart(self, name: str) -> None:
        if name not in self.agents and self.now >= self._down_until.get(name, 0.0) - 1e-6:
            self.watch.say(f"* {name} starts again")
            self.start(name)

    def _cut(self, ways: list[tuple[str, str]], heal: bool, for_s: float | None) -> None:
        for way in ways:
            self._cuts[way] = 0 if heal else self._cuts[way] + 1
        self.look()
        if for_s is not None:
            self._loop.call_later(for_s, self._uncut, ways)

    def _uncut(self, ways: list[tuple[str, str]]) -> None:
        for way in ways:
            self._cuts[way] = max(0, self._cuts[way] - 1)
        a, b = ways[0][0], "all others" if len({b for _, b in ways}) > 2 else ways[0][1]
        self.watch.say(f"* {a} and {b} hear each other again")
        self.look()

    # -- rows

    async def _run_rows(self) -> None:
        while True:
            await asyncio.sleep(STEP_S)
            working: list[Working] = []
            heads: dict[str, str] = {}
            for name, agent in self.agents.items():
                run, board = agent.virtual_gateway.runs.get(self.flow), self._described[name]
                if run is None:
                    continue
                heads.update(run.shape.heads)
                if not run.stopped:
                    cores = cores_of(board)
                    working += [
                        Working(instance, run.counted[instance.name], cores, board.speed)
                        for instance in run.shape.instances
                        if instance.gateway == name
                    ]
            order = {operator: n for n, operator in enumerate(self.shapes.operators)}
            working.sort(key=lambda one: order[one.instance.head])
            for agent in self.agents.values():
                agent.virtual_gateway.counted_at = self.now
            self.rows.step(STEP_S, working, heads, self._bytes_per_s)

    def _bytes_per_s(self, a: str, b: str) -> float:
        if a == b:
            return inf
        return (self._ways[a, b].bytes_per_s or inf) if self.connected(a, b) and a in self.agents else 0.0

    # -- figures

    def sent_bytes(self) -> int:
        """Returns bytes of gossip since the start, all boards together."""
        return self._sent_before + sum(station.sent_bytes for station in self.boards.values())

    def coordinate_errors(self) -> list[float]:
        """Returns for each pair of living boards the error of the estimate, as a part of the true round trip."""
        found = []
        for a, first in self.agents.items():
            for b, second in self.agents.items():
                way, back = self._ways.get((a, b)), self._ways.get((b, a))
                mine, theirs = first.rounds.algorithm.coordinate, second.rounds.algorithm.coordinate
                if a >= b or way is None or back is None or not mine or not theirs:
                    continue
                true_ms = 1e3 * (way.delay_s + back.delay_s + (way.jitter_s + back.jitter_s) / 2 + 2 * STACK_S)
                estimate = first.rounds.algorithm.estimate_ms(mine, theirs)
                if estimate < inf:
                    found.append(abs(estimate - true_ms) / true_ms)
        return found

    async def stop(self) -> None:
        """Ends all tasks."""
        self._rows_task.cancel()
        for agent in self.agents.values():
            agent.end()
        await asyncio.sleep(0)
