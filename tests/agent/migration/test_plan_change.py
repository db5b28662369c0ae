"""A change of plan over gateways that refuse, vanish and come back: it is made everywhere or nowhere."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from itertools import permutations, product
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from agent.membership.packets import MAX_FRAME
from agent.migration.plan_change import (
    MOST_STATE,
    Ask,
    Change,
    PlanChangeError,
    UnfinishedError,
    change_plan,
)
from edgert.core.errors import EdgertError
from edgert.flow.part_states import PartState
from tests.agent.migration.worlds import BEFORE, BOARDS, CHANGE, MOST, Died, Gateways, run_virtual, whole

LEAVES = Change({"name": "f"}, BEFORE, {"in": "a", "window": "c", "out": "c"}, 7)
"""`b` has no part of the flow any more."""
AT_B = {"in": "b", "window": "a", "out": "c"}
LEAVES_FIRST = Change({"name": "f"}, AT_B, {**AT_B, "window": "b"}, 7)
"""`a`, the first by name, has none."""
COMES = Change({"name": "f"}, LEAVES.after, BEFORE, 7)
"""`b` had none."""
ALL = (CHANGE, LEAVES, LEAVES_FIRST, COMES)
CHANGES = st.sampled_from(ALL)
FAULTS = ("lost", "unanswered", "forgets", "merges", "starts", "impatient", "late", "twice")


@given(st.dictionaries(st.integers(1, 40), st.sampled_from(FAULTS), max_size=20), CHANGES)
def test_the_flow_ends_up_whole_by_one_plan_whatever_is_lost(faults: dict[int, str], change: Change) -> None:
    make(faults, change)


def make(faults: Mapping[int, str], change: Change) -> Gateways:
    """Tries the change; another coordinator ends what is left of it."""
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
    assert not gateways.mixed
    return gateways


@given(st.dictionaries(st.integers(1, 40), st.just("twice"), max_size=40), CHANGES)
@example(dict.fromkeys((1, 2, 3, 4, 5, 11), "twice"), LEAVES_FIRST)
def test_requests_that_arrive_twice_leave_nothing_standing(faults: dict[int, str], change: Change) -> None:
    """One board passes on what another one could not deliver; both may arrive. A board that has left may prepare once
    more then, and stands until the flow's coordinator looks at it (`FleetMend.end_change`)."""
    gateways = Gateways(faults, change)
    run_virtual(change_plan(change, gateways.ask))
    gateways.end()
    assert whole(gateways) == change.plan


HARD = ("lost", "unanswered", "starts", "impatient", "late", "twice")


@pytest.mark.parametrize("change", ALL, ids=["swaps", "leaves", "leaves first", "comes"])
def test_whichever_two_requests_meet_a_fault_the_flow_is_whole(change: Change) -> None:
    for first, fault in product(range(1, make({}, change).asked + 1), HARD):
        asked = make({first: fault}, change).asked
        for second, other in product(range(first + 1, asked + 1), HARD):
            make({first: fault, second: other}, change)


@pytest.mark.parametrize("change", ALL, ids=["swaps", "leaves", "leaves first", "comes"])
def test_a_request_that_arrives_after_its_change_was_undone_stops_nothing(change: Change) -> None:
    for at in range(1, make({}, change).asked + 1):
        gateways = Gateways({at: "late"}, change)
        try:
            run_virtual(change_plan(change, gateways.ask))
        except PlanChangeError:
            gateways.deliver(MOST)
            assert whole(gateways) == 1


def ordered(gateways: Gateways, dies_after: int, order: Sequence[str]) -> Ask:
    gateways.dies_after = dies_after

    async def ask(gateway: str, verb: str, args: Mapping[str, Any]) -> Any:
        for _ in range(order.index(gateway)):
            await asyncio.sleep(0)
        return await gateways.ask(gateway, verb, args)

    return ask


