"""Paths of rows through a flow over two boards, by figures written by hand."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from agent.placement.rules import Rules
from agent.placement.trace import MOST_PATHS, SHOWN_PATHS, trace
from edgert.cli.fleet.trace import lines


def instance(at: float, rows: int, busy_s: float, *, queue: int = 0, head_age_s: float = 0.0) -> dict[str, Any]:
    return {"slot": 0, "at": at, "rows_in": rows, "busy_s": busy_s, "queue_rows": queue, "head_age_s": head_age_s}


def figures(
    gateway: str, at: float, instances: dict[str, dict[str, Any]], edges: dict[tuple[str, str], int], plan: int = 1
) -> dict[str, Any]:
    listed = [{"from": a, "to": b, "rows": rows, "bytes": 10 * rows} for (a, b), rows in edges.items()]
    flow = {"version": 1, "plan": plan, "latency_s": None, "instances": instances, "edges": listed}
    return {"gateway": gateway, "monotonic": at, "cpu_count": 4, "flows": {"city": flow, "other": flow}}


def two_boards() -> dict[str, tuple[dict[str, Any], dict[str, Any]]]:
    """A source and a filter on g1, 100 rows/s; a window on g2 that waits for 20 ms; 1 ms and 2 ms per row."""
    first, second = {("source", "few"): 0}, {("source", "few"): 1000}
    cut, later = {("few", "window"): 500}, {("few", "window"): 1000}
    return {
        "g1": (
            figures("g1", 10.0, {"source": instance(10.0, 0, 0.0), "few": instance(10.0, 0, 0.0)}, first | cut),
            figures(
                "g1", 20.0, {"source": instance(20.0, 1000, 1.0), "few": instance(20.0, 1000, 0.0)}, second | later
            ),
        ),
        "g2": (
            figures("g2", 3.0, {"window": instance(3.0, 500, 0.0)}, cut),
            figures("g2", 13.0, {"window": instance(13.0, 1000, 1.0, queue=7, head_age_s=0.02)}, later),
        ),
    }


def test_a_path_costs_its_queues_its_operators_and_half_the_round_trip_of_its_links() -> None:
    found = trace("city", two_boards(), lambda a, b: 0.008, Rules(pins={"window": "g2"}), ["source"])
    (path,) = found["paths"]
    assert path["instances"] == ["source", "few", "window"]
    assert (path["waits_s"], path["cost_s"], path["link_s"]) == pytest.approx((0.02, 0.001 + 0.002, 0.004))
    assert path["total_s"] == pytest.approx(0.027)
    assert [(e["from"], e["to"], e["rows_s"], e["link_s"]) for e in found["edges"]] == [
        ("source", "few", 100.0, 0.0), ("few", "window", 50.0, 0.004)
    ]  # fmt: skip
    whys = {name: one["why"] for name, one in found["instances"].items()}
    assert whys == {
        "source": "stays with its devices", "few": "as deployed, or handed over", "window": "pinned to g2"
    }  # fmt: skip
    told = "\n".join(lines(found))
    assert "flow city on g1, g2: 1 of 2 edges go between boards, with 50 rows/s" in told
    assert "path 1: 27 ms (queues 20 ms, operators 3 ms, links 4 ms)" in told
    assert "  source (g1) -> few -4 ms-> window (g2)" in told


def test_another_plan_has_no_rates_yet() -> None:
    readings = two_boards()
    (_, now) = readings["g2"]
    readings["g2"] = figures("g2", 3.0, {"window": instance(3.0, 500, 0.0)}, {}, plan=0), now
    found = trace("city", readings, lambda a, b: 0.008, Rules(heuristic="hybrid"))
    assert found["instances"]["window"]["rows_s"] is None
    assert found["instances"]["window"]["why"] == "placed by hybrid"
    assert "window" in "\n".join(lines(found))


def test_a_loop_ends_a_path_and_a_wide_flow_is_bounded() -> None:
    looped = {name: instance(1.0, 0, 0.0) for name in ("a", "b", "c")}
    edges = {("a", "b"): 0, ("b", "c"): 0, ("c", "b"): 0}
    (path,) = trace("city", {"g": (figures("g", 1.0, looped, edges),) * 2}, lambda a, b: 0.0, Rules())["paths"]
    assert path["instances"] == ["a", "b", "c"]
    layers = [[f"{layer}.{n}" for n in range(5)] for layer in range(8)]  # 390,625 paths
    wide = {name: instance(1.0, 0, 0.0) for layer in layers for name in layer}
    crossed = {(a, b): 0 for above, below in pairwise(layers) for a in above for b in below}
    found = trace("city", {"g": (figures("g", 1.0, wide, crossed),) * 2}, lambda a, b: 0.0, Rules())
    assert len(found["paths"]) == SHOWN_PATHS < MOST_PATHS
