"""`edgert fleet trace`: the slowest paths of rows through a flow of the fleet, and why operators run where they do."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any, Final

from edgert.cli._control import add_action, ask_fleet, duration, table

OPERATORS: Final = ("instance", "board", "why there", "rows/s", "queue", "waits", "cost/row")


def add(actions: Any) -> None:
    """Adds the action."""
    text = "show the slowest paths of rows through a flow, and why its operators run where they do; takes 3 s"
    one = add_action(actions, "trace", text)
    one.add_argument("flow")
    one.set_defaults(act=_run)


def _run(args: argparse.Namespace) -> int:
    found = ask_fleet(args, "fleet.trace", {"flow": args.flow})
    print(json.dumps(found, indent=2) if args.json else "\n".join(lines(found)))
    return 0


def lines(found: Mapping[str, Any]) -> Iterator[str]:
    """The answer for a terminal."""
    instances, edges = found["instances"], {(edge["from"], edge["to"]): edge for edge in found["edges"]}
    between = [edge for edge in edges.values() if edge["link_s"]]
    rows_s = sum(edge["rows_s"] for edge in between)
    yield (
        f"flow {found['flow']} on {', '.join(found['boards'])}: {len(between)} of {len(edges)} edges go between "
        f"boards, with {rows_s:,.0f} rows/s"
    )
    for gateway, latency_s in found["latency_s"].items():
        yield f"results at {gateway} are {duration(latency_s)} old (mean)"
    yield ""
    yield from table(OPERATORS, [_row(name, one) for name, one in instances.items()], 3)
    for number, path in enumerate(found["paths"], 1):
        waits, cost, link, total = (duration(path[f"{part}_s"]) for part in ("waits", "cost", "link", "total"))
        yield from ("", f"path {number}: {total} (queues {waits}, operators {cost}, links {link})")
        yield "  " + _steps(path["instances"], instances, edges)


def _row(name: str, one: Mapping[str, Any]) -> tuple[str, ...]:
    rate = "-" if one["rows_s"] is None else f"{one['rows_s']:,.0f}"
    cost = "-" if one["cost_s"] is None else duration(one["cost_s"])
    return name, one["gateway"], one["why"], rate, f"{one['queue_rows']:,}", duration(one["waits_s"]), cost


def _steps(path: list[str], instances: Mapping[str, Any], edges: Mapping[tuple[str, str], Any]) -> str:
    told = f"{path[0]} ({instances[path[0]]['gateway']})"
    for start, end in pairwise(path):
        link_s = edges[start, end]["link_s"]
        told += f" -{duration(link_s)}-> {end} ({instances[end]['gateway']})" if link_s else f" -> {end}"
    return told
