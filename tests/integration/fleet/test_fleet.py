"""Boards that find each other run one flow together: real agents, real gateways, loopback."""

from __future__ import annotations

import random
import re
import threading
import time
from typing import Any

import pytest

from edgert.control.messages import ControlError
from edgert.core.toml import to_toml
from tests.integration import truth
from tests.integration.fleet_world import Fleet, counts_of, told, until_done
from tests.integration.rig import FLEET
from tests.integration.worlds import messages_until
from tests.waiting import wait_until

pytestmark = pytest.mark.integration
PLACE = {"window": "g2", "central": "g3"}
SINK = {"central": "g2"}
STAYS = "city-air stays: hybrid finds no better placement"


def test_a_flow_is_deployed_for_the_fleet_moved_and_removed_by_the_command_line(
    fleet: Fleet, capsys: pytest.CaptureFixture[str]
) -> None:
    fleet.start()
    base = truth.packs()
    packs = [pack for n in range(3) for pack in truth.shifted(base, 120 * n)]
    file = fleet.rig.folder / "flow.toml"
    file.write_text(to_toml(truth.document(interval_s=0.3)))
    asked = ["--config", str(fleet.agents["g1"].config)]
    places = [f"--place={operator}={gateway}" for operator, gateway in PLACE.items()]
    said = told(capsys, "fleet", "deploy", str(file), *places, *asked)
    first = _plan_in(said, "flow city-air runs by plan N: g1: readings, valid, by-sensor; g2: window; g3: central\n")
    publishing = fleet.rig.publishing(truth.as_messages(packs), rate=300)
    wait_until(lambda: _one_scale(fleet), "the boards' OS schedulers to hear of each other")
    said = told(capsys, "fleet", "move", "city-air", "window", "g3", "--config", str(fleet.agents["g2"].config))
    moved = "flow city-air runs by plan N: g1: readings, valid; g3: by-sensor, window, central; it stood"
    assert _plan_in(said, moved) > first
    publishing.join()
    fleet.boards.gateways["g1"].settle()
    wait_until(lambda: len(fleet.ask("g2", "fleet.rings", {})["boards"]) == 3, "a prediction of each board")
    said = told(capsys, "fleet", "rings", *asked, holds=lambda said: said.count("\n") == 4)
    assert [line.split()[0] for line in said.splitlines()] == ["board", "g1", "g2", "g3"]
    there = re.compile(r"^window\+central +g3 +gateway ", re.MULTILINE)
    told(capsys, "fleet", "top", "--once", "--every", "0.5", *asked, holds=there.search)
    told(capsys, "fleet", "flows", *asked, holds=lambda said: "running" in said)
    told(capsys, "fleet", "remove", "city-air", *asked)
    for gateway in fleet.boards.gateways.values():
        fleet.rig.drained(gateway)
    assert fleet.rig.counts("city-air") == counts_of(packs)


def test_a_flow_is_deployed_and_removed_without_naming_a_board(
    fleet: Fleet, capsys: pytest.CaptureFixture[str]
) -> None:
    fleet.start()
    file = fleet.rig.folder / "flow.toml"
    file.write_text(to_toml(truth.document(interval_s=0.3)))
    asked = ["--fleet", FLEET, "--socket", str(fleet.agents["g2"].folder / "agent.sock")]
    said = told(capsys, "deploy", str(file), *asked)
    everything = "g2: readings, valid, by-sensor, window, central\n"
    assert _plan_in(said, f"flow city-air runs in fleet {FLEET} by plan N: {everything}")
    assert until_done(lambda: fleet.ask("g3", "fleet.rules", {"flow": "city-air"}))["heuristic"] == "hybrid"
    said = told(capsys, "deploy", "--remove", "city-air", *asked)
    assert said == f"flow city-air is removed from fleet {FLEET}; its results still leave\n"
    assert not fleet.where("g1")


