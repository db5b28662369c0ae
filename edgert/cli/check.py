"""`edgert check`: every error of a deployment document, before a gateway sees it."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from edgert.core.errors import EdgertError

HELP = "check the deployment document of a flow and name every error in it"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("flow", type=Path, nargs="+", metavar="FILE", help="a document, .toml or .json")


def run(args: argparse.Namespace) -> int:
    status = 0
    for file in args.flow:
        try:
            print(f"{file}: {_check(file)}")
        except EdgertError as error:
            print(f"{file}: {error}", file=sys.stderr)
            status = 1
    return status


def _check(file: Path) -> str:
    from edgert.flow import document
    from edgert.operators.registry import REGISTRY

    if file.suffix not in (".toml", ".json"):
        raise EdgertError(f"expected a name that ends in .toml or .json, got {file.name}")
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise EdgertError(f"expected a readable file of UTF-8 text: {error}") from error
    flow = document.load(text, file.suffix[1:], REGISTRY)
    return f"flow {flow.name} is good: {len(flow.nodes)} operators, checkpoint every {flow.checkpoint_interval_s:g} s"
