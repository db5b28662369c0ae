"""Deployment documents named on the command line."""

from __future__ import annotations

import codecs
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from edgert.boards import files

if TYPE_CHECKING:
    from edgert.flow.graph import Flow
    from edgert.flow.spec import Registry

STDIN: Final = "-"
"""The name by which a document comes from standard input."""
WHERE: Final = "a document, TOML or JSON; -: standard input"
"""Help of an argument that names a document."""


def registry() -> Registry:
    """All operators, those of installed packages too; which of these are left out, and why, goes to standard error."""
    from edgert.operators.registry import with_installed

    found, faults = with_installed()
    for entry_point, fault in faults.items():
        print(f"edgert: operators of {entry_point} are left out: {fault}", file=sys.stderr)
    return found


def read(file: Path) -> bytes:
    """The content of a document. Raises `EdgertError`."""
    return sys.stdin.buffer.read().removeprefix(codecs.BOM_UTF8) if str(file) == STDIN else files.read(file)


def named(file: Path) -> str:
    """The name of the file in messages."""
    return "standard input" if str(file) == STDIN else str(file)


def load(file: Path, known: Registry) -> Flow:
    """The flow of a document. Raises `EdgertError` that names the file and everything that is wrong."""
    from edgert.flow import document

    return document.load(read(file), known, what=named(file))


def notes(flow: Flow) -> Iterator[str]:
    """Sentences about risks of a flow by itself."""
    from edgert.flow.loops import POSSIBLE_LOOP, loops

    for loop in loops([flow], flow.name):
        yield f"note: {POSSIBLE_LOOP.format(loop)}"
