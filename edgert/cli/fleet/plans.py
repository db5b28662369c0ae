"""`edgert fleet plan | replace`: where a heuristic would run a flow's operators, and the change to it."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from edgert.cli._control import add_action, ask_fleet
from edgert.cli.fleet.moves import pause
from edgert.core.ids import short

TERMS: Final = (
    ("violation", "violation of limits", "{:.3f}"),
    ("score", "score", "{:.6f}"),
    ("latency_ms", "latency of the longest path, ms", "{:.3f}"),
    ("boards", "boards used / boards", "{:.3f}"),
    ("edges", "edges between boards / edges", "{:.3f}"),
    ("rows", "rows between boards / rows", "{:.3f}"),
)
"""Key in the agent's answer, what people read, format. Less is better in each."""


def add(actions: Any) -> None:
    """Adds the actions."""
    for verb, text in (
        ("plan", "where a heuristic would run the flow's operators, with the score by term; nothing changes"),
        ("replace", "move the flow's operators to where a heuristic wants them, if that is better"),
    ):
        one = add_action(actions, verb, text)
        one.add_argument("flow")
        one.add_argument("--heuristic", default="", metavar="NAME", help="default: that of the flow's rules, or hybrid")
        one.add_argument(
            "--keep", action="append", default=[], metavar="OPERATOR",
            help="let the operator where it is; sources and operators that publish always stay",
        )  # fmt: skip
        one.set_defaults(act=lambda args, verb=verb: _run(args, verb))


def _run(args: argparse.Namespace, verb: str) -> int:
    asked = {"flow": args.flow, "heuristic": args.heuristic, "keep": args.keep}
    found = ask_fleet(args, f"fleet.{verb}", asked)
    print(json.dumps(found, indent=2) if args.json else "\n".join(lines(found)))
    return 0


def lines(found: Mapping[str, Any]) -> Iterator[str]:
    """The answer for a terminal."""
    from edgert.cli._control import table

    rows = [(text, form.format(found["now"][key]), form.format(found["then"][key])) for key, text, form in TERMS]
    yield from table(("less is better", "now", found["heuristic"]), rows)
    yield ""
    moves = "; ".join(f"{operator} to {gateway}" for operator, gateway in found["moves"].items()) or "no moves"
    if not found["better"]:
        yield f"flow {found['flow']} stays: {found['heuristic']} finds no better placement ({moves})"
    elif not found.get("changed"):
        yield f"better: {moves} (edgert fleet replace {found['flow']})"
    else:
        yield f"flow {found['flow']} runs by plan {short(found['plan'])}: {moves}; {pause(found)}"
