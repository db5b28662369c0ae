"""A flow and boards that several tests simulate."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from string import ascii_letters
from typing import Any, Final

from agent.simulation.described.description import parse
from agent.simulation.described.events import FleetEvent
from agent.simulation.fleet import VirtualFleet
from agent.simulation.gateway import VirtualGateway
from agent.simulation.loop import VirtualLoop
from agent.simulation.rows import SimulatedRows
from agent.simulation.run import SimulationJob
from agent.simulation.shape import PlanShapes
from edgert.core.ids import short
from edgert.flow.document import from_plain
from edgert.operators.registry import with_installed
from edgert.scheduling.profile import Profile

FLOW: Final[dict[str, Any]] = {
    "name": "air",
    "operators": {
        "readings": {"type": "mqtt_source", "topic": "city/{source}/sense", "codec": "senml"},
        "valid": {"type": "filter", "input": "readings", "where": "temperature > 0"},
        "by_source": {"type": "key_by", "input": "valid", "keys": ["source"]},
        "minute": {
            "type": "tumbling_window", "input": "by_source", "size_s": 60.0, "instances": 2,
            "aggregates": {"n": "count()"},
        },
        "central": {"type": "ship", "input": "minute"},
    },
}  # fmt: skip
Story = Callable[[VirtualFleet], Awaitable[None]]
COPIES: Final = ("readings", "valid", "by_source", "minute#1", "minute#2", "central")
CARDS_S: Final = 200.0
COST_S: Final = 1e-3
"""Of a window's row."""


def shapes() -> PlanShapes:
    known, _ = with_installed()
    profiles = {
        name: Profile(COST_S if "minute" in name else 1e-5, 0.1 if "minute" in name else 1.0) for name in COPIES
    }
    return PlanShapes(from_plain(FLOW, known), known, profiles, 200.0)


def boards(*cores: float, **more: Any) -> dict[str, Any]:
    """The description of boards a, b, c, ... with so many cores."""
    names = ascii_letters[: len(cores)]
    return {
        "boards": [{"name": name, "cores": n, "memory_mb": 512} for name, n in zip(names, cores, strict=True)],
        "otherwise": {"delay_ms": 2, "jitter_ms": 1},
        **more,
    }


def job(
    document: dict[str, Any], *, seed: int = 1, seconds: float = 120.0, rate: float = 100.0, heuristic: str = "",
    pins: dict[str, str] | None = None, asked: str = "a", gateway: type[VirtualGateway] = VirtualGateway,
) -> SimulationJob:  # fmt: skip
    """A job whose events are those of the description."""
    print(f"seed {seed}")
    description = parse(document)
    return SimulationJob(
        description, shapes(), rate, seed, seconds, description.events, asked, pins or {}, heuristic, gateway
    )


def tell(story: Story, count: int = 4, seed: int = 1, loss: float = 0.0) -> VirtualFleet:
    """Runs a story with so many boards that know each other."""

    async def whole() -> VirtualFleet:
        asked = job(boards(*[1] * count, otherwise={"delay_ms": 2, "jitter_ms": 1, "loss": loss}), seed=seed)
        fleet = VirtualFleet(asked.description, asked.shapes, SimulatedRows(1.0, 200.0, ["readings"]), seed)
        await asyncio.sleep(20)
        await story(fleet)
        await fleet.stop()
        return fleet

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(whole())


async def ask(fleet: VirtualFleet, board: str, verb: str, /, **args: Any) -> Any:
    agent = fleet.agents[board]
    control = {**agent.flows.control, **agent.presence.control}
    return await agent.begin(control[f"fleet.{verb}"](args))


async def restart_agent(fleet: VirtualFleet, board: str, after_s: float = 1.0) -> None:
    """The agent of a board ends, and begins anew later; its gateway runs on."""
    agent = fleet.agents.pop(board)
    agent.end()
    fleet.kill(board)
    await asyncio.sleep(after_s)
    fleet.start(board, agent.virtual_gateway)


def cut(fleet: VirtualFleet, first: Iterable[str], second: Iterable[str], for_s: float, one_way: bool = False) -> None:
    for a in first:
        for b in second:
            fleet.apply(FleetEvent(0.0, "cut", (a, b), for_s, one_way))


def on(fleet: VirtualFleet) -> dict[str, tuple[int, bool]]:
    """Board -> plan of its part, as people are told it, and whether it stands still."""
    runs = {name: agent.virtual_gateway.runs.get("air") for name, agent in fleet.agents.items()}
    return {name: (short(run.part.plan), run.stopped) for name, run in runs.items() if run is not None}


def members(fleet: VirtualFleet) -> set[frozenset[str]]:
    return {agent.flows.leases.members for agent in fleet.agents.values()}


def new_board(fleet: VirtualFleet, name: str, for_s: float) -> None:
    fleet.apply(FleetEvent(0.0, "card", (name,), for_s))


async def two_sites(fleet: VirtualFleet) -> None:
    """Boards a to c are a fleet, d and e another one with the same key elsewhere."""
    for name in "de":
        new_board(fleet, name, 210.0)
    await asyncio.sleep(200)
    for name in "de":
        await ask(fleet, "a", "forget", board=name)
    cut(fleet, "abc", "de", 10_000.0)
    await asyncio.sleep(11)
    for name in "de":
        fleet.agents[name].membership.seeds = [fleet.agents["d"].membership.roster.own.address]
    await asyncio.sleep(60)
    assert members(fleet) == {frozenset("abc"), frozenset("de")}


def carry(fleet: VirtualFleet, board: str, here: str, there: str) -> None:
    cut(fleet, board, here, 10_000.0)
    fleet.apply(FleetEvent(0.0, "heal", (board, *there), None))
    fleet.agents[board].membership.seeds = [fleet.agents[there[0]].membership.roster.own.address]


async def disturb(
    fleet: VirtualFleet, steps: Iterable[tuple[str, str, str, float, float]], peace_s: float = 400.0
) -> None:
    """Faults and requests (kind, board, board, length, seconds until the next), then peace. One card in 200 s: where
    most boards lose theirs, nobody remembers."""
    asked: list[asyncio.Future[Any]] = []
    card_at = -CARDS_S
    for kind, a, b, lasts_s, then_s in steps:
        now = asyncio.get_running_loop().time()
        if kind == "kill":
            fleet.apply(FleetEvent(0.0, "kill", (a,), lasts_s))
        elif kind == "card":
            if now - card_at >= CARDS_S:
                card_at = now
                fleet.apply(FleetEvent(0.0, "card", (a,), lasts_s))
        elif kind in ("cut", "one-way"):
            if a != b:
                fleet.apply(FleetEvent(0.0, "cut", (a, b), lasts_s, kind == "one-way"))
        elif a in fleet.agents:
            told: dict[str, dict[str, Any]] = {
                "deploy": {"document": FLOW, "pins": {"minute": b}},
                "remove": {"flow": "air"},
                "move": {"flow": "air", "moves": {"minute": b}},
            }
            asked.append(asyncio.ensure_future(ask(fleet, a, kind, **told[kind])))
        await asyncio.sleep(then_s)
    await asyncio.sleep(peace_s)
    for one in asked:
        one.cancel()
    await asyncio.gather(*asked, return_exceptions=True)
