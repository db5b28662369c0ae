"""`edgert check`: every error of a deployment document, before a gateway sees it."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from edgert.cli._documents import WHERE, load, named, notes, registry
from edgert.core.errors import DocumentError, EdgertError
from edgert.core.text.counted import counted
from edgert.flow.schema import json_schema

if TYPE_CHECKING:
    from edgert.flow.spec import Registry

HELP = "check the deployment document of a flow and name every error in it"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("flow", type=Path, nargs="*", metavar="FILE", help=WHERE)
    parser.set_defaults(usage_error=parser.error)
    parser.add_argument("--json", action="store_true", help="one JSON object per document and line")
    parser.add_argument("--schema", action="store_true", help="print the JSON Schema of documents, for an editor")


def run(args: argparse.Namespace) -> int:
    known = registry()
    if not args.flow and not args.schema:
        args.usage_error("expected a FILE to check, or --schema")
    if args.schema:
        print(json.dumps(json_schema(known), indent=2))
    told = _as_json if args.json else _in_words
    good = [told(file, known) for file in args.flow]
    return 0 if all(good) else 1


def _in_words(file: Path, known: Registry) -> bool:
    """Prints what was found in a document; returns True for a good one."""
    try:
        flow = load(file, known)
    except EdgertError as error:
        print(error, file=sys.stderr)
        return False
    size, interval = len(flow.nodes), flow.checkpoint_interval_s
    about = f"{counted(size, 'operator')}, {flow.delivery}, checkpoint every {interval:g} s"
    print(f"{named(file)}: flow {flow.name} is good: {about}")
    for note in notes(flow):
        print(f"{named(file)}: {note}")
    return True


def _as_json(file: Path, known: Registry) -> bool:
    """Works as `_in_words`, in a line for programs."""
    found: dict[str, object] = {"file": str(file), "good": False, "flow": None, "errors": [], "notes": []}
    try:
        flow = load(file, known)
        found |= {"good": True, "flow": flow.name, "notes": [*notes(flow)]}
    except DocumentError as error:
        found["errors"] = [{"path": p.path, "expected": p.expected, "got": p.got} for p in error.problems]
    except EdgertError as error:
        found["errors"] = [{"path": "", "expected": "a document", "got": str(error)}]
    print(json.dumps(found))
    return bool(found["good"])
