"""`edgert status`: how a running gateway of this board is."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping
from typing import Any

from edgert.cli._control import add_socket, ask, duration, size, table
from edgert.core.text.conditions import texts
from edgert.core.text.counted import counted

HELP = "show how the gateway on this board is; exit status 1 where something is not well"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_socket(parser)
    parser.add_argument(
        "--json",
        action="store_true",
        help="the status as /api/status of the web port has it, and raw figures",
    )


def run(args: argparse.Namespace) -> int:
    status = ask(args, "status")
    if args.json:
        print(json.dumps({**status, "figures": ask(args, "figures")}, indent=1, default=repr))
    else:
        print("\n".join(lines(status)))
    return 1 if problems(status) else 0


def problems(status: Mapping[str, Any]) -> list[str]:
    """Parts that do not do their work, as the page and `/healthz` say."""
    return texts(status["health"]["parts"], "bad")


def doubts(status: Mapping[str, Any]) -> list[str]:
    """Parts that somebody should look at."""
    return texts(status["health"]["parts"], "warning")


def lines(status: Mapping[str, Any]) -> Iterator[str]:
    """The status for people."""
    ingest, central, checkpoint = status["ingest"], status["central"], status["checkpoint"]
    yield f"gateway {status['gateway']} of fleet {status['fleet']}, edgert {status['version']}"
    yield f"  up           {duration(status['uptime_s'])}"
    kept, limit = sum(flow.get("state_bytes", 0) for flow in status["flows"]), status["state_limit_bytes"]
    keys = f"keys {size(kept)}" + (f" of {size(limit)}" if limit else "")
    yield f"  memory       {size(status['rss_bytes'])} ({keys}), CPU {status['cpu_percent']:.1f} %"
    taken = f"{counted(ingest['messages'], 'message')}, {ingest['unacknowledged']:,} unacknowledged"
    yield f"  sensors      {_link(ingest)}, {taken}"
    waiting = f"{counted(central['outbox_rows'], 'row')} ({size(central['outbox_bytes'])}) in the outbox"
    yield f"  central      {_link(central) if central['enabled'] else 'switched off'}, {waiting}"
    yield f"  checkpoints  {checkpoint['commits']:,}, the last took {checkpoint['last_ms']:.1f} ms"
    for slot in status["slots"]:
        state = f"process {slot['pid']}" if slot["running"] else "does not run"
        memory = f", {size(slot['rss_bytes'])}" if "rss_bytes" in slot else ""
        counts = f"{counted(slot['instances'], 'instance')}, {counted(slot['restarts'], 'restart')}"
        yield f"  slot {slot['slot']}       {state}{memory}, {counts}"
    if dropped := sum(drop["rows"] for drop in status["drops"] if drop["lost"]):
        yield f"  dropped      {counted(dropped, 'row')} (--json says where and why)"
    if status["flows"]:
        yield ""
        yield from table(
            ("flow", "state", "last row", "version", "rows shipped", "dropped", "p99"),
            [_flow(flow) for flow in status["flows"]],
            3,
        )
    if found := [*(f"! {problem}" for problem in problems(status)), *(f"? {doubt}" for doubt in doubts(status))]:
        yield ""
        yield from found


def _link(about: Mapping[str, Any]) -> str:
    return f"{'connected to' if about['connected'] else 'NOT connected to'} {about['broker']}"


def _flow(flow: Mapping[str, Any]) -> tuple[str, ...]:
    p99 = flow.get("latency_ms", {}).get("p99")
    late = "-" if p99 is None else duration(p99 / 1e3)
    age_s = flow.get("recent", {}).get("row_age_s")
    return (
        flow["name"],
        flow["condition"]["state"],
        "-" if age_s is None else "now" if age_s < 1.0 else f"{duration(age_s)} ago",
        str(flow["version"]),
        f"{flow['rows_shipped']:,}",
        f"{flow['dropped']:,}",
        late,
    )
