"""`edgert flows`: the flows of a running gateway of this board."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from edgert.cli._control import add_socket, ask, duration, location, table
from edgert.core.text.conditions import texts

HELP = "list the flows of the gateway on this board; exit status 1 where one does not do its work"
HEAD = ("flow", "state", "delivery", "runs in", "ver.", "instances", "in", "out", "latency")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_socket(parser)
    parser.add_argument("--json", action="store_true", help="for programs")


def run(args: argparse.Namespace) -> int:
    flows = ask(args, "flows")
    print(json.dumps(flows, indent=1) if args.json else "\n".join(lines(flows)))
    return 0 if all(flow["condition"]["level"] != "bad" for flow in flows) else 1


def lines(flows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """The flows for people."""
    if not flows:
        yield "no flow runs here; bring one with: edgert deploy FLOWFILE"
        return
    yield from table(HEAD, [_row(flow) for flow in flows], 4)
    conditions = [flow["condition"] for flow in flows]
    yield from (f"! {text}" for text in texts(conditions, "bad"))
    yield from (f"? {text}" for text in texts(conditions, "warning"))


def _row(flow: Mapping[str, Any]) -> tuple[str, ...]:
    def number(name: str) -> str:
        return f"{flow[name]:,}" if name in flow else "-"

    slots = flow["slots"]
    where = (
        ", ".join(map(location, slots)) if len(slots) < 2 or min(slots) < 0 else f"slots {', '.join(map(str, slots))}"
    )
    late = "-" if flow.get("latency_s") is None else duration(flow["latency_s"])
    return (
        flow["name"], flow["condition"]["state"], flow.get("delivery", "-"), where or "-", number("version"),
        number("instances"), number("rows_in"), number("rows_out"), late,
    )  # fmt: skip
