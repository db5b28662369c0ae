"""Boards that find each other run one flow together: real agents, real gateways, loopback."""

from __future__ import annotations

import random
import re
import threading
import time

import pytest

from edgert.cli.main import main
from edgert.control.messages import ControlError
from edgert.core.ids import short
from edgert.core.toml import to_toml
from tests.integration import truth
from tests.integration.fleet_world import Fleet, counts_of
from tests.integration.rig import FLEET
from tests.waiting import wait_until

pytestmark = pytest.mark.integration
PLACE = {"window": "g2", "central": "g3"}
SINK = {"central": "g2"}


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
    assert main(["fleet", "deploy", str(file), *places, *asked]) == 0
    told = capsys.readouterr().out
    assert told == "flow city-air runs by plan 1: g1: readings, valid, by-sensor; g2: window; g3: central\n"
    publishing = fleet.rig.publishing(truth.as_messages(packs), rate=300)
    wait_until(lambda: _one_scale(fleet), "the boards' OS schedulers to hear of each other")
    assert main(["fleet", "move", "city-air", "window", "g3", "--config", str(fleet.agents["g2"].config)]) == 0
    told = capsys.readouterr().out
    assert told.startswith(
        "flow city-air runs by plan 3: g1: readings, valid; g3: by-sensor, window, central; it stood"
    )
    publishing.join()
    fleet.boards.gateways["g1"].wait(lambda s: not s["ingest"]["unacknowledged"], "the acknowledgements")
    wait_until(lambda: len(fleet.ask("g2", "fleet.rings", {})["boards"]) == 3, "a prediction of each board")
    assert main(["fleet", "rings", *asked]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["board", "g1", "g2", "g3"]
    assert main(["fleet", "top", "--once", "--every", "0.5", *asked]) == 0
    told = capsys.readouterr().out
    assert ["window+central", "g3", "gateway"] in [line.split()[:3] for line in told.splitlines()], told
    assert main(["fleet", "flows", *asked]) == 0
    assert "running" in capsys.readouterr().out
    assert main(["fleet", "remove", "city-air", *asked]) == 0
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
    assert main(["deploy", str(file), *asked]) == 0
    told = capsys.readouterr().out
    assert told == f"flow city-air runs in fleet {FLEET} by plan 1: g2: readings, valid, by-sensor, window, central\n"
    assert fleet.ask("g3", "fleet.rules", {"flow": "city-air"})["heuristic"] == "hybrid"
    assert main(["deploy", "--remove", "city-air", *asked]) == 0
    assert capsys.readouterr().out == f"flow city-air is removed from fleet {FLEET}; its results still leave\n"
    assert not fleet.where("g1")


def test_a_heuristic_finds_a_better_placement_of_a_running_flow_and_it_is_made(
    fleet: Fleet, capsys: pytest.CaptureFixture[str]
) -> None:
    fleet.start()
    base = truth.packs()
    packs = [pack for n in range(6) for pack in truth.shifted(base, 120 * n)]
    fleet.ask("g1", "fleet.deploy", {"document": truth.document(interval_s=0.3), "pins": PLACE})
    publishing = fleet.rig.publishing(truth.as_messages(packs), rate=150)
    time.sleep(2.0)
    asked = ["--config", str(fleet.agents["g2"].config)]
    assert main(["fleet", "plan", "city-air", *asked]) == 0
    assert "city-air stays: hybrid finds no better placement" in capsys.readouterr().out, "all is pinned"
    assert main(["fleet", "trace", "city-air", *asked]) == 0
    told = capsys.readouterr().out
    assert "flow city-air on g1, g2, g3: 2 of " in told
    assert "pinned to g2" in told
    assert re.search(r"path 1: .* links .*\n  .* \(g1\) .*-> .*\(g2\) .*-> .*\(g3\)\n", told)
    assert main(["fleet", "rules", "city-air", "--unpin", "window", *asked]) == 0
    told = capsys.readouterr().out
    assert told == "flow city-air is moved only by crowded boards\npinned: central on g3\nlabels: none\n"
    assert main(["fleet", "plan", "city-air", *asked]) == 0
    told = capsys.readouterr().out
    assert "better: window to g" in told, told
    assert "central to" not in told
    fleet.ask("g3", "fleet.rules", {"flow": "city-air", "unpin": ["central"]})
    plan = fleet.where("g1")["plan"]
    assert short(plan) == 1, "a plan that is shown is not made"
    found = fleet.ask("g3", "fleet.replace", {"flow": "city-air"})
    assert found["changed"]
    assert found["plan"] > plan
    assert set(found["assignment"].values()) == {"g1"}, "the source's board has room for all"
    assert min(found["now"]["edges"], found["now"]["rows"]) > 0, "rows between boards were counted"
    assert found["then"]["edges"] == 0
    assert main(["fleet", "replace", "city-air", *asked]) == 0
    assert "city-air stays: hybrid finds no better placement" in capsys.readouterr().out
    with pytest.raises(ControlError, match="heuristic: expected one of hybrid"):
        fleet.ask("g1", "fleet.plan", {"flow": "city-air", "heuristic": "best"})
    publishing.join()
    fleet.boards.gateways["g1"].wait(lambda s: not s["ingest"]["unacknowledged"], "the acknowledgements")
    fleet.ask("g1", "fleet.remove", {"flow": "city-air"})
    for gateway in fleet.boards.gateways.values():
        fleet.rig.drained(gateway)
    assert fleet.rig.counts("city-air") == counts_of(packs)


@pytest.mark.long
def test_a_flow_is_replaced_by_its_next_version_and_placed_anew_by_itself(fleet: Fleet) -> None:
    for agent in fleet.agents.values():
        with agent.config.open("a") as file:
            file.write("[placement]\nlook_s = 1.0\nsettle_s = 1.0\npause_s = 1.0\nlooks = 2\n")
    fleet.start()
    base = truth.packs()
    packs = [pack for n in range(8) for pack in truth.shifted(base, 120 * n)]
    first = truth.document(interval_s=0.3)
    fleet.ask("g1", "fleet.deploy", {"document": first, "pins": PLACE})
    publishing = fleet.rig.publishing(truth.as_messages(packs), rate=150)
    time.sleep(2.0)
    second = {**first, "description": "the next version"}
    found = fleet.ask("g2", "fleet.deploy", {"document": second, "pins": {"readings": "g1", "window": "g3", **SINK}})
    assert (found["assignment"]["window"], found["assignment"]["central"]) == ("g3", "g2")
    fleet.ask("g2", "fleet.rules", {"flow": "city-air", "unpin": ["central"], "heuristic": "hybrid"})
    assert fleet.where("g3")["rules"]["heuristic"] == "hybrid"
    plan = found["plan"]
    wait_until(lambda: fleet.where("g1")["plan"] > plan, "a better placement")
    on = fleet.where("g1")["assignment"]
    assert (on["window"], on["central"]) == ("g3", "g3"), "the pin is kept, and the sink has come to it"
    publishing.join()
    fleet.boards.gateways["g1"].wait(lambda s: not s["ingest"]["unacknowledged"], "the acknowledgements")
    print(fleet.where("g1"))
    fleet.ask("g1", "fleet.remove", {"flow": "city-air"})
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
    deployed = fleet.ask("g1", "fleet.deploy", {"document": document, "pins": {"window": "g2", "central": "g3"}})
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
    fleet.boards.gateways["g1"].wait(lambda s: not s["ingest"]["unacknowledged"], "the acknowledgements")
    fleet.ask("g1", "fleet.remove", {"flow": "city-air"})
    for gateway in fleet.boards.gateways.values():
        fleet.rig.drained(gateway)
    assert fleet.rig.counts("city-air") == counts_of(packs)


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