def test_a_heuristic_finds_a_better_placement_of_a_running_flow_and_it_is_made(
    fleet: Fleet, capsys: pytest.CaptureFixture[str]
) -> None:
    fleet.start()
    ended, packs = threading.Event(), list[dict[str, Any]]()
    document = truth.document(interval_s=0.3)
    deployed = until_done(lambda: fleet.ask("g1", "fleet.deploy", {"document": document, "pins": PLACE}))
    publishing = fleet.rig.publishing(messages_until(ended, packs), rate=150)
    fleet.boards.gateways["g1"].wait(lambda s: s["ingest"]["messages"] > 300, "load")
    asked = ["--config", str(fleet.agents["g2"].config)]
    assert STAYS in told(capsys, "fleet", "plan", "city-air", *asked), "all is pinned"
    said = told(capsys, "fleet", "trace", "city-air", *asked)
    assert "flow city-air on g1, g2, g3: 2 of " in said
    assert "pinned to g2" in said
    assert re.search(r"path 1: .* links .*\n  .* \(g1\) .*-> .*\(g2\) .*-> .*\(g3\)\n", said)
    said = told(capsys, "fleet", "rules", "city-air", "--unpin", "window", *asked)
    assert said == "flow city-air is moved only by crowded boards\npinned: central on g3\nlabels: none\n"
    # a search has 0.3 s, in which a busy machine may come to nothing
    said = told(capsys, "fleet", "plan", "city-air", *asked, holds=lambda said: "better: window to g" in said)
    assert "central to" not in said
    until_done(lambda: fleet.ask("g3", "fleet.rules", {"flow": "city-air", "unpin": ["central"]}))
    assert fleet.where("g1")["plan"] == deployed["plan"], "a plan that is shown is not made"
    found = until_done(
        lambda: fleet.ask("g3", "fleet.replace", {"flow": "city-air"}),
        lambda found: set(found["assignment"].values()) == {"g1"},  # the source's board has room for all
    )
    assert found["changed"]
    assert found["plan"] > deployed["plan"]
    assert min(found["now"]["edges"], found["now"]["rows"]) > 0, "rows between boards were counted"
    assert found["then"]["edges"] == 0
    assert STAYS in told(capsys, "fleet", "replace", "city-air", *asked)
    with pytest.raises(ControlError, match="heuristic: expected one of hybrid"):
        until_done(lambda: fleet.ask("g1", "fleet.plan", {"flow": "city-air", "heuristic": "best"}))
    ended.set()
    publishing.join()
    fleet.boards.gateways["g1"].settle()
    until_done(lambda: fleet.ask("g1", "fleet.remove", {"flow": "city-air"}))
    for gateway in fleet.boards.gateways.values():
        fleet.rig.drained(gateway)
    assert fleet.rig.counts("city-air") == counts_of(packs)


def test_rows_of_a_board_whose_agent_ended_go_on_to_the_others(fleet: Fleet) -> None:
    """The others' gateways dropped it as soon as their agents held its agent for dead."""
    fleet.start()
    until_done(lambda: fleet.ask("g1", "fleet.deploy", {"document": truth.document(interval_s=0.3), "pins": PLACE}))
    fleet.agents["g1"].kill()
    for name in ("g2", "g3"):
        wait_until(lambda n=name: fleet.agents[n].states().get("g1") == "dead", f"{name} to see it end")  # type: ignore[misc]
    packs = truth.packs()
    fleet.rig.publishing(truth.as_messages(packs), rate=300).join()
    wait_until(lambda: fleet.rig.counts("city-air"), "results of its sources, while its agent is away")
    fleet.agents["g1"].start()
    wait_until(lambda: fleet.sees_all(fleet.agents["g1"]), "its agent to be back")
    fleet.boards.gateways["g1"].settle()
    until_done(lambda: fleet.ask("g1", "fleet.remove", {"flow": "city-air"}))
    for gateway in fleet.boards.gateways.values():
        fleet.rig.drained(gateway)
    assert fleet.rig.counts("city-air") == counts_of(packs)


