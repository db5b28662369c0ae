"""`edgert place`: runs operators of a flow in other slots of the gateway on this board."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from typing import Any, Final

from edgert.cli._control import add_socket, ask, location, table
from edgert.core.errors import EdgertError
from edgert.scheduling.locality_fairness import PLACEMENTS

HELP = (
    "move operators of a running flow to other slots of the gateway on this board; no row is lost or doubled, except "
    "input of QoS 0 beyond 4 MB that comes while the flow stands still"
)
LONGEST_S: Final = 90.0
"""The flow comes to a checkpoint first; a gateway gives up after a minute where it cannot."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("flow", metavar="FLOW", help="name of a running flow")
    how = parser.add_mutually_exclusive_group(required=True)
    how.add_argument(
        "moves", nargs="*", type=_move, default=[], metavar="OPERATOR=SLOT",
        help="an operator, or one copy of it (minute#2), and the slot that is to run it, from 0",
    )  # fmt: skip
    how.add_argument(
        "--by", choices=tuple(PLACEMENTS),
        help="place all operators anew: those that send to each other into one slot and their copies apart (locality), "
        "or in turn (even)",
    )  # fmt: skip
    add_socket(parser)
    parser.add_argument("--json", action="store_true", help="for programs")


def _move(text: str) -> tuple[str, int]:
    operator, _, slot = text.rpartition("=")
    if not operator or not slot.isascii() or not slot.isdigit():
        raise argparse.ArgumentTypeError(f"expected OPERATOR=SLOT, such as minute=1, got {text!r}")
    return operator, int(slot)


def run(args: argparse.Namespace) -> int:
    moves = dict(args.moves)
    if len(moves) < len(args.moves):
        raise EdgertError(f"expected each operator once, got {', '.join(f'{o}={s}' for o, s in args.moves)}")
    how = {"by": args.by} if args.by else {"moves": moves}
    placed = ask(args, "place", {"flow": args.flow, **how}, LONGEST_S)
    if args.json:
        print(json.dumps(placed, indent=1))
    else:
        print("\n".join(lines(placed)))
    return 0


def lines(placed: Mapping[str, Any]) -> list[str]:
    """Where the operators run now, for people."""
    rows = [(operator, location(slot)) for operator, slot in placed["assignment"].items()]
    return [f"flow {placed['flow']} runs by plan {placed['plan']}", *table(("operator", "runs in"), rows, 2)]
