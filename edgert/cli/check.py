"""`edgert check`: every error of a deployment document, before a gateway sees it."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from edgert.core.errors import EdgertError

if TYPE_CHECKING:
    from edgert.flow.spec import Registry

HELP = "check the deployment document of a flow and name every error in it"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("flow", type=Path, nargs="+", metavar="FILE", help="a document, TOML or JSON")


def run(args: argparse.Namespace) -> int:
    from edgert.operators.registry import with_installed

    registry, faults = with_installed()
    for entry_point, fault in faults.items():
        print(f"edgert: operators of {entry_point} are left out: {fault}", file=sys.stderr)
    status = 0
    for file in args.flow:
        try:
            print(_check(file, registry))
        except EdgertError as error:
            print(error, file=sys.stderr)
            status = 1
    return status


def _check(file: Path, registry: Registry) -> str:
    from edgert.flow import document

    try:
        text = file.read_bytes()
    except OSError as error:
        raise EdgertError(f"{file}: expected a readable file: {error.strerror or error}") from error
    flow = document.load(text, registry, what=str(file))
    size, interval = len(flow.nodes), flow.checkpoint_interval_s
    return f"{file}: flow {flow.name} is good: {size} operators, checkpoint every {interval:g} s"
