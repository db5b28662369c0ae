"""Rows of a flow as a fluid: none is lost, whatever runs."""

from __future__ import annotations

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.simulation.rows import Counted, SimulatedRows, Working
from agent.simulation.shape import SimulatedInstance

BOARDS = ("a", "b")


def chain(source: str, sink: str, cost_s: float = 0.0) -> list[SimulatedInstance]:
    """A source on one board that gives each row to a sink on another."""
    return [
        SimulatedInstance("in", ("in",), "in", "source", source, 0.0, (("out", "out", sink, 1.0),), 0.0),
        SimulatedInstance("out", ("out",), "out", "sink", sink, cost_s, (), 1.0),
    ]


def started(rate: float) -> SimulatedRows:
    rows = SimulatedRows(rate, 100.0, ["in"])
    rows.begin()
    return rows


STEPS = st.lists(st.tuples(st.sets(st.sampled_from(["in", "out"])), st.sampled_from([0.0, 500.0, inf])), max_size=30)


@given(st.floats(0, 1e4), st.floats(0, 0.01), STEPS)
def test_every_row_that_came_left_or_waits(rate: float, cost_s: float, steps: list[tuple[set[str], float]]) -> None:
    rows, instances = started(rate), chain("a", "b", cost_s)
    counted = {instance.name: Counted() for instance in instances}
    for running, way in steps:
        working = [Working(i, counted[i.name], 1.0, 1.0) for i in instances if i.name in running]
        rows.step(1.0, working, {"in": "in", "out": "out"}, lambda a, b, way=way: way)  # type: ignore[misc]
        assert rows.waiting >= -1e-6
    assert rows.came == pytest.approx(rows.left + rows.waiting)
    assert counted["out"].rows_in == pytest.approx(rows.left)
    assert counted["out"].busy_s == pytest.approx(rows.left * cost_s)


def test_a_board_works_on_as_many_rows_as_its_cores_and_their_speed_bear() -> None:
    rows, (source, sink) = started(1000.0), chain("a", "a", cost_s=0.001)
    counted = Counted()
    for _ in range(10):
        working = [Working(source, Counted(), 0.5, 1.0), Working(sink, counted, 0.5, 1.0)]
        rows.step(1.0, working, {}, lambda a, b: inf)
    assert counted.busy_s == pytest.approx(5.0)
    assert rows.left == pytest.approx(5000)


def test_rows_of_a_cut_link_wait_and_a_narrow_one_passes_what_it_can() -> None:
    rows, instances = started(100.0), chain("a", "b")
    working = [Working(instance, Counted(), 1.0, 1.0) for instance in instances]
    for _ in range(3):
        rows.step(1.0, working, {}, lambda a, b: 0.0)
    assert (rows.left, rows.waiting) == (0.0, 300.0)
    rows.step(1.0, working, {}, lambda a, b: 5_000.0)
    assert rows.left == pytest.approx(50.0)


def test_rows_that_wait_for_an_operator_follow_it_into_the_instance_of_the_next_plan() -> None:
    rows = started(100.0)
    rows.step(1.0, [Working(chain("a", "b")[0], Counted(), 1.0, 1.0)], {"in": "in"}, lambda a, b: inf)
    both = SimulatedInstance("in+out", ("in", "out"), "in", "source", "a", 0.0, (), 1.0)
    rows.step(1.0, [Working(both, Counted(), 1.0, 1.0)], {"in": "in", "out": "in"}, lambda a, b: inf)
    assert rows.left == pytest.approx(200.0)
