"""Agents of boards that cannot all reach each other."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from agent.simulation.described.description import CENTRAL, BoardDescription, Description
from agent.simulation.described.ways import Way, ways
from edgert.control.messages import ControlError
from tests.integration import truth
from tests.lab.lab import Lab
from tests.waiting import wait_until

pytestmark = [
    pytest.mark.root, pytest.mark.integration, pytest.mark.usefixtures("may_make_namespaces"),
]  # fmt: skip
BOARDS = ("g1", "g2", "g3")
ALL = dict.fromkeys(BOARDS, "alive")


def states(lab: Lab, name: str) -> dict[str, str]:
    """The fleet as a board's agent sees it; empty while the agent does not answer."""
    try:
        members = lab.boards[name].ask_agent("fleet.status")["members"]
    except ControlError:
        return {}
    return {member["gateway"]: member["state"] for member in members}


def seen(lab: Lab, expected: dict[str, str]) -> None:
    """Returns when all boards that are alive in it see the fleet so."""
    alive = [name for name, state in expected.items() if state == "alive"]
    began = time.monotonic()
    wait_until(lambda: all(states(lab, name) == expected for name in alive), str(expected), 180.0, poll_s=0.2)
    print(f"{expected} after {time.monotonic() - began:.1f} s")


def test_a_one_way_cut_kills_nobody_and_an_isolated_board_returns(tmp_path: Path) -> None:
    hasty = {"membership": {"probe_interval_s": 0.4, "probe_timeout_s": 0.2}}
    boards = tuple(BoardDescription(name, agent=hasty) for name in BOARDS)
    described = Description(boards, ways([CENTRAL, *BOARDS], {}, Way(delay_s=0.002)))
    with Lab(described, tmp_path).running() as lab:
        seen(lab, ALL)
        lab.cut("g1", "g2", one_way=True)
        since = lab.switch.figures()["g1 g2"]["cut"]
        wait_until(lambda: lab.switch.figures()["g1 g2"]["cut"] > since + 20, "frames that the cut drops", poll_s=0.2)
        assert all("dead" not in states(lab, name).values() for name in BOARDS)
        seen(lab, ALL)  # the third carries word between them
        lab.heal()
        for other in ("g1", "g2", CENTRAL):
            lab.cut("g3", other)
        seen(lab, {**ALL, "g3": "dead"})
        lab.heal()
        seen(lab, ALL)


def test_the_smaller_side_of_a_cut_changes_no_flow_and_stops_what_it_runs_for_the_other(tmp_path: Path) -> None:
    hasty = {"membership": {"probe_interval_s": 0.4, "probe_timeout_s": 0.2}}
    boards = tuple(BoardDescription(name, agent=hasty) for name in BOARDS)
    described = Description(boards, ways([CENTRAL, *BOARDS], {}, Way(delay_s=0.002)))
    flow, other = truth.document(interval_s=0.3), {**truth.document(interval_s=0.3), "name": "other"}

    def deploys(board: str, document: dict[str, Any], **pins: str) -> str:
        """Empty, or the refusal."""
        try:
            lab.boards[board].ask_agent("fleet.deploy", {"document": document, "pins": pins}, timeout_s=60.0)
        except ControlError as error:
            return str(error)
        return ""

    def state(board: str) -> str:
        try:
            return str(lab.boards[board].ask("part.status").get(flow["name"], {}).get("state"))
        except ControlError as error:
            return str(error)

    with Lab(described, tmp_path).running() as lab:
        seen(lab, ALL)
        wait_until(lambda: not deploys("g1", flow, window="g3", central="g2"), "the deployment", poll_s=1.0)
        for place in ("g1", "g2"):
            lab.cut("g3", place)
        seen(lab, {**ALL, "g3": "dead"})
        wait_until(lambda: state("g3") == "stopped", "g3 to stop its guest", 90, poll_s=0.5)
        wait_until(lambda: state("g1") == state("g2") == "running", "the others to run it", poll_s=0.5)
        wait_until(lambda: "g3 reaches 1 of the fleet's 3 boards" in deploys("g3", other), "the refusal", poll_s=1.0)
        wait_until(lambda: not deploys("g1", other), "a deployment from g1", poll_s=1.0)
        lab.heal()
        seen(lab, ALL)
        wait_until(lambda: state("g3") == "running", "g3 to go on", poll_s=0.5)
        wait_until(lambda: not deploys("g3", other, readings="g1"), "a deployment from g3", poll_s=1.0)
        assert "other" not in lab.boards["g3"].ask("part.status")
