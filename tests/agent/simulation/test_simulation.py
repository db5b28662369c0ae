"""Fleets on a virtual clock, run by the product's agents; the seed of each is printed."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from agent.simulation.described.events import FleetEvent
from agent.simulation.fleet import VirtualFleet
from agent.simulation.gateway import BoardPart, VirtualGateway
from agent.simulation.run import FleetOutcome, document_of, simulate
from edgert.core.ids import short
from tests.agent.simulation.worlds import boards, job

FAULTS: list[dict[str, Any]] = [
    {"at_s": 10, "kill": "b", "for_s": 20},
    {"at_s": 40, "cut": ["a", "c"], "for_s": 10},
    {"at_s": 60, "clock": "b", "by_s": -3600},
]


def texts(outcome: FleetOutcome) -> list[str]:
    found = [f"{line.board}: {line.text}" if line.board else line.text for line in outcome.lines]
    print(*(f"{line.at_s:8.2f}  {text}" for line, text in zip(outcome.lines, found, strict=True)), sep="\n")
    return found


def test_one_seed_gives_one_run_and_another_seed_another_one() -> None:
    document = boards(1, 1, 1, events=FAULTS)
    first, again, other = (document_of(simulate(job(document, seed=seed))) for seed in (7, 7, 8))
    assert first == again
    assert first["gossip_bytes_per_board_s"] != other["gossip_bytes_per_board_s"]


def test_the_coordinators_death_hands_over_and_the_flow_runs_on() -> None:
    document = boards(1, 1, 1, 1, events=[{"at_s": 10, "kill": "@coordinator", "for_s": 40}])
    outcome = simulate(job(document, seed=3, seconds=90, asked="b"))
    said = texts(outcome)
    dead = next(text.split()[1] for text in said if "loses its power" in text)
    assert dead != "b", "else the flow would not run"
    new = [text for text in said if text.startswith("all members take")]
    assert [f"take {dead} for" in text for text in new] == [False, True], "another one, until it is back"
    assert outcome.availability == 1.0
    assert 5 < outcome.deaths_known_s[0] < 15


def test_a_board_that_dies_takes_its_operators_along_until_it_is_back() -> None:
    document = boards(1, 1, events=[{"at_s": 20, "kill": "b", "for_s": 30}])
    outcome = simulate(job(document, pins={"central": "b"}, rate=50))
    outage, wait = outcome.outages
    assert (outage.state, outage.why) == ("lacks a board", "b is down")
    assert outage.seconds == pytest.approx(30, abs=0.1)
    assert wait.seconds < 5, "until its agent has heard from the fleet that the part is not given up"
    assert 0.70 < outcome.availability < 0.76
    assert outcome.rows["most waiting"] == pytest.approx(30 * 50 / 10, rel=0.2)
    assert outcome.rows["waiting"] < 20, "what waited left when the board was back"


def test_a_one_way_cut_interrupts_a_flow_and_kills_nobody() -> None:
    document = boards(1, 1, 1, 1, events=[{"at_s": 20, "cut": ["a", "b"], "one_way": True, "for_s": 60}])
    outcome = simulate(job(document, pins={"central": "b"}))
    (outage,) = outcome.outages
    assert (outage.state, outage.why) == ("is cut", "a and b do not hear each other")
    assert outage.seconds == pytest.approx(60, abs=0.1)
    assert (outcome.false_deaths, outcome.deaths_known_s) == (0, [])
    assert outcome.requests_s < 1.5, "agents that coordinate nothing seldom ask"


def test_requests_of_agents_cost_less_than_gossip() -> None:
    """A coordinator asks the boards that tell of its flow, and all boards seldom."""
    outcome = simulate(job(boards(*[1] * 8), rate=20, pins={"central": "b"}))
    print(f"{outcome.gossip_bytes_s:.0f} bytes/s of gossip, {outcome.request_bytes_s:.0f} of requests")
    assert 0 < outcome.request_bytes_s < 700
    assert outcome.gossip_bytes_s < 2_000


@pytest.mark.parametrize(("mbit", "taker"), [(0.0, "b"), (0.1, "c")])
def test_operators_go_to_no_board_whose_network_cannot_carry_their_rows(mbit: float, taker: str) -> None:
    """400 rows/s of 200 bytes are 0.64 Mbit/s. The nearer board takes them only if it can; 0: it tells 100 Mbit/s."""
    links = [{"between": ["a", "b"], "delay_ms": 1}, {"between": ["a", "c"], "delay_ms": 20}]
    document = boards(0.3, 2, 2, links=links)
    document["boards"][1]["agent"] = {"agent": {"bandwidth_mbit": mbit}}
    said = texts(simulate(job(document, rate=400, heuristic="hybrid", seconds=90)))
    moves = next(text for text in said if "is placed anew: " in text).partition("(")[0]
    assert moves.count(" to ") == moves.count(f" to {taker}") > 0


def test_an_overloaded_board_gives_operators_to_others_by_a_heuristic() -> None:
    outcome = simulate(job(boards(0.3, 2, 2), rate=400, heuristic="hybrid", seconds=150))
    said = texts(outcome)
    assert any(text.startswith("plan 2: ") and "from a to" in text for text in said)
    assert any("is placed anew: " in text for text in said), "the agent says why"
    assert outcome.changes >= 1
    assert outcome.moves >= 1
    assert outcome.start["violation"] > 0.04 > outcome.end["violation"], "the board had been full"
    assert 0.99 < outcome.availability < 1, "a change of plan takes some time"
    assert outcome.violations == []


class Forgetful(VirtualGateway):
    """Does not write prepared plans to its disk: after a restart it runs by the old plan again."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.disk.prepared.clear()
        for run in self.runs.values():
            run.stopped = False


class Correct(VirtualGateway):
    """As it is."""


@pytest.mark.parametrize("gateway", [Correct, Forgetful])
def test_two_owners_are_noticed(gateway: type[VirtualGateway], monkeypatch: pytest.MonkeyPatch) -> None:
    """The board that gives operators dies when it has prepared the change, and restarts; the others have committed
    meanwhile. A gateway that forgot what it had prepared runs what others run now."""
    prepared = gateway.write_prepared
    fleets: list[VirtualFleet] = []
    init = VirtualFleet.__init__

    def remember(fleet: VirtualFleet, *args: Any) -> None:
        fleets.append(fleet)
        init(fleet, *args)

    def write(self: VirtualGateway, flow: str, part: BoardPart) -> None:
        prepared(self, flow, part)
        if self.name == "b" and short(part.plan) == 2:
            kill = FleetEvent(0.0, "kill", ("b",), 3.0)
            asyncio.get_running_loop().call_later(0.015, lambda: fleets[0].apply(kill))

    monkeypatch.setattr(VirtualFleet, "__init__", remember)
    monkeypatch.setattr(gateway, "write_prepared", write)
    document = boards(2, 0.3, 2)
    outcome = simulate(job(document, rate=400, heuristic="hybrid", asked="b", gateway=gateway))
    said = texts(outcome)
    assert any("b loses its power for 3.0 s" in text for text in said)
    assert bool(outcome.violations) == (gateway is Forgetful)
    assert all(text.startswith("TWO OWNERS: ") for text in outcome.violations)
