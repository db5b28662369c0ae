"""The `edgert-agent` command."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from typing import Final

import edgert
from agent.board import Board, look, missing

EPILOG: Final = """\
Placement, migration and OS scheduling across boards are not in this version: the agent only tells whether
this board would allow them.

exit status:
  0  all that the agent will need is there
  1  something is missing; the last lines say what, and what to do
  2  the command line is wrong
"""


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="edgert-agent",
        description="The agent of a board.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"edgert-agent {edgert.__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    text = "tell what this board allows: cores, memory, priorities, cgroup, network"
    check = commands.add_parser("check", help=text, description=text)
    check.add_argument("--json", action="store_true", help="as one JSON object")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit status."""
    args = build_parser().parse_args(arguments)
    board = look()
    print(json.dumps(board.plain(), indent=2) if args.json else as_text(board))
    return 1 if missing(board) else 0


def as_text(board: Board) -> str:
    """What was found, a line each, then what is missing."""
    processor, memory, priority, cgroup = board.processor, board.memory, board.priority, board.cgroup
    frequency = f", {processor.current_mhz:g} MHz" if processor.current_mhz else ""
    if processor.maximum_mhz:
        frequency += f" of {processor.maximum_mhz:g}"
    group = f"version {cgroup.version}, writable: {_yes(cgroup.writable)}, cpu controller: {_yes(cgroup.has_cpu)}"
    lines = [
        f"cores       {processor.usable} of {processor.cores} usable{frequency}",
        f"memory      {_mebibytes(memory.available_bytes)} of {_mebibytes(memory.total_bytes)} MiB available",
        f"priorities  CAP_SYS_NICE {_yes(priority.cap_sys_nice)}, raising tried: {_yes(priority.can_raise)}",
        f"cgroup      {group}, {cgroup.path or 'no path'}",
    ]
    lines += [f"network     {i.name}: {', '.join(i.addresses)}" for i in board.interfaces]
    lacks = missing(board)
    lines += [f"missing     {text}" for text in lacks] or ["all that the agent will need is there"]
    return "\n".join(lines)


def _yes(value: bool) -> str:
    return "yes" if value else "no"


def _mebibytes(size: int) -> int:
    return size // 2**20


if __name__ == "__main__":
    sys.exit(main())
