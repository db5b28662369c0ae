"""The table of states of a part: all that can be is in it, and what a change of plan rests on holds for it."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from edgert.core.errors import EdgertError
from edgert.flow.part_states import TABLE, PartEvent, PartState, Refusal, after, event_of, markdown, state_of

PAGE = Path(__file__).parents[2] / "docs" / "internals" / "plan-changes.md"
ASKED = (
    PartEvent.CHANGE,
    PartEvent.SUSPEND,
    PartEvent.RESUME,
    PartEvent.STOP,
    PartEvent.PREPARE,
    PartEvent.ABORT,
    PartEvent.COMMIT,
)
OF_ITSELF = {PartEvent.PATIENCE_ENDS, PartEvent.STAYS, PartEvent.LEAVES, PartEvent.START, PartEvent.START_AS_GUEST}


def test_the_page_has_the_diagram_of_the_table() -> None:
    begin, end = "<!-- begin: states -->\n\n", "\n\n<!-- end: states -->"
    assert PAGE.read_text().partition(begin)[2].partition(end)[0] == markdown(), "run scripts/docs"


def test_each_request_has_an_answer_in_each_state_and_no_row_is_for_what_cannot_be() -> None:
    found = set()
    for part, stands, suspended, prepared, committed in itertools.product((False, True), repeat=5):
        if (stands and not part) or (suspended and not stands) or (committed and not prepared):
            continue
        state = state_of(part=part, stands=stands, suspended=suspended, prepared=prepared, committed=committed)
        for request, plan in itertools.product(ASKED, (1, 2, 3)):
            found.add((state, event_of(request, plan, 2 if prepared else None, 1 if part else None)))
    assert found == {(state, event) for state, event in TABLE if event not in OF_ITSELF}


def ways(state: PartState, *events: PartEvent) -> set[PartState]:
    """The states that these events make of a state."""
    return {to for event in events if isinstance(to := TABLE.get((state, event)), PartState)}


@pytest.mark.parametrize("state", [PartState.JOINING, PartState.PREPARED])
def test_once_the_next_plan_is_prepared_only_a_coordinators_word_counts(state: PartState) -> None:
    others = set(PartEvent) - {PartEvent.ABORT, PartEvent.COMMIT}
    assert ways(state, *others) == {state}


def test_what_is_committed_is_never_undone() -> None:
    assert ways(PartState.COMMITTED, *set(PartEvent) - {PartEvent.STAYS, PartEvent.LEAVES}) == {PartState.COMMITTED}
    assert TABLE[PartState.COMMITTED, PartEvent.ABORT] is Refusal.DECIDED


def test_nothing_is_prepared_beside_a_part_that_runs_nor_committed_unprepared() -> None:
    assert TABLE[PartState.RUNNING, PartEvent.PREPARE] is Refusal.RUNS
    assert {state for state in PartState if PartState.COMMITTED in ways(state, *PartEvent)} == {
        PartState.JOINING, PartState.PREPARED, PartState.COMMITTED
    }  # fmt: skip


@pytest.mark.parametrize("state", PartState)
def test_each_state_comes_to_an_end(state: PartState) -> None:
    reached = {state}
    while (more := reached.union(*(ways(one, *PartEvent) for one in reached))) != reached:
        reached = more
    assert PartState.RUNNING in reached


def test_a_refusal_names_the_flow_and_the_plans() -> None:
    with pytest.raises(EdgertError, match="flow air: expected a prepared plan 9, got 8"):
        after("air", PartState.PREPARED, PartEvent.COMMIT_OTHER, 9, 8)
    with pytest.raises(EdgertError, match="expected a flow that runs here, got 'air'"):
        after("air", PartState.GONE, PartEvent.STOP)


def test_coordinators_are_told_four_states() -> None:
    assert {state.told for state in PartState} == {"gone", "running", "stopped", "prepared"}
    assert PartState.SUSPENDED.told == "stopped"
    assert PartState.JOINING.told == PartState.COMMITTED.told == "prepared"
