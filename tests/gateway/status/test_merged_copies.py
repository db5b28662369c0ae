"""Of a flow with very many instances, the copies of an operator are shown as one: nothing is left out of the sums."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from edgert.flow.document import from_plain
from edgert.operators.registry import REGISTRY
from edgert.runtime.instance.report import Report
from gateway.control import figures as figures_module
from gateway.control.figures import figures
from gateway.status.merged_copies import MOST_STAGES, merge_reports, never_seen
from tests.gateway.whole_gateway import Gateway
from tests.gateway.worlds import status_of
from tests.waiting import in_loop

COPIES, MAPS = 64, 5


def document() -> dict[str, Any]:
    """Five operators of 64 copies: each copy feeds all copies of the next one, which has another key."""
    operators: dict[str, Any] = {"in": {"type": "mqtt_source", "topic": "x/{source}"}}
    before, key = "in", "source"
    for n in range(MAPS):
        window = {"type": "tumbling_window", "size_s": 1, "aggregates": {f"n{n}": "count()"}, "instances": COPIES}
        operators[f"by{n}"] = {"type": "key_by", "input": before, "keys": [key]}
        operators[f"w{n}"] = {"input": f"by{n}", **window}
        before, key = f"w{n}", f"n{n}"
    return {"name": "f", "operators": {**operators, "out": {"type": "ship", "input": before}}}


@in_loop
async def test_copies_of_many_are_shown_as_one_operator_and_their_rows_are_added_up(tmp_path: Path) -> None:
    gateway = Gateway(tmp_path / "gateway.db")
    await gateway.flows.deploy(from_plain(document(), REGISTRY), "test")
    (run,) = gateway.flows.runs.values()
    assert len(run.stages) > MOST_STAGES
    for name, stage in run.stages.items():
        if name.startswith("w0#"):
            stage.instance.counters.rows_in += 2
            stage.logic.drops["late"] += 1
    (flow,) = status_of(gateway).object()["flows"]
    names = [operator["name"] for operator in flow["operators"]]
    assert len(names) < 20
    assert [name for name in names if name.startswith("w")] == [f"w{n}" for n in range(MAPS)]
    shown = next(operator for operator in flow["operators"] if operator["name"] == "w0")
    assert shown["rows_in"] == 2 * COPIES
    assert "all of 64" in shown["detail"]
    assert len(flow["edges"]) < 3 * MAPS
    assert all(giver in names and taker in names for giver, taker in flow["edges"])
    assert {("w0", "w1"), ("w0", "by1")} & set(flow["edges"])
    assert flow["dropped"] == COPIES
    assert len(json.dumps(flow)) < 20_000
    await gateway.flows.remove("f")


@in_loop
async def test_of_very_many_edges_the_figures_have_those_with_most_rows_and_say_how_many_they_leave_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(figures_module, "MOST_EDGES", 100)
    gateway = Gateway(tmp_path / "gateway.db")
    await gateway.flows.deploy(from_plain(document(), REGISTRY), "test")
    (run,) = gateway.flows.runs.values()
    source = run.all[0]
    target = next(iter(next(iter(source.edges.outputs.values()))[0].targets))
    target.rows += 7
    told = figures("g1", gateway.flow_registry, gateway.host, gateway.clock)["flows"]["f"]
    assert len(told["edges"]) == 100
    assert told["edges"][0]["rows"] == 7
    assert told["edges_left_out"] > 1_000
    await gateway.flows.remove("f")


def test_of_reports_counts_are_added_rest_is_the_mean_and_age_the_greatest() -> None:
    bad = {"topic": "t", "beginning": "", "reason": "r", "age_s": 3.0}
    one = Report(rows_in=1, idle_s=4.0, queue_age_s=0.5, drops={"late": 1}, latency=[1, 0], held_bytes=5, at=1.0)
    other = Report(rows_in=2, idle_s=2.0, queue_age_s=0.1, drops={"late": 2}, latency=[0, 3], held_bytes=7, at=2.0)
    other.input = {"malformed": bad}
    found = merge_reports([one, other])
    assert (found.rows_in, found.idle_s, found.queue_age_s, found.held_bytes, found.at) == (3, 3.0, 0.5, 12, 2.0)
    assert (found.drops, found.latency, found.input) == ({"late": 3}, [1, 3], {"malformed": bad})


def test_a_field_that_came_to_one_copy_was_seen() -> None:
    asleep = Report()
    garden = Report(rows_in=9, input={"never_seen": ["lux", "tmep"], "seen": ["hum", "temp"]})
    hall = Report(rows_in=9, input={"never_seen": ["tmep"], "came": {"tmep": "null"}, "seen": ["lux", "temp"]})
    both = {"never_seen": ["tmep"], "came": {"tmep": "null"}, "seen": ["hum", "lux", "temp"]}
    assert never_seen([asleep, garden, hall]) == merge_reports([garden, asleep, hall]).input == both
    assert never_seen([garden, hall, Report(rows_in=1)]) == {}  # which has not looked long enough
    assert never_seen([asleep]) == {}
