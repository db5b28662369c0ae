"""A change of plan over gateways that refuse, vanish and come back: it is made everywhere or nowhere."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.migration.plan_change import (
    Change,
    PlanChangeError,
    UnfinishedError,
    change_plan,
)
from edgert.core.errors import EdgertError
from tests.agent.migration.worlds import BEFORE, BOARDS, CHANGE, Gateways, run_virtual, whole

LEAVES = Change({"name": "f"}, BEFORE, {"in": "a", "window": "c", "out": "c"}, 7)
"""`b` has no part of the flow any more."""
AT_B = {"in": "b", "window": "a", "out": "c"}
LEAVES_FIRST = Change({"name": "f"}, AT_B, {**AT_B, "window": "b"}, 7)
"""`a`, the first by name, has none."""
COMES = Change({"name": "f"}, LEAVES.after, BEFORE, 7)
"""`b` had none."""
CHANGES = st.sampled_from([CHANGE, LEAVES, LEAVES_FIRST, COMES])


FAULTS = st.sampled_from(["lost", "unanswered", "forgets", "merges"])


@given(st.dictionaries(st.integers(1, 40), FAULTS, max_size=20), CHANGES)
def test_the_flow_ends_up_whole_by_one_plan_whatever_is_lost(faults: dict[int, str], change: Change) -> None:
    gateways = Gateways(faults, change)
    made: bool | None
    try:
        run_virtual(change_plan(change, gateways.ask))
        made = True
    except PlanChangeError:
        made = False
    except UnfinishedError:
        made = None
    gateways.end()
    plan = whole(gateways)
    assert made is None or plan == (change.plan if made else 1)


@given(st.integers(0, 25), CHANGES, st.permutations(BOARDS))
def test_a_coordinator_that_dies_after_any_request_leaves_something_that_the_next_one_can_end(
    ends: int, change: Change, order: list[str]
) -> None:
    """`order`: in which requests to all gateways at a time arrive."""
    gateways = Gateways({}, change)

    class Died(BaseException):
        pass

    async def ask(gateway: str, verb: str, args: Mapping[str, Any]) -> Any:
        for _ in range(order.index(gateway)):
            await asyncio.sleep(0)
        if gateways.asked >= ends:
            raise Died
        return await gateways.ask(gateway, verb, args)

    try:
        run_virtual(change_plan(change, ask))
    except Died:
        pass
    gateways.end()
    whole(gateways)


def test_a_gateway_that_cannot_prepare_leaves_the_flow_as_it_was_and_is_named() -> None:
    gateways = Gateways({}, CHANGE)

    async def ask(gateway: str, verb: str, args: Mapping[str, Any]) -> Any:
        if (gateway, verb) == ("b", "part.prepare"):
            raise EdgertError("b: no room on its disk")
        return await gateways.ask(gateway, verb, args)

    with pytest.raises(PlanChangeError, match="flow f stays where it is: b: no room on its disk"):
        run_virtual(change_plan(CHANGE, ask))
    assert whole(gateways) == 1


def test_only_what_changed_since_travels_while_the_flow_stands_still() -> None:
    made = run_virtual(change_plan(CHANGE, Gateways({}, CHANGE).ask))
    assert (made.ahead_bytes, made.paused_bytes) == (2 * len(b"all"), 2 * len(b"changes"))
    assert made.plain() == {"pause_s": 0.1, "rows_delayed": 0, "ahead_bytes": 6, "paused_bytes": 14}


@pytest.mark.parametrize("at", range(1, 6))
def test_where_nothing_can_be_sent_ahead_the_whole_state_travels_then(at: int) -> None:
    """The first five requests are two copies, and what the three boards are sent ahead."""
    gateways = Gateways({at: "lost"}, CHANGE)
    made = run_virtual(change_plan(CHANGE, gateways.ask))
    assert (made.ahead_bytes, made.paused_bytes) == (0, 2 * len(b"all"))
    assert whole(gateways) == CHANGE.plan


def test_where_one_giver_merged_its_state_all_give_the_whole() -> None:
    gateways = Gateways({}, CHANGE)

    async def ask(gateway: str, verb: str, args: Mapping[str, Any]) -> Any:
        if verb == "part.stop" and gateway == "b":
            gateways.copied.pop("b")
        return await gateways.ask(gateway, verb, args)

    made = run_virtual(change_plan(CHANGE, ask))
    assert made.paused_bytes == 2 * len(b"all")
    assert whole(gateways) == CHANGE.plan


def test_the_pause_is_that_of_the_parts_that_stay() -> None:
    """One that leaves the flow commits last, and nothing waits for it."""
    gateways = Gateways({}, LEAVES)

    async def ask(gateway: str, verb: str, args: Mapping[str, Any]) -> Any:
        answer = await gateways.ask(gateway, verb, args)
        if verb == "part.commit":
            return {"pause_s": {"a": 0.2, "b": 9.0, "c": 0.3}[gateway], "rows_delayed": 5}
        return answer

    made = run_virtual(change_plan(LEAVES, ask))
    assert made.pause == (0.3, 10)
