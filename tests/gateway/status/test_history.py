"""The values of the last hour that the page plots: which are taken, and how much they may hold."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest

from edgert.core.clock import VirtualClock
from edgert.core.results.result_schema import Schema
from edgert.runtime.latest import LatestWindow
from gateway.status.history import HOUR_S, MOST_LINES, MOST_OF_FLOW, MOST_POINTS, PERIOD_S, History, Plot

NOW = 1_800_000_000.0
SCHEMA = Schema(10.0, (("place", "string"),), (("n", "count"), ("warmest", "max"), ("warmth", "mean")))


def row(start: float, place: str = "door", size_s: float = 10.0, **values: Any) -> dict[str, Any]:
    return {"window_start": start, "window_end": start + size_s, "place": place, "n": 4, "warmest": 22.0,
            "warmth__count": 4, "warmth__sum": 84.0, **values}  # fmt: skip


@dataclass
class ShippingRun:
    """The part of a run that matters here."""

    schema: Schema | None = SCHEMA
    latest: LatestWindow = field(default_factory=lambda: LatestWindow(["place"]))
    flow: Any = field(default_factory=lambda: SimpleNamespace(nodes={}))


class OneFlow:
    """A history of flows, among them `air`, that is looked at after each window."""

    def __init__(self, schema: Schema | None = SCHEMA) -> None:
        self.run = ShippingRun(schema)
        self.runs = {"air": self.run}
        self.clock = VirtualClock()
        self.history = History(cast(Any, SimpleNamespace(runs=self.runs)), self.clock)

    def ship(self, *rows: dict[str, Any], now: float | None = None) -> None:
        self.run.latest.add(rows)
        self.look(rows[-1]["window_end"] if now is None else now)

    def look(self, now: float) -> None:
        self.clock.set_wall(now)
        self.history.sample()

    def plot(self, column: str = "", now: float = NOW) -> Plot:
        self.clock.set_wall(now)
        plot = self.history.plot("air", column)
        assert plot is not None
        return plot


def values(plot: Plot) -> dict[str, list[float | None]]:
    return {" ".join(line.key): line.values for line in plot.lines}


def test_a_mean_is_that_of_its_count_and_sum_and_stands_first() -> None:
    flow = OneFlow()
    flow.ship(row(NOW), row(NOW, "shelf", warmth__sum=80.0))
    plot = flow.plot()
    assert (plot.keys, plot.columns, plot.column) == (["place"], ["warmth", "warmest", "n"], "warmth")
    assert plot.times == [NOW + 10]
    assert values(plot) == {"door": [21.0], "shelf": [20.0]}
    assert values(flow.plot("warmest")) == {"door": [22.0], "shelf": [22.0]}


def test_windows_of_a_second_give_a_point_in_ten_seconds_and_those_of_a_minute_one_each() -> None:
    for size_s, windows, points in ((1.0, 60, 6), (60.0, 10, 10)):
        flow = OneFlow()
        for number in range(windows):
            flow.ship(row(NOW + number * size_s, size_s=size_s, warmest=float(number)))
        found = values(flow.plot("warmest", NOW + windows * size_s))["door"]
        assert found == [float(number * windows // points) for number in range(points)]


def test_a_key_that_comes_later_into_the_newest_window_gets_its_point() -> None:
    flow = OneFlow()
    flow.ship(row(NOW))
    flow.ship(row(NOW, "shelf"))
    flow.ship(row(NOW + 10))
    assert values(flow.plot("n", NOW + 20)) == {"door": [4.0, 4.0], "shelf": [4.0, None]}


def test_what_is_older_than_an_hour_goes_and_with_it_a_key_without_values() -> None:
    flow = OneFlow()
    flow.ship(row(NOW), row(NOW, "shelf"))
    for number in range(1, 400):
        flow.ship(row(NOW + number * PERIOD_S))
    end = NOW + 400 * PERIOD_S
    plot = flow.plot("n", end)
    assert list(values(plot)) == ["door"]
    assert len(plot.times) <= MOST_POINTS
    assert min(plot.times) > end - HOUR_S
    assert flow.plot("n", end + HOUR_S).times == [], "a flow that stopped has nothing to show after an hour"


@pytest.mark.parametrize("far_s", [-2 * HOUR_S, 2 * HOUR_S])
def test_a_window_whose_time_is_wrong_is_not_plotted_as_one_of_now(far_s: float) -> None:
    flow = OneFlow()
    flow.ship(row(NOW + far_s), now=NOW)
    assert flow.plot().times == []


def test_a_window_of_before_leaves_the_plot_as_it_is() -> None:
    flow = OneFlow()
    flow.ship(row(NOW + 20))
    before = flow.plot("n", NOW + 30)
    flow.run.latest.start = None  # a version that began anew, behind the one before
    flow.ship(row(NOW), now=NOW + 30)
    assert flow.plot("n", NOW + 30) == before


def test_null_and_numbers_that_json_lacks_are_no_points() -> None:
    flow = OneFlow()
    flow.ship(row(NOW, warmest=None, warmth__count=0, warmth__sum=0.0, n=1), row(NOW, "shelf", warmest=math.inf))
    assert values(flow.plot("warmest")) == {"shelf": [None]}
    assert values(flow.plot("warmth")) == {"shelf": [21.0]}


def test_lines_are_bounded_by_flow_and_by_board_and_those_left_out_are_counted() -> None:
    flow = OneFlow()
    for number in range(30):
        run = flow.runs[f"f{number}"] = ShippingRun()
        run.latest.add(row(NOW, str(place)) for place in range(500))
    flow.look(NOW + 10)

    def lines(name: str) -> int:
        return sum(len(flow.history.plot(name, column).lines) for column in ("n", "warmest", "warmth"))  # type: ignore[union-attr, misc]

    found = [lines(f"f{number}") for number in range(30)]
    assert max(found) <= MOST_OF_FLOW
    assert sum(found) <= MOST_LINES
    assert all(found), "each flow has some"
    assert flow.history.plot("f0", "").left_out > 0  # type: ignore[union-attr]
    gone = flow.runs.pop("f1")
    flow.look(NOW + 20)
    flow.runs["f1"] = gone
    assert lines("f1") == 0, "a flow that is gone holds no memory"


def test_long_names_of_keys_are_cut_and_stay_apart() -> None:
    flow = OneFlow()
    flow.ship(row(NOW, "x" * 1000 + "1"), row(NOW, "x" * 1000 + "2"))
    names = [line.key[0] for line in flow.plot().lines]
    assert len(set(names)) == 2
    assert max(map(len, names)) < 80


def test_a_flow_that_ships_nothing_has_an_empty_plot_and_one_that_is_unknown_none() -> None:
    flow = OneFlow(schema=None)
    flow.look(NOW)
    assert flow.plot().lines == []
    assert flow.history.plot("other", "") is None
