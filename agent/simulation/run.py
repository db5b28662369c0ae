"""One simulation from its beginning to its end, and what came of it."""

from __future__ import annotations

import asyncio
import logging
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Final

from agent.fleet import local_gateway
from agent.placement.rendezvous import coordinator
from agent.simulation.agent import BOARD, check_settings
from agent.simulation.described.description import Description
from agent.simulation.described.events import FleetEvent
from agent.simulation.fleet import VirtualFleet
from agent.simulation.gateway import VirtualGateway
from agent.simulation.loop import VirtualLoop
from agent.simulation.rows import SimulatedRows
from agent.simulation.shape import PlanShapes
from agent.simulation.watch import Line, Outage, Watch
from edgert.core.errors import EdgertError

MEET_S: Final = 60.0
"""Before the flow is deployed: the boards find each other, and have some rounds of their coordinates."""
DEPLOY_TRIES: Final = 5
SETTLED_S: Final = 10.0
"""The score at the start is that of the first placement after so long: a flow that begins has no figures."""
SCORE_S: Final = 10.0
"""Longest wait for the score of a placement."""
PROGRESS_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class SimulationJob:
    """The job of a simulation. `seconds`: from the deployment on; `asked`: the board at which the flow is deployed."""

    description: Description
    shapes: PlanShapes
    rate: float
    seed: int
    seconds: float
    events: Sequence[FleetEvent]
    asked: str
    pins: Mapping[str, str] = field(default_factory=dict)
    heuristic: str = "hybrid"
    """Empty: the flow is not placed anew."""
    gateway: type[VirtualGateway] = VirtualGateway


@dataclass(slots=True)
class FleetOutcome:
    """Result of a simulation."""

    heuristic: str
    seed: int
    seconds: float
    lines: list[Line]
    outages: list[Outage]
    violations: list[str]
    changes: int
    moves: int
    deaths_known_s: list[float]
    false_deaths: int
    gossip_bytes_s: float
    """Per board."""
    requests_s: float
    """Between agents, per board."""
    request_bytes_s: float
    """Bytes per second of requests and their answers over TCP, per board."""
    coordinate_error: float | None
    """Median over the pairs of boards, as a part of the round trip."""
    start: Mapping[str, float]
    """Score of the placement by term, seconds after the deployment; empty where no agent could say it."""
    end: Mapping[str, float]
    rows: Mapping[str, float]

    @property
    def availability(self) -> float:
        """Part of the time in which the flow ran whole."""
        return 1 - sum(outage.seconds for outage in self.outages) / self.seconds

    @property
    def longest(self) -> Outage | None:
        return max(self.outages, key=lambda outage: outage.seconds, default=None)


def simulate(job: SimulationJob, progress: Callable[[float], None] = lambda at_s: None) -> FleetOutcome:
    """Runs the job to its end. `progress` is called with the seconds since the deployment. Raises `EdgertError` where
    the flow cannot be deployed."""
    check_settings(job.description.boards)
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(_run(job, progress))


async def _run(job: SimulationJob, progress: Callable[[float], None]) -> FleetOutcome:
    sources = (name for name, told in job.shapes.operators.items() if told["source"])
    rows = SimulatedRows(job.rate, job.shapes.row_bytes, sources)
    fleet = VirtualFleet(job.description, job.shapes, rows, job.seed, job.gateway)
    await asyncio.sleep(MEET_S)
    with _heard(fleet.watch):
        fleet.began = fleet.now
        await _deploy(fleet, job)
        rows.begin()
        fleet.began, sent, requests, carried = fleet.now, fleet.sent_bytes(), fleet.requests, fleet.request_bytes
        for event in job.events:
            fleet.at(fleet.began + event.at_s, lambda event=event: fleet.apply(event))  # type: ignore[misc]
        start = asyncio.create_task(_score(fleet, job, SETTLED_S))
        ends = fleet.began + job.seconds
        while fleet.now < ends:
            progress(fleet.now - fleet.began)
            await asyncio.sleep(min(PROGRESS_S, ends - fleet.now))
        fleet.watch.end()
        sent, requests = fleet.sent_bytes() - sent, fleet.requests - requests
        carried = fleet.request_bytes - carried
        errors = fleet.coordinate_errors()
        end = await _score(fleet, job)
    watch, boards = fleet.watch, len(job.description.boards)
    await fleet.stop()
    return FleetOutcome(
        job.heuristic, job.seed, job.seconds, watch.lines, watch.outages, watch.violations, watch.changes, watch.moves,
        watch.deaths_known_s, watch.false_deaths, sent / boards / job.seconds, requests / boards / job.seconds,
        carried / boards / job.seconds, statistics.median(errors) if errors else None, await start, end,
        {"came": rows.came, "left": rows.left, "waiting": rows.waiting, "most waiting": rows.most_waiting},
    )  # fmt: skip


