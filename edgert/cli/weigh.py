"""`edgert weigh`: gives operators of a flow more, or less, of the workers' time."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from typing import Any

from edgert.cli._control import add_socket, ask, table

HELP = "give operators of a running flow more, or less, of the workers' time"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("flow", metavar="FLOW", help="name of a running flow")
    parser.add_argument(
        "weights", nargs="+", type=_weight, metavar="OPERATOR=WEIGHT",
        help="an operator, or one copy of it (minute#2), and its weight from 0.001 to 1000; 1 is that of all others",
    )  # fmt: skip
    add_socket(parser)
    parser.add_argument("--json", action="store_true", help="for programs")


def _weight(text: str) -> tuple[str, float]:
    operator, _, weight = text.rpartition("=")
    try:
        if operator:
            return operator, float(weight)
    except ValueError:
        pass
    raise argparse.ArgumentTypeError(f"expected OPERATOR=WEIGHT, such as minute=4, got {text!r}")


def run(args: argparse.Namespace) -> int:
    weighed = ask(args, "weigh", {"flow": args.flow, "weights": dict(args.weights)})
    if args.json:
        print(json.dumps(weighed, indent=1))
    else:
        print("\n".join(lines(weighed)))
    return 0


def lines(weighed: Mapping[str, Any]) -> list[str]:
    """The weights that are in force, for people."""
    rows = [(instance, f"{weight:g}") for instance, weight in weighed["weights"].items()]
    return [f"flow {weighed['flow']}; what is not listed has weight 1", *table(("instance", "weight"), rows)]
