"""`edgert simulate --fleet`: hands a flow, what its rows cost, and the options to the agent's simulation program."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from edgert.cli._numbers import above_0, whole
from edgert.core.errors import EdgertError, show

SECONDS = 600.0
ROW_BYTES = 200.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group(
        "a fleet", "one flow on many virtual boards with the agents that would run there (docs/simulate.md)"
    )
    group.add_argument("--fleet", type=Path, metavar="BOARDS", help="TOML file with boards, links and events")
    group.add_argument(
        "--kills", type=whole(most=1000), default=0, metavar="N", help="boards that lose their power, by the seed"
    )
    group.add_argument(
        "--cuts", type=whole(most=1000), default=0, metavar="N", help="links that are cut, half of them one way"
    )
    group.add_argument(
        "--clock-jumps", type=whole(most=1000), default=0, metavar="N", help="wall clocks that jump, by the seed"
    )
    group.add_argument("--plan", action="store_true", help="only print what would go wrong, and when")
    group.add_argument(
        "--heuristic", default="hybrid", metavar="NAME",
        help="moves the flow's operators to better placements, as of edgert fleet deploy; none; or all, beside each"
        " other on the same events (default: hybrid)",
    )  # fmt: skip
    group.add_argument("--at", default="", metavar="BOARD", help="where the flow is deployed (default: the first one)")
    group.add_argument(
        "--pin", action="append", default=[], metavar="OPERATOR=BOARD", help="keeps an operator on a board"
    )
    group.add_argument(
        "--row-bytes", type=above_0, default=ROW_BYTES, metavar="N",
        help=f"of a row on a link (default: {ROW_BYTES:g})",
    )  # fmt: skip
    group.add_argument("--json", metavar="FILE", help="write everything that was seen; -: to standard output instead")


def run(args: argparse.Namespace) -> int:
    """Raises `EdgertError`."""
    job = json.dumps(job_of(args))
    # a set of names has another order in each process, unless it is told not to: one seed, one run
    env = {**os.environ, "PYTHONHASHSEED": "0"}
    sys.stdout.flush()
    command = [sys.executable, "-m", "agent.simulation"]
    return subprocess.run(command, input=job, text=True, env=env, check=False).returncode


def job_of(args: argparse.Namespace) -> dict[str, Any]:
    """The job for `agent.simulation`."""
    from edgert.cli._documents import load, registry
    from edgert.cli.simulate.costs import known_of
    from edgert.flow.physical import plan
    from edgert.sim.boards import BOARDS

    known = registry()
    flow = load(args.flow, known)
    costs = known_of(plan(flow, known, "none"), known, args.status, args.cost)
    slower = BOARDS[args.board].slower
    if not (args.plan or args.status or args.cost):
        print("edgert: without --status or --cost every row is taken to cost 10 µs in each operator", file=sys.stderr)
    return {
        "document": dict(flow.document),
        "operators": {name: [k.profile.cost_s * slower, k.profile.selectivity] for name, k in costs.items()},
        "rate": args.rate,
        "row_bytes": args.row_bytes,
        "fleet": str(args.fleet),
        "seed": args.seed,
        "seconds": args.seconds or SECONDS,
        "kills": args.kills,
        "cuts": args.cuts,
        "jumps": args.clock_jumps,
        "plan": args.plan,
        "heuristic": args.heuristic,
        "at": args.at,
        "pins": dict(map(_pin, args.pin)),
        "json": args.json,
    }


def _pin(text: str) -> tuple[str, str]:
    operator, sign, board = text.partition("=")
    if not (operator and sign and board):
        raise EdgertError(f"--pin: expected OPERATOR=BOARD, got {show(text)}")
    return operator, board
