"""`edgert-agent`: the agent daemon of a board."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import edgert
from edgert.core.command_line import Parser, status_of
from edgert.core.errors import EdgertError
from edgert.install_hint import lacking

if TYPE_CHECKING:
    from agent.board import Board

DEFAULT_CONFIG: Final = Path("/etc/edgert/agent.toml")
EPILOG: Final = """\
Without a command it runs until SIGTERM or SIGINT; SIGHUP reads the key file again. Every setting is also an
environment variable (EDGERT_AGENT_PORT=...); `edgert config sample agent` prints all.

exit status:
  0  stopped by a signal or by leaving the fleet; check: all that the agent will need is there
  1  could not start; check: something is missing, and the last lines say what to do
  2  the command line is wrong
"""


def build_parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="edgert-agent",
        description="Finds the other boards of the fleet, and learns how far away they are.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"edgert-agent {edgert.__version__}")
    parser.add_argument("--config", type=Path, help=f"settings file (default: {DEFAULT_CONFIG} if it is there)")
    parser.set_defaults(command="run")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")
    text = "tell what this board allows: cores, memory, priorities, cgroup, network"
    check = commands.add_parser("check", help=text, description=text)
    check.set_defaults(command="check")
    check.add_argument("--json", action="store_true", help="as one JSON object")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit status."""
    args = build_parser().parse_args(arguments)
    try:
        return status_of(lambda: _check(args.json)) if args.command == "check" else _run(args.config)
    except KeyboardInterrupt:
        return 130
    except EdgertError as error:
        print(f"edgert-agent: {error}", file=sys.stderr)
        return 1


def _run(config: Path | None) -> int:
    """Run the daemon until it is stopped."""
    if hint := lacking("agent"):
        raise EdgertError(hint)
    import uvloop

    from agent.daemon import Agent
    from agent.membership.files import EPOCH_FILE
    from edgert.core.config import left_behind, load
    from edgert.core.log import set_up
    from edgert.core.settings.agent import AgentSettings
    from edgert.machine import own_gateway_id

    path = config or (DEFAULT_CONFIG if DEFAULT_CONFIG.exists() else None)
    settings = load(AgentSettings, path, os.environ)
    if why := left_behind(path, "gateway.data_dir", settings.gateway.data_dir, EPOCH_FILE):
        raise EdgertError(why)
    set_up(settings.log.level, env=os.environ)

    async def serve() -> None:
        await Agent(settings, settings.gateway.id or own_gateway_id()).run()

    uvloop.run(serve())
    return 0


def _check(as_json: bool) -> int:
    from agent.board import look, missing

    board = look()
    print(json.dumps(board.plain(), indent=2) if as_json else as_text(board))
    return 1 if missing(board) else 0


def as_text(board: Board) -> str:
    """The findings, a line each, then a line for each thing that is missing."""
    from agent.board import missing

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
