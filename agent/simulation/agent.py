"""An agent of a simulated board: the product's own parts, as `agent.daemon` puts them together, on a virtual network.

Left out are what belongs to one machine (OS scheduling, metrics, keys and their files) and moves by crowded boards,
which never touch a flow that a heuristic places.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import logging
from collections.abc import Awaitable, Callable, Mapping
from random import Random
from typing import Any, Final

from agent.capacity import UNKNOWN_MBIT
from agent.coordinates.registry import make
from agent.coordinates.rounds import RoundParameters, Rounds
from agent.fleet.auto import FleetAuto
from agent.fleet.deploy import FleetDeploy
from agent.fleet.flows import VOTER, FleetFlows
from agent.fleet.history import MoveHistory
from agent.fleet.local_gateway import LocalGateway
from agent.fleet.mend import FleetMend
from agent.fleet.plans import FleetPlans
from agent.fleet.presence import FleetPresence
from agent.fleet.requests import GATEWAY, PASS_ON, FleetRequests
from agent.fleet.rings import REFERENCE_SPEED
from agent.lease.electorate import Electorate
from agent.lease.leases import VERB as LEASE
from agent.lease.leases import AskBoard, Leases
from agent.lease.memory import LeaseMemory
from agent.membership.events import Changed, Measured, MemberEvent
from agent.membership.members import State
from agent.membership.parameters import Parameters
from agent.membership.protocol import Membership
from agent.network.transport import RequestError
from agent.placement.problem.budget import Budget
from agent.placement.replacement import Hysteresis
from agent.simulation.described.description import BoardDescription
from agent.simulation.gateway import VirtualGateway
from agent.simulation.loop import LoopClock
from agent.simulation.network import address_of
from edgert.core.config import parse
from edgert.core.errors import DocumentError, EdgertError, show
from edgert.core.packing import pack
from edgert.core.settings.agent import AgentSettings
from edgert.core.toml import to_toml

log = logging.getLogger(__name__)
BOARD: Final[contextvars.ContextVar[str]] = contextvars.ContextVar("BOARD", default="")
"""The board whose agent runs now: whose log a line is from."""
EVALUATIONS: Final = 2_000
"""Placements that a heuristic may look at, in place of a time: so the same seed gives the same run."""
CORES: Final = 4.0
MEMORY_MB: Final = 1024
"""Memory of a board whose description says nothing."""


def cores_of(board: BoardDescription) -> float:
    """Cores that operators can use."""
    return board.cores or CORES


def settings_of(board: BoardDescription) -> AgentSettings:
    """Raises `DocumentError`."""
    return parse(AgentSettings, to_toml({name: dict(table) for name, table in board.agent.items()}), {},
                 f"agent of board {board.name}")  # fmt: skip


class VirtualAgent:
    """One life of an agent: from its start until the board dies."""

    def __init__(
        self, board: BoardDescription, number: int, epoch: int, gateway: VirtualGateway, clock: LoopClock,
        random: Random, request: Callable[..., Awaitable[Any]], step: Callable[[str], None],
    ) -> None:  # fmt: skip
        """`request`: of another agent, with our name before the arguments of `agent.lease.leases.AskBoard`; `step`: to
        be called after anything was asked of the membership."""
        self.name, self.board, self.virtual_gateway = board.name, board, gateway
        self._clock, self._step = clock, step
        self._settings = settings = settings_of(board)
        timing, chosen, placing = settings.membership, settings.coordinates, settings.placement
        parameters = Parameters(probe_interval_s=timing.probe_interval_s, probe_timeout_s=timing.probe_timeout_s)
        now = clock.monotonic()
        self.membership = Membership(self.name, address_of(number), epoch, parameters, random, now)
        rounds = RoundParameters(period_s=chosen.period_s, near=chosen.near, far=chosen.far)
        self.rounds = Rounds(make(chosen.algorithm, random), rounds, random, now)
        self.gateway = LocalGateway("", self.name, gateway)
        roster = self.membership.roster
        ask: AskBoard = lambda *asked: request(self.name, *asked)  # noqa: E731
        memory = LeaseMemory(self.name, clock, gateway.disk.leases, gateway.disk.store_leases)
        leases = Leases(memory, roster, ask, clock, Random(random.getrandbits(64)))
        electorate = Electorate(leases, roster, clock, Random(random.getrandbits(64)), self._may_begin)
        self.requests = FleetRequests(self.name, roster, ask, clock, Random(random.getrandbits(64)), self._ping)
        self.flows = FleetFlows(self.name, roster, self.gateway, self.requests.request, leases, MoveHistory(clock))
        self.mend = FleetMend(self.flows, FleetDeploy(roster, self.flows))
        self.presence = FleetPresence(roster, self.gateway, self.flows, leases, electorate, clock,
                                      self._ping)  # fmt: skip
        plans = FleetPlans(roster, self.rounds, self.flows, Random(random.getrandbits(64)), _budget)
        hysteresis = Hysteresis(placing.look_s, placing.settle_s, placing.pause_s, placing.looks,
                                least_gain=placing.least_gain)  # fmt: skip
        self.auto = FleetAuto(self.flows, plans, clock, hysteresis)
        self._handlers = {
            GATEWAY: self.flows.serve_gateway,
            PASS_ON: self.requests.serve,
            "fleet.coordinate": self.flows.serve_coordinator,
            LEASE: memory.serve,
        }
        self._load_told = float("-inf")
        self._tasks: set[asyncio.Task[Any]] = set()
        self._context = contextvars.copy_context()
        self._context.run(BOARD.set, self.name)

    # -- life

    def start(self) -> None:
        """Call this on the loop."""
        for work in (self._measure, self._look, self.presence.run, self.mend.run, self.auto.run):
            self.begin(work())

    def begin(self, work: Any) -> asyncio.Task[Any]:
        """Runs a coroutine as a task of this agent, which ends with it."""
        task = asyncio.get_running_loop().create_task(work, context=self._context)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # who waits for the task gets it

    def end(self) -> None:
        """The board dies."""
        for task in list(self._tasks):
            task.cancel()

    async def serve(self, sender: str, verb: str, args: Mapping[str, Any]) -> Any:
        """Carries out a request of another agent; as `agent.network.transport` answers it."""
        try:
            return await self._handlers[verb](sender, args)
        except EdgertError as error:
            raise RequestError(f"{self.name}: {verb}: {show(str(error), 1_000)}") from error
        except Exception as error:
            log.exception("the request %s of %s could not be carried out", show(verb), sender)
            raise RequestError(f"{self.name}: {verb}: an unforeseen fault: {error!r}") from error

    def happened(self, event: MemberEvent) -> None:
        """Takes an event of the membership, as the daemon does."""
        match event:
            case Measured(name, rtt_s, coordinate):
                self.rounds.measured(name, rtt_s, coordinate)
            case Changed(name, _, state) if state in (State.DEAD, State.LEFT):
                self.rounds.forget(name)
            case _:
                pass

    def alive(self) -> list[str]:
        """The members that it holds for alive, itself included."""
        return [member.name for member in self.membership.roster if member.state is State.ALIVE]

    def _may_begin(self) -> bool:
        """True if the agent may begin: the rule of a daemon with seeds."""
        met, seeds = {member.address for member in self.membership.roster if member.present}, self.membership.seeds
        return not seeds or 2 * len(met & set(seeds)) > len(seeds)

    # -- what runs beside, as in the daemon

    async def _measure(self) -> None:
        while True:
            now = self._clock.monotonic()
            for name in self.rounds.due(now, [name for name in self.alive() if name != self.name]):
                self.membership.measure(name, now)
            self._step(self.name)
            self.membership.coordinate = self.rounds.algorithm.coordinate
            await asyncio.sleep(max(self.rounds.next_due - self._clock.monotonic(), 0.05))

    def _ping(self, name: str) -> None:
        self.membership.measure(name, self._clock.monotonic())
        self._step(self.name)

    async def _look(self) -> None:
        while True:
            await self.gateway.look()
            self._publish()
            await self.gateway.pause(self._settings.moves.period_s)

    def _publish(self) -> None:
        now, board, membership = self._clock.monotonic(), self.board, self.membership
        labels = dict(label.partition("=")[::2] for label in self._settings.agent.labels)
        link = [membership.roster.own.address[0], self.gateway.link_port()]
        able = {"cores": cores_of(board), "speed": REFERENCE_SPEED * board.speed,
                "memory_mib": board.memory_mb or MEMORY_MB,
                "bandwidth_mbit": self._settings.agent.bandwidth_mbit or UNKNOWN_MBIT}  # fmt: skip
        self._tell("board", {**able, "link": link, "labels": labels, "drained": False})
        self._tell(VOTER, told := self.presence.told(), again="majority" in told)
        self._tell("flows", {**self.gateway.flows(), "gateway": self.gateway.connected})
        by = self._settings.coordinates.algorithm
        self._tell("coordinate", {"at": list(self.rounds.application.value), "by": by})
        if now - self._load_told >= membership.parameters.state_interval(membership.roster.present):
            self._load_told = now
            self._tell("load", {"load": 0.0, "available_mib": board.memory_mb or MEMORY_MB})
        self._step(self.name)

    def _tell(self, section: str, value: Mapping[str, Any], *, again: bool = False) -> None:
        with contextlib.suppress(ValueError):
            self.membership.publish(section, pack(value), again)


def _budget() -> Budget:
    return Budget(evaluations=EVALUATIONS)


def check_settings(boards: tuple[BoardDescription, ...]) -> None:
    """Raises `EdgertError` that names the board whose agent has settings that are none."""
    for board in boards:
        try:
            settings_of(board)
        except DocumentError as error:
            raise EdgertError(f"boards: {board.name}: agent: {error}") from error
