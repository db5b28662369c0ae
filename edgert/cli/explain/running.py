"""`edgert explain --running`: locations of a flow's instances, and rows that pass between them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from edgert.cli._control import size, table
from edgert.core.errors import EdgertError, show
from edgert.core.ids import short
from edgert.flow.plan import Location

INSTANCES: Final = ("instance", "runs in", "kind", "operators", "rows in", "rows out")
EDGES: Final = ("from", "to", "goes", "rows", "bytes")


def flow_of(figures: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Figures of one flow among a gateway's raw figures. Raises `EdgertError` for one that does not run there."""
    flows = figures["flows"]
    if name not in flows:
        running = ", ".join(sorted(flows)) or "none"
        raise EdgertError(
            f"expected a flow that runs on gateway {figures['gateway']}, one of {running}, got {show(name)}"
        )
    return {"flow": name, "gateway": figures["gateway"], **flows[name]}


def lines(flow: Mapping[str, Any]) -> Iterator[str]:
    """For people."""
    at = {name: str(Location(flow["gateway"], one["slot"])) for name, one in flow["instances"].items()}
    counted = f"{len(at)} instances" if len(at) != 1 else "1 instance"
    yield (
        f"flow {flow['flow']}, version {flow['version']}, plan {short(flow['plan'])}, {flow['delivery']}, "
        f"{counted} on gateway {flow['gateway']}"
    )
    if at:
        yield ""
        yield from table(INSTANCES, [_instance(name, at[name], one) for name, one in flow["instances"].items()], 4)
    if flow["edges"]:
        yield ""
        yield from table(EDGES, [_edge(edge, at) for edge in flow["edges"]], 3)


def _instance(name: str, at: str, one: Mapping[str, Any]) -> tuple[str, ...]:
    operators = one["operators"]
    fused = f"{len(operators)} fused" if len(operators) > 1 else "1"
    return name, at, one["kind"], fused, f"{one['rows_in']:,}", f"{one['rows_out']:,}"


def _edge(edge: Mapping[str, Any], at: Mapping[str, str]) -> tuple[str, ...]:
    here, there = at[edge["from"]], at.get(edge["to"], "another gateway")
    goes = f"within {here}" if here == there else f"{here} → {there}"
    return edge["from"], edge["to"], goes, f"{edge['rows']:,}", size(edge["bytes"])
