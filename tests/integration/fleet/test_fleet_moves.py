"""Operators leave a board that is crowded or drained, and no row is lost or doubled: real agents and gateways."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from tests.integration import truth
from tests.integration.fleet_world import Fleet, counts_of, told, until_done
from tests.integration.rig import Rig
from tests.integration.worlds import messages_until
from tests.waiting import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.long]
MOVES = "[moves]\nperiod_s = 0.5\nexternal = false\n"
"""The boards of this test share a machine: each would take the others for load of its own."""
NARROW = f"{MOVES}cpu = 0.0001\n"


@pytest.fixture
def narrow(rig: Rig) -> Iterator[Fleet]:
    """g2 lets operators use so little that any load crowds it."""
    made = Fleet(rig, {"g1": MOVES, "g2": NARROW, "g3": MOVES})
    try:
        yield made
    finally:
        made.close()
        for agent in made.agents.values():
            print(agent.name, agent.log())


def _drained(fleet: Fleet) -> dict[str, Any]:
    return {m["gateway"]: m["board"].get("drained") for m in fleet.agents["g1"].status().get("members", ())}


def _end(fleet: Fleet, packs: list[dict[str, Any]]) -> None:
    fleet.boards.gateways["g1"].settle()
    until_done(lambda: fleet.ask("g1", "fleet.remove", {"flow": "city-air"}))
    for gateway in fleet.boards.gateways.values():
        fleet.rig.drained(gateway)
    assert fleet.rig.counts("city-air") == counts_of(packs)


def test_a_crowded_board_hands_an_instance_to_a_freer_one_by_itself(
    narrow: Fleet, capsys: pytest.CaptureFixture[str]
) -> None:
    narrow.start()
    ended, packs = threading.Event(), list[dict[str, Any]]()
    document = truth.document(interval_s=0.3)
    until_done(lambda: narrow.ask("g1", "fleet.deploy", {"document": document}))
    apart = {"flow": "city-air", "from": "g1", "moves": {"window": "g2", "central": "g3"}}
    # as an agent asks for it: what people place is pinned
    until_done(lambda: narrow.ask("g1", "fleet.relieve", apart))
    publishing = narrow.rig.publishing(messages_until(ended, packs), rate=150)
    wait_until(lambda: narrow.where("g1")["assignment"]["window"] != "g2", "the window to leave g2")
    ended.set()
    publishing.join()
    asked = ["--config", str(narrow.agents["g3"].config)]
    moves = json.loads(told(capsys, "fleet", "moves", "--json", *asked))["moves"]
    moved = [move for move in moves if move["to"] is not None and "moves to" in move["reason"]]
    assert len(moved) == 1, moves
    assert moved[0]["from"] == "g2"
    assert "moves to g" in moved[0]["reason"]
    print(moved[0])
    _end(narrow, packs)


def test_a_drained_board_is_empty_through_a_restart_and_is_filled_again(
    fleet: Fleet, capsys: pytest.CaptureFixture[str]
) -> None:
    fleet.start()
    ended, packs = threading.Event(), list[dict[str, Any]]()
    document, pins = truth.document(interval_s=0.3), {"window": "g2", "central": "g3"}
    until_done(lambda: fleet.ask("g1", "fleet.deploy", {"document": document, "pins": pins}))
    publishing = fleet.rig.publishing(messages_until(ended, packs), rate=150)
    asked = ["--config", str(fleet.agents["g1"].config)]
    assert "g2 takes no operators" in told(capsys, "fleet", "drain", "g2", *asked)
    assert "g2" not in fleet.where("g1")["assignment"].values()
    fleet.agents["g2"].kill()
    fleet.boards.gateways["g2"].kill()
    fleet.boards.gateways["g2"].start_ready()
    fleet.agents["g2"].start()
    wait_until(lambda: fleet.sees_all(fleet.agents["g1"]), "g2 to be back")
    drained = {"g1": False, "g2": True, "g3": False}
    wait_until(lambda: _drained(fleet) == drained, "g2 to tell that it is drained")
    told(capsys, "fleet", "fill", "g2", *asked, holds=lambda said: "flow city-air: window to g2" in said)
    assert fleet.where("g1")["assignment"]["window"] == "g2"
    ended.set()
    publishing.join()
    said = " ".join(told(capsys, "fleet", "moves", *asked).split())
    assert "(drain of g2); its flow stood still for" in said
    assert "(fill of g2); its flow stood still for" in said
    _end(fleet, packs)
