"""`edgert check`: every error of a deployment document, before a gateway sees it."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from edgert.cli._documents import load, registry
from edgert.core.errors import EdgertError
from edgert.core.text.counted import counted
from edgert.flow.loops import POSSIBLE_LOOP, loops

HELP = "check the deployment document of a flow and name every error in it"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("flow", type=Path, nargs="+", metavar="FILE", help="a document, TOML or JSON")


def run(args: argparse.Namespace) -> int:
    known = registry()
    status = 0
    for file in args.flow:
        try:
            flow = load(file, known)
        except EdgertError as error:
            print(error, file=sys.stderr)
            status = 1
        else:
            size, interval = len(flow.nodes), flow.checkpoint_interval_s
            told = f"{counted(size, 'operator')}, {flow.delivery}, checkpoint every {interval:g} s"
            print(f"{file}: flow {flow.name} is good: {told}")
            for loop in loops([flow], flow.name):
                print(f"{file}: note: {POSSIBLE_LOOP.format(loop)}")
    return status
