"""Deployment documents named on the command line."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from edgert.boards import files

if TYPE_CHECKING:
    from edgert.flow.graph import Flow
    from edgert.flow.spec import Registry


def registry() -> Registry:
    """All operators, those of installed packages too; which of these are left out, and why, goes to standard error."""
    from edgert.operators.registry import with_installed

    found, faults = with_installed()
    for entry_point, fault in faults.items():
        print(f"edgert: operators of {entry_point} are left out: {fault}", file=sys.stderr)
    return found


def load(file: Path, known: Registry) -> Flow:
    """The flow of a document. Raises `EdgertError` that names the file and everything that is wrong."""
    from edgert.flow import document

    return document.load(files.read(file), known, what=str(file))


def notes(flow: Flow) -> Iterator[str]:
    """Sentences about risks of a flow by itself."""
    from edgert.flow.loops import POSSIBLE_LOOP, loops

    for loop in loops([flow], flow.name):
        yield f"note: {POSSIBLE_LOOP.format(loop)}"
