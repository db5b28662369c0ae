"""`edgert place` under load: the same results, whatever is killed meanwhile."""

from __future__ import annotations

import json
import os
import random
import signal
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from edgert.cli.main import main
from edgert.cli.place import LONGEST_S
from edgert.control.client import call
from edgert.control.messages import VerbError
from gateway.hosts.slot_deaths import MOST_DEATHS
from tests.integration import truth
from tests.integration.rig import Gateway, Rig
from tests.integration.worlds import COUNTING, counted, messages_until
from tests.waiting import DEADLINE_S, wait_until

pytestmark = pytest.mark.integration

THREE: dict[str, Any] = {"slots": 3, "fusion": "full"}
APART = {"readings": 0, "valid": 1, "window": 2, "central": 0}
OPERATORS = tuple(APART)


def explained(capsys: pytest.CaptureFixture[str], at: list[str]) -> str:
    """What `edgert explain --running` shows."""
    assert main(["explain", "city-air", "--running", *at]) == 0
    return capsys.readouterr().out


def socket_of(gateway: Gateway) -> Path:
    return gateway.data / "control.sock"


def figures(gateway: Gateway, flow: str = "city-air") -> dict[str, Any]:
    """The raw figures of a flow."""
    found: dict[str, Any] = call(socket_of(gateway), "figures", timeout_s=DEADLINE_S)["flows"][flow]
    return found


def slots_of(gateway: Gateway) -> dict[str, int]:
    """The slot of each operator."""
    return {operator: one["slot"] for one in figures(gateway)["instances"].values() for operator in one["operators"]}


def test_operators_move_by_hand_and_by_both_schedulers_under_load(rig: Rig, capsys: pytest.CaptureFixture[str]) -> None:
    gateway, collector = rig.gateway(pool=THREE), rig.collector()
    collector.start()
    gateway.start_ready()
    assert rig.deploy(gateway, truth.document(interval_s=0.3))["accepted"]
    at = ["--socket", str(socket_of(gateway))]
    packs: list[dict[str, Any]] = []
    placed = threading.Event()
    publishing = rig.publishing(messages_until(placed, packs), rate=600.0)
    gateway.wait(lambda s: s["ingest"]["messages"] > 200, "input")
    assert len(set(slots_of(gateway).values())) == 1, "fused to one instance"
    assert main(["place", "city-air", "--by", "even", "--json", *at]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["plan"], {name: answer["assignment"][name] for name in APART}) == (1, APART)
    assert main(["place", "city-air", "window=0", "central=1", *at]) == 0
    assert "flow city-air runs by plan 2" in capsys.readouterr().out
    found = slots_of(gateway)
    assert {name: found[name] for name in APART} == {**APART, "window": 0, "central": 1}
    wait_until(lambda: "g1/0 → g1/1" in explained(capsys, at), "rows on the edges")
    assert "plan 2, exactly-once, 4 instances on gateway g1" in explained(capsys, at)
    assert main(["place", "city-air", "--by", "locality", *at]) == 0
    assert len(set(slots_of(gateway).values())) == 1
    plan = figures(gateway)["plan"]
    assert main(["place", "city-air", "--by", "locality", *at]) == 0, "where they are already"
    assert figures(gateway)["plan"] == plan
    placed.set()
    publishing.join()
    rig.finish(gateway, "city-air", len(packs))
    assert rig.counts("city-air") == counted(packs)
    assert gateway.now()["drops"] == []


@pytest.mark.parametrize(
    ("pool", "arguments", "why"),
    [
        (THREE, ["other", "window=1"], "expected a running flow, one of counting, got 'other'"),
        (
            THREE,
            ["counting", "x=1"],
            "expected an operator of flow counting, one of central, readings, seconds, got 'x'",
        ),
        (THREE, ["counting", "seconds#x=1"], "one of central, readings, seconds, got 'seconds#x'"),
        (THREE, ["counting", "seconds=1", "seconds=2"], "expected each operator once, got seconds=1, seconds=2"),
        (THREE, ["counting", "seconds=3"], "expected a slot from 0 to 2 for seconds, got 3"),
        (THREE, ["counting", "by_source=1"], "operator by_source (key_by) only names keys"),
        ({}, ["counting", "seconds=0"], "this gateway has no slots between which operators could move"),
        ({}, ["counting", "--by", "even"], "this gateway has no slots between which operators could move"),
    ],
)
def test_what_cannot_be_placed_is_refused_with_the_reason(
    rig: Rig, pool: dict[str, Any], arguments: list[str], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    gateway = rig.gateway(pool=pool)
    gateway.start_ready()
    assert rig.deploy(gateway, COUNTING)["accepted"]
    assert main(["place", *arguments, "--socket", str(socket_of(gateway))]) == 1
    assert why in capsys.readouterr().err
    assert figures(gateway, "counting")["plan"] == 0


def test_kill_9_of_gateway_and_slots_at_any_moment_of_a_place_changes_nothing(rig: Rig) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    draw = random.Random(seed)
    packs: list[dict[str, Any]] = []
    gateway, collector = rig.gateway(pool=THREE), rig.collector()
    collector.start()
    gateway.start_ready()
    assert rig.deploy(gateway, truth.document(interval_s=0.3))["accepted"]
    ended = threading.Event()
    publishing = rig.publishing(messages_until(ended, packs), rate=500.0)
    placed, killed = list[bool](), 0
    while len(placed) < 15 or not (any(placed) or len(placed) == 50):  # by chance many are refused
        kills = killed < MOST_DEATHS - 1 and draw.random() < 0.6  # more would stop the flow
        placed.append(place_somehow(gateway, draw, kills))
        killed += kills
        if draw.random() < 0.3:
            gateway.kill()
            gateway.start_ready()
            killed = 0
    ended.set()
    publishing.join()
    print(f"{sum(placed)} of {len(placed)} placed")
    assert any(placed)
    rig.finish(gateway, "city-air", 0)
    assert rig.counts("city-air") == counted(packs)
    # what was committed right before a kill comes again where its PUBACKs did not reach the broker
    assert {drop["reason"] for drop in gateway.now()["drops"]} <= {"redelivery, ambiguous"}


def place_somehow(gateway: Gateway, draw: random.Random, kills: bool) -> bool:
    """By hand or by a scheduler; with `kills` a slot dies in its midst. False where it was refused."""
    how: dict[str, Any] = draw.choice((
        {"by": "even"}, {"by": "locality"}, {"moves": APART},
        {"moves": {draw.choice(OPERATORS): draw.randrange(3)}},
    ))  # fmt: skip
    running = [slot["pid"] for slot in gateway.now()["slots"] if slot["running"]]
    kill = threading.Timer(draw.uniform(0.0, 0.2), _kill, (draw.choice(running),)) if kills and running else None
    if kill is not None:
        kill.start()
    try:
        call(socket_of(gateway), "place", {"flow": "city-air", **how}, LONGEST_S)
        return True
    except VerbError:
        return False
    finally:
        if kill is not None:
            kill.join()


def _kill(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
