"""Results of a flow for people: the newest window, which columns are times, and the units of the others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from edgert.control.board_figures import UnitsOfTopic
from edgert.core.batch import Row
from edgert.operators.state.aggregate_calls import Aggregate
from edgert.runtime.flow_run import FlowRun
from edgert.runtime.instance.report import Report

SHOWN_RESULTS: Final = 20
"""Rows of the newest window that the status holds; `newest_window` has the others."""
HAVE_UNITS: Final = ("mean", "min", "max", "sum")
"""Aggregates with the unit of their field."""


def units_of(reports: Mapping[str, Report]) -> list[UnitsOfTopic]:
    """Units that the devices of a flow name, from the reports of its sources."""
    return [(captured, units) for told in reports.values() for captured, units in told.input.get("units", ())]


def field_of(run: FlowRun, column: str) -> str:
    """The field of rows whose unit a column of the results has; empty if it has none or another one."""
    call = next((call for call in _aggregates(run) if call.name == column), None)
    return call.field or "" if call and call.function in HAVE_UNITS else ""


def newest_window(run: FlowRun, offset: int, limit: int) -> dict[str, Any]:
    """Rows of the newest window, `limit` of them from `offset`."""
    latest = run.latest
    rows = [_shown(row, latest.keys) for row in latest.rows[offset : offset + limit]]
    kept = len(latest.rows)
    return {
        "latest": rows,
        "latest_kept": kept,
        "latest_total": kept + latest.beyond,
        "keys": list(latest.keys),
        "times": _time_columns(run),
    }


def _shown(row: Row, keys: Sequence[str] = ()) -> Row:
    """A shipped row for people: of a sketch its size, and the source only where results are told apart by it."""
    return {
        name: f"{len(value)} bytes" if isinstance(value, bytes) else value
        for name, value in row.items()
        if name != "source" or "source" in keys
    }


def _aggregates(run: FlowRun) -> Sequence[Aggregate]:
    """The aggregates of the window that the flow ships; none where it ships nothing."""
    ship = next((node for node in run.flow.nodes.values() if node.type == "ship"), None)
    if ship is None:
        return ()
    windows = (stage.parameters.get("aggregates", ()) for stage in run.plan.stages() if stage.operators == ship.inputs)
    return next(windows, ())


def _time_columns(run: FlowRun) -> list[str]:
    """Columns of the results that hold times, which are numbers of seconds to a program and no such to people."""
    return [a.name for a in _aggregates(run) if a.field == "time" and a.function in ("min", "max")]
