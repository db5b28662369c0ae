"""`edgert check`: every error of a deployment document, before a gateway sees it."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from edgert.cli._documents import load, notes, registry
from edgert.core.errors import EdgertError
from edgert.core.text.counted import counted
from edgert.flow.schema import json_schema

HELP = "check the deployment document of a flow and name every error in it"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("flow", type=Path, nargs="*", metavar="FILE", help="a document, TOML or JSON")
    parser.set_defaults(usage_error=parser.error)
    parser.add_argument("--schema", action="store_true", help="print the JSON Schema of documents, for an editor")


def run(args: argparse.Namespace) -> int:
    known = registry()
    if not args.flow and not args.schema:
        args.usage_error("expected a FILE to check, or --schema")
    if args.schema:
        print(json.dumps(json_schema(known), indent=2))
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
            for note in notes(flow):
                print(f"{file}: {note}")
    return status
