"""The one error tree of edgert, and the form in which a document's faults are reported."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


class EdgertError(Exception):
    """Base of every error that edgert raises on purpose."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One fault in a document, a file or a setting.

    `path` says where (dotted, as the user wrote it), `expected` and `got` what should stand there and what does.
    """

    path: str
    expected: str
    got: str

    def __str__(self) -> str:
        return f"{self.path}: expected {self.expected}, got {self.got}"


class DocumentError(EdgertError):
    """A document was refused. It carries every fault found, not only the first."""

    def __init__(self, what: str, problems: Iterable[Problem]) -> None:
        self.what = what
        self.problems = tuple(problems)
        lines = "".join(f"\n  {p}" for p in self.problems)
        noun = "error" if len(self.problems) == 1 else "errors"
        super().__init__(f"{what}: {len(self.problems)} {noun}{lines}")


class PayloadError(EdgertError):
    """A payload from outside could not be decoded; the message says what was expected and what came."""


class ProtocolError(EdgertError):
    """A peer broke the rules of its protocol; the connection ends, the process goes on."""


class StoreError(EdgertError):
    """The database could not be read or written."""


class DamagedError(StoreError):
    """Stored bytes are not those that were written: the card rots, or another program wrote there."""


class MisfitError(StoreError):
    """Stored bytes belong to something else than what they are given to."""


def show(value: object, limit: int = 60) -> str:
    """A short, safe rendering of untrusted `value` for an error message (at most `limit` characters)."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # an integer of thousands of digits, or nesting without end
        text = f"a {type(value).__name__} that cannot be shown"
    return text if len(text) <= limit else f"{text[: limit - 1]}…"
