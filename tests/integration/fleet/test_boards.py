"""One flow over three gateways: the same results as on one, whatever is killed."""

from __future__ import annotations

import random
import threading
import time
from typing import Any

import pytest

from edgert.control.messages import ControlError
from tests.integration import truth
from tests.integration.boards import Boards, CoordinatorDied
from tests.integration.rig import Rig
from tests.integration.worlds import messages_until
from tests.waiting import wait_until

pytestmark = pytest.mark.integration

APART = {"readings": "g1", "valid": "g1", "by-sensor": "g2", "window": "g2", "central": "g3"}
ORDER = ("g1", "g2", "g3")


@pytest.mark.parametrize("slots", [(0, 0, 0), (0, 2, 0), (2, 2, 2)], ids=str)
def test_a_flow_over_three_gateways_gives_what_it_gives_on_one(rig: Rig, slots: tuple[int, ...]) -> None:
    packs = truth.packs()
    boards, collector = Boards(rig, 3, slots), rig.collector()
    collector.start()
    boards.start()
    boards.deploy(truth.document(interval_s=0.3), APART)
    sent = rig.publish(truth.as_messages(packs))
    boards.end(rig, "city-air", sent, ORDER)
    truth_of = {key: row["n"] for key, row in truth.expected(packs, 10.0).items()}
    assert rig.counts("city-air") == truth_of
    for gateway in boards.gateways.values():
        status = gateway.now()
        assert status["drops"] == []
        assert status["links"]["drops"] == []
        assert gateway.terminate() == 0
    assert collector.terminate() == 0


@pytest.mark.parametrize("slots", [(0, 0, 0), (0, 2, 0)], ids=str)
def test_kill_9_of_any_gateway_in_mid_stream_changes_nothing_in_the_results(rig: Rig, slots: tuple[int, ...]) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    draw = random.Random(seed)
    base = truth.packs()
    packs = [pack for n in range(4) for pack in truth.shifted(base, 120 * n)]
    boards, collector = Boards(rig, 3, slots), rig.collector()
    collector.start()
    boards.start()
    boards.deploy(truth.document(interval_s=0.3), APART)
    publishing = rig.publishing(truth.as_messages(packs), rate=400)
    while publishing.is_alive():
        time.sleep(draw.uniform(0.2, 1.0))
        name = draw.choice(list(boards.gateways))
        boards.gateways[name].kill()
        boards.restart(name)
    publishing.join()
    boards.gateways["g1"].settle()
    boards.end(rig, "city-air", 0, ORDER)
    assert rig.counts("city-air") == {key: row["n"] for key, row in truth.expected(packs, 10.0).items()}


PLANS = [
    APART,
    {**APART, "by-sensor": "g3", "window": "g3"},
    {**APART, "by-sensor": "g1", "window": "g1"},
    {"readings": "g1", "valid": "g2", "by-sensor": "g3", "window": "g3", "central": "g2"},
    dict.fromkeys(APART, "g1"),
]
"""The last shares no board but the source's with the one before, and comes back to the first."""


@pytest.mark.parametrize("slots", [pytest.param((0, 0, 0), marks=pytest.mark.long), (2, 0, 2)], ids=str)
def test_a_window_moves_between_gateways_under_load_with_all_that_it_holds(rig: Rig, slots: tuple[int, ...]) -> None:
    ended, packs = threading.Event(), list[dict[str, Any]]()
    boards, collector = Boards(rig, 3, slots), rig.collector()
    collector.start()
    boards.start()
    document = truth.document(interval_s=0.3)
    boards.deploy(document, APART)
    publishing = rig.publishing(messages_until(ended, packs), rate=300)
    at, pauses = APART, []
    for plan in range(2, 2 + 2 * len(PLANS)):
        came = boards.gateways["g1"].now()["ingest"]["messages"]
        boards.gateways["g1"].wait(lambda s: s["ingest"]["messages"] > came + 200, "load")  # noqa: B023
        on = PLANS[plan % len(PLANS)]
        pauses.append(boards.move(document, at, on, plan))
        at = on
    ended.set()
    publishing.join()
    print(f"{len(pauses)} moves, pauses {[round(1e3 * pause) for pause in pauses]} ms")
    boards.move(document, at, APART, plan + 1)
    boards.end(rig, "city-air", len(packs), ORDER)
    assert rig.counts("city-air") == {key: row["n"] for key, row in truth.expected(packs, 10.0).items()}
    for gateway in boards.gateways.values():
        status = gateway.now()
        assert (status["drops"], status["links"]["drops"], status["links"]["gaps"]) == ([], [], {})