def die_after(first: int, second: int, order: Sequence[str], change: Change, faults: Mapping[int, str]) -> None:
    """The coordinator dies after so many requests, the next one too, and a third one ends the change. `order`: in which
    requests to all gateways at a time arrive."""
    gateways = Gateways(faults, change)
    with contextlib.suppress(Died, PlanChangeError, UnfinishedError):
        run_virtual(change_plan(change, ordered(gateways, first, order)))
    with contextlib.suppress(Died):
        gateways.end(second)
    gateways.end()
    whole(gateways)
    assert not gateways.mixed


@pytest.mark.parametrize("change", ALL, ids=["swaps", "leaves", "leaves first", "comes"])
def test_coordinators_that_die_after_any_request_leave_something_that_the_next_one_can_end(change: Change) -> None:
    asked = make({}, change).asked
    for first, second, order in product(range(asked), range(len(BOARDS) + 1), permutations(BOARDS)):
        die_after(first, second, order, change, {})


@pytest.mark.parametrize("change", ALL, ids=["swaps", "leaves", "leaves first", "comes"])
def test_so_they_do_where_a_gateway_starts_anew_or_an_answer_is_lost_before(change: Change) -> None:
    for at, fault in product(range(1, make({}, change).asked + 1), HARD):
        for first in range(at, make({at: fault}, change).asked):
            die_after(first, 1, BOARDS, change, {at: fault})


@pytest.mark.parametrize("change", ALL, ids=["swaps", "leaves", "leaves first", "comes"])
def test_where_a_board_dies_with_the_coordinator_and_is_forgotten_no_operator_goes_to_it(change: Change) -> None:
    """The others run by one plan. An operator of theirs goes to the lost board only if some part ran by the next plan,
    or if the giver had left the flow."""
    for first, lost, order in product(range(make({}, change).asked), BOARDS, permutations(BOARDS)):
        gateways = Gateways({}, change)
        with contextlib.suppress(Died):
            run_virtual(change_plan(change, ordered(gateways, first, order)))
        left = {board: gateways.plan[board] for board in BOARDS if board != lost and board in gateways.has}
        with contextlib.suppress(Died):
            gateways.end(1, lost)
        gateways.end(forgotten=lost)
        has = gateways.has - {lost}
        assert {gateways.state[board] for board in has} <= {PartState.RUNNING}
        assert len({gateways.plan[board] for board in has}) <= 1
        if set(left.values()) == {1} and has == left.keys():
            kept = {operator for operator, at in change.before.items() if at in has}
            assert all(gateways.on[board][operator] != lost for board in has for operator in kept)


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


def test_where_there_is_too_much_state_for_a_board_nothing_stops() -> None:
    gateways = Gateways({}, LEAVES)
    asked: list[str] = []

    async def ask(gateway: str, verb: str, args: Mapping[str, Any]) -> Any:
        asked.append(verb)
        answer = await gateways.ask(gateway, verb, args)
        if verb == "part.copy":
            assert args["most"] == MOST_STATE
            return {**answer, "states": [], "bytes": MOST_STATE + 1}
        return answer

    with pytest.raises(
        PlanChangeError, match=r"f stays where it is: c would get 15,728,641 bytes of state, and at most"
    ):
        run_virtual(change_plan(LEAVES, ask))
    assert asked == ["part.copy"]
    assert MOST_STATE + (1 << 20) == MAX_FRAME


def test_each_board_is_sent_only_state_and_queues_of_operators_that_come_to_it() -> None:
    gateways = Gateways({}, CHANGE)
    sent: dict[str, dict[str, tuple[int, bytes, bytes]]] = {}

    async def ask(gateway: str, verb: str, args: Mapping[str, Any]) -> Any:
        answer = await gateways.ask(gateway, verb, args)
        if verb == "part.export":
            return {**answer, "queue": b"queue", "pending": b"pending"}
        if verb == "part.prepare":
            imports = args["imports"]
            sent[gateway] = {one["gateway"]: (len(one["states"]), one["queue"], one["pending"]) for one in imports}
        return answer

    run_virtual(change_plan(CHANGE, ask))
    none, all_ = (0, b"", b"pending"), (1, b"queue", b"pending")
    assert sent == {
        "a": {"a": none, "b": none, "c": none},
        "b": {"a": none, "b": none, "c": all_},
        "c": {"a": none, "b": all_, "c": none},
    }


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