@pytest.mark.long
def test_a_flow_is_replaced_by_its_next_version_and_placed_anew_by_itself(fleet: Fleet) -> None:
    for agent in fleet.agents.values():
        with agent.config.open("a") as file:
            file.write("[placement]\nlook_s = 1.0\nsettle_s = 1.0\npause_s = 1.0\nlooks = 2\n")
    fleet.start()
    ended, packs = threading.Event(), list[dict[str, Any]]()
    first = truth.document(interval_s=0.3)
    until_done(lambda: fleet.ask("g1", "fleet.deploy", {"document": first, "pins": PLACE}))
    publishing = fleet.rig.publishing(messages_until(ended, packs), rate=150)
    fleet.boards.gateways["g1"].wait(lambda s: s["ingest"]["messages"] > 300, "load")
    second = {**first, "description": "the next version"}
    pins = {"readings": "g1", "window": "g3", **SINK}
    found = until_done(lambda: fleet.ask("g2", "fleet.deploy", {"document": second, "pins": pins}))
    assert (found["assignment"]["window"], found["assignment"]["central"]) == ("g3", "g2")
    rules = {"flow": "city-air", "unpin": ["central"], "heuristic": "hybrid"}
    until_done(lambda: fleet.ask("g2", "fleet.rules", rules))
    assert fleet.where("g3")["rules"]["heuristic"] == "hybrid"
    plan = found["plan"]
    wait_until(lambda: fleet.where("g1")["plan"] > plan, "a better placement")
    on = fleet.where("g1")["assignment"]
    assert (on["window"], on["central"]) == ("g3", "g3"), "the pin is kept, and the sink has come to it"
    ended.set()
    publishing.join()
    fleet.boards.gateways["g1"].settle()
    print(fleet.where("g1"))
    until_done(lambda: fleet.ask("g1", "fleet.remove", {"flow": "city-air"}))
    for gateway in fleet.boards.gateways.values():
        fleet.rig.drained(gateway)
    assert sum(fleet.rig.counts("city-air").values()) == len(packs)


@pytest.mark.long
def test_a_coordinator_that_dies_in_the_midst_of_a_change_is_followed_by_another(fleet: Fleet) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    draw = random.Random(seed)
    fleet.start()
    base = truth.packs()
    packs = [pack for n in range(6) for pack in truth.shifted(base, 120 * n)]
    document = truth.document(interval_s=0.3)
    deployed = until_done(lambda: fleet.ask("g1", "fleet.deploy", {"document": document, "pins": PLACE}))
    coordinator, plan = deployed["coordinator"], deployed["plan"]
    publishing = fleet.rig.publishing(truth.as_messages(packs), rate=150)
    for _ in range(2):
        to = draw.choice([g for g in fleet.agents if g != fleet.where("g1")["assignment"]["window"]])
        asked = next(name for name in fleet.agents if name != coordinator)
        mover = _Moving(fleet, asked, to)
        mover.start()
        time.sleep(draw.uniform(0.0, 0.3))
        fleet.agents[coordinator].kill()
        mover.join()
        fleet.agents[coordinator].start()
        wait_until(lambda: _runs_again(fleet, asked), "the flow to run by one plan")  # noqa: B023
        plan = fleet.where(asked)["plan"]
        wait_until(lambda: fleet.sees_all(fleet.agents[asked]), "all boards")  # noqa: B023
    print(f"plan {plan}")
    publishing.join()
    fleet.boards.gateways["g1"].settle()
    until_done(lambda: fleet.ask("g1", "fleet.remove", {"flow": "city-air"}))
    for gateway in fleet.boards.gateways.values():
        fleet.rig.drained(gateway)
    assert fleet.rig.counts("city-air") == counts_of(packs)


def _plan_in(said: str, expected: str) -> int:
    """The plan's number, for which `expected` has `N`; it grows with each try."""
    found = re.match(re.escape(expected).replace("N", r"(\d+)"), said)
    assert found, said
    return int(found[1])


def _one_scale(fleet: Fleet) -> bool:
    """The boards of a cut flow are on one scale, and the source's board knows the queue that its rows go to."""
    middle, last = (fleet.ask(name, "sched.status", {})["cooperation"] for name in ("g2", "g3"))
    try:
        first = fleet.ask("g1", "sched.explain", {"operator": "city-air/readings+valid+by-sensor"})["remote"]
    except ControlError:  # its agent has not looked at the gateway since the flow came
        return False
    everyone = all(sum(board["shares"] for board in one["boards"].values()) == 2 for one in (middle, last))
    return everyone and "queue_size" in first.get("city-air/window", {})


def _runs_again(fleet: Fleet, asked: str) -> bool:
    try:
        found = fleet.where(asked)
    except ControlError:
        return False
    states = fleet.ask(asked, "fleet.flows", {})["alive"]
    return len(states) == 3 and bool(found) and set(found["boards"].values()) == {"running"}


class _Moving(threading.Thread):
    """Asks for a move; its coordinator may die meanwhile."""

    def __init__(self, fleet: Fleet, asked: str, to: str) -> None:
        super().__init__(daemon=True)
        self._fleet, self._asked, self._to = fleet, asked, to

    def run(self) -> None:
        try:
            self._fleet.ask(self._asked, "fleet.move", {"flow": "city-air", "moves": {"window": self._to}})
        except ControlError as error:
            print(f"the move was not answered: {error}")