def test_between_two_commits_nothing_goes_the_old_way(rig: Rig) -> None:
    """A batch that waits for another board is exported for the next plan. Its board is told to commit a moment after
    the other one, which takes batches again: it must not get it once more."""
    ended, packs = threading.Event(), list[dict[str, Any]]()
    boards, collector = Boards(rig, 2), rig.collector()
    collector.start()
    boards.start()
    document = truth.document(interval_s=0.3)
    on = {**dict.fromkeys(APART, "g1"), "readings": "g2", "valid": "g2"}
    boards.deploy(document, on)
    publishing = rig.publishing(messages_until(ended, packs), rate=300)
    steps = iter(("stop g1", "stop g2", "export g1", "export g2", "prepare g1", "prepare g2", "commit g1", "commit g2"))

    def step() -> None:
        match next(steps):
            case "stop g2":  # g1 takes nothing any more
                wait_until(lambda: boards.waiting("g2"), "a batch that waits for g1")
            case "commit g2":
                time.sleep(1.5)  # as a board that is slow, or that was killed and starts

    boards.move(document, on, {**on, "central": "g2"}, 2, step)
    ended.set()
    publishing.join()
    boards.gateways["g2"].settle()
    boards.move(document, {**on, "central": "g2"}, on, 3)
    boards.end(rig, "city-air", len(packs), ("g2", "g1"))
    assert rig.counts("city-air") == {key: row["n"] for key, row in truth.expected(packs, 10.0).items()}


@pytest.mark.parametrize("slots", [pytest.param((0, 0, 0), marks=pytest.mark.long), (0, 2, 0)], ids=str)
def test_a_change_of_plan_that_is_cut_short_anywhere_is_finished_or_undone(rig: Rig, slots: tuple[int, ...]) -> None:
    """The coordinator dies between two requests, or a gateway dies in the midst of one."""
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    draw = random.Random(seed)
    base = truth.packs()
    packs = [pack for n in range(5) for pack in truth.shifted(base, 120 * n)]
    boards, collector = Boards(rig, 3, slots), rig.collector()
    collector.start()
    boards.start()
    document = truth.document(interval_s=0.3)
    boards.deploy(document, APART)
    publishing = rig.publishing(truth.as_messages(packs), rate=150)
    plan, at, made = 1, APART, list[bool]()
    while publishing.is_alive() or not (any(made) or len(made) == 50):  # now and then nothing is made by chance
        plan += 1
        on = PLANS[draw.randrange(len(PLANS))]
        everywhere = {*at.values(), *on.values()}
        steps = iter(range(100))
        ends, killed = draw.randrange(12), draw.choice([None, *boards.gateways])

        def step() -> None:
            if next(steps) == ends:  # noqa: B023
                if killed is None:  # noqa: B023
                    raise CoordinatorDied
                boards.gateways[killed].kill()  # noqa: B023

        try:
            boards.move(document, at, on, plan, step)
            done = True
        except (CoordinatorDied, ControlError):
            if killed and not boards.gateways[killed].running:
                boards.restart(killed)
            done = boards.finish("city-air", everywhere, plan, plan)
        if killed and not boards.gateways[killed].running:
            boards.restart(killed)
        made.append(done)
        at = on if done else at
    publishing.join()
    print(f"{len(made)} changes of plan, {sum(made)} made")
    assert any(made)
    boards.gateways["g1"].settle()
    boards.move(document, at, APART, plan + 1)
    boards.end(rig, "city-air", 0, ORDER)
    assert rig.counts("city-air") == {key: row["n"] for key, row in truth.expected(packs, 10.0).items()}
