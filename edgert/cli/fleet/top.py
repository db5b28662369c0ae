"""`edgert fleet top`: the boards of the fleet and what each operator of its flows does there, live."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from typing import Any, Final

from edgert.cli._control import add_action, ask_fleet, duration, table
from edgert.cli.top import verb as top
from edgert.cli.top.view import instance_row

BOARDS: Final = ("board", "cores", "CPU of flows", "flows", "instances")
OPERATORS: Final = ("instance", "board", "runs in", "rows/s", "queue", "head age", "cost/row", "CPU")
Readings = Mapping[str, Mapping[str, Any]]
"""Gateway -> its raw figures."""


def add(actions: Any) -> None:
    """Adds the action."""
    text = "show live what each operator of the fleet's flows does, and on which board; q or Ctrl-C ends it"
    one = add_action(actions, "top", text)
    one.add_argument("--once", action="store_true", help="print one reading and end")
    one.add_argument("--every", type=top.every, default=2.0, metavar="S", help="time between two readings (2)")
    one.set_defaults(act=_run)


def _run(args: argparse.Namespace) -> int:
    top.watch(args, lambda: ask_fleet(args, "fleet.figures")["boards"], lines, args.json)
    return 0


def lines(before: Readings, now: Readings) -> list[str]:
    """The screen: boards, then each flow with its instances on all boards. A board that does not answer is missing."""
    shown = table(BOARDS, [_board(name, before.get(name), figures) for name, figures in sorted(now.items())], 1)
    flows = sorted({flow for figures in now.values() for flow in figures["flows"]})
    for flow in flows:
        shown += ["", f"flow {flow}", *table(OPERATORS, list(_instances(flow, before, now)), 3)]
    return shown if flows else [*shown, "", "no flow runs in this fleet"]


def _board(name: str, before: Mapping[str, Any] | None, now: Mapping[str, Any]) -> tuple[str, ...]:
    passed = now["monotonic"] - before["monotonic"] if before else 0.0
    flows = now["flows"].values()
    instances = sum(len(flow["instances"]) for flow in flows)
    busy = "-"
    if before and passed > 0:  # a gateway that started anew began its counters at 0
        busy = f"{100 * max(0.0, _busy_s(now) - _busy_s(before)) / passed:.1f} %"
    return name, str(now["cpu_count"]), busy, str(len(flows)), str(instances)


def _busy_s(figures: Mapping[str, Any]) -> float:
    return sum(float(one["busy_s"]) for flow in figures["flows"].values() for one in flow["instances"].values())


def _instances(flow: str, before: Readings, now: Readings) -> Iterator[tuple[str, ...]]:
    """A row for each instance of a flow, with the board where it runs."""
    for gateway, figures in sorted(now.items()):
        told = figures["flows"].get(flow)
        if told is None:
            continue
        then = before.get(gateway, {"flows": {}})["flows"].get(flow, {})
        same = then["instances"] if all(then.get(key) == told[key] for key in ("version", "plan")) else {}
        for name, one in told["instances"].items():
            label, *rest = instance_row(name, one, same.get(name))
            yield label, gateway, *rest
        if told.get("latency_s") is not None:
            yield f"latency at {gateway}", gateway, "", "", "", duration(told["latency_s"]), "", ""
