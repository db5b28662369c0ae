"""A change of plan that its coordinator left is ended by another one: only when all gateways answer, and obey it."""

from __future__ import annotations

import asyncio

from tests.agent.fleet.next_coordinator import Fenced, next_coordinator
from tests.agent.migration.worlds import BOARDS, CHANGE, whole


def prepared(gateways: Fenced, *boards: str) -> None:
    for board in BOARDS:
        gateways.first(board, "part.stop")
    for board in boards:
        gateways.first(board, "part.prepare")


def test_a_gateway_that_does_not_answer_may_have_committed() -> None:
    gateways = Fenced()
    prepared(gateways, *BOARDS)
    gateways.first("c", "part.commit")
    gateways.down = {"c"}
    flows = next_coordinator(gateways)
    asyncio.run(flows.end_change("f"))
    assert (gateways.state["a"], gateways.state["b"]) == ("prepared", "prepared")
    assert not flows._flows.history.kept
    gateways.down = set()
    asyncio.run(flows.end_change("f"))
    assert whole(gateways) == CHANGE.plan
    (told,) = flows._flows.history.kept
    assert (told["plan"], told["by"]) == (CHANGE.plan, "coordinator")
    assert told["reason"] == "f: window to c, out to b (its coordinator had left it)"


def test_a_coordinator_that_is_held_for_dead_can_commit_nothing_while_another_one_aborts() -> None:
    for verb in ("part.abort", "part.rules"):
        gateways = Fenced()
        prepared(gateways, "a", "b")

        def goes_on(gateways: Fenced = gateways) -> None:
            gateways.first("c", "part.prepare")
            gateways.first("c", "part.commit")

        gateways.before[verb] = goes_on
        asyncio.run(next_coordinator(gateways).end_change("f"))
        assert not gateways.mixed
        assert whole(gateways) == (CHANGE.plan if verb == "part.rules" else 1)