async def _deploy(fleet: VirtualFleet, job: SimulationJob) -> None:
    args = {"document": job.shapes.flow.document, "pins": job.pins, "labels": {}, "heuristic": job.heuristic}
    for tried in range(DEPLOY_TRIES):
        agent = fleet.agents[job.asked]
        try:
            await agent.begin(agent.flows.control["fleet.deploy"](args))
        except EdgertError as error:
            if tried == DEPLOY_TRIES - 1:
                raise EdgertError(f"flow {fleet.flow} cannot be deployed on these boards: {error}") from error
            await asyncio.sleep(MEET_S)
        else:
            break
    for name, one in fleet.agents.items():
        fleet.watch.coordinators[name] = coordinator(fleet.flow, one.alive())
    told = ", ".join(dict.fromkeys(fleet.watch.coordinators.values()))
    fleet.watch.say(f"the flow is deployed at {job.asked}; its coordinator is {told}")


async def _score(fleet: VirtualFleet, job: SimulationJob, after_s: float = 0.0) -> Mapping[str, float]:
    """Score of the placement that runs, as its coordinator sees it; empty where it does not say it in time."""
    await asyncio.sleep(after_s)
    chosen = [agent for name, agent in fleet.agents.items() if agent.flows.coordinates(fleet.flow)]
    if not chosen:
        return {}
    asked = chosen[0].begin(chosen[0].flows.control["fleet.plan"]({"flow": fleet.flow, "heuristic": "even"}))
    with suppress(EdgertError, TimeoutError):
        async with asyncio.timeout(SCORE_S):
            await asyncio.wait([asked])
            if not asked.cancelled():
                found: Mapping[str, float] = asked.result()["now"]
                return found
    return {}


class _Words(logging.Handler):
    """Log lines of agents, with the board of each."""

    def __init__(self, watch: Watch) -> None:
        super().__init__(logging.INFO)
        self._watch = watch

    def emit(self, record: logging.LogRecord) -> None:
        if record.name == local_gateway.__name__:
            return  # says at each start that its gateway answers
        text = record.getMessage()
        if record.exc_info and record.exc_info[1] is not None:
            text += f": {record.exc_info[1]!r}"
        self._watch.say(text, BOARD.get())


@contextmanager
def _heard(watch: Watch) -> Iterator[None]:
    logger, words = logging.getLogger("agent"), _Words(watch)
    level, propagate = logger.level, logger.propagate
    logger.addHandler(words)
    logger.setLevel(logging.INFO)
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(words)
        logger.setLevel(level)
        logger.propagate = propagate


def document_of(outcome: FleetOutcome) -> dict[str, Any]:
    """For JSON."""
    longest = outcome.longest
    return {
        "heuristic": outcome.heuristic or "none",
        "seed": outcome.seed,
        "seconds": outcome.seconds,
        "availability": outcome.availability,
        "longest_outage": longest and longest._asdict(),
        "outages": [outage._asdict() for outage in outcome.outages],
        "plan_changes": outcome.changes,
        "moves": outcome.moves,
        "two_owners": outcome.violations,
        "deaths_known_s": outcome.deaths_known_s,
        "false_deaths": outcome.false_deaths,
        "gossip_bytes_per_board_s": outcome.gossip_bytes_s,
        "requests_per_board_s": outcome.requests_s,
        "request_bytes_per_board_s": outcome.request_bytes_s,
        "coordinate_error_median": outcome.coordinate_error,
        "score_at_start": dict(outcome.start),
        "score_at_end": dict(outcome.end),
        "rows": dict(outcome.rows),
        "timeline": [line._asdict() for line in outcome.lines],
    }
