"""The one error tree of edgert, and the form in which a document's faults are reported."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal


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
    """A short, safe rendering of untrusted `value` for an error message (at most `limit` characters). A large value
    costs no more than a small one: nothing beyond the limit is rendered."""
    text = ""
    try:
        for part in _parts(value, limit):
            text += part
            if len(text) > limit:
                return f"{text[: limit - 1]}…"
    except (ValueError, RecursionError):  # an integer of thousands of digits, or nesting without end
        return f"a {type(value).__name__} that cannot be shown"
    return text


def _parts(value: object, limit: int) -> Iterator[str]:
    """The pieces of `repr(value)`, of plain values; a text or bytes that `limit` would cut comes cut."""
    if isinstance(value, list | tuple):
        yield "[" if isinstance(value, list) else "("
        for n, item in enumerate(value):
            yield ", " if n else ""
            yield from _parts(item, limit)
        yield "]" if isinstance(value, list) else ",)" if len(value) == 1 else ")"
    elif isinstance(value, dict):
        yield "{"
        for n, (key, item) in enumerate(value.items()):
            yield ", " if n else ""
            yield from _parts(key, limit)
            yield ": "
            yield from _parts(item, limit)
        yield "}"
    elif isinstance(value, str | bytes):
        yield repr(value[: limit + 1])
    else:
        yield repr(value)


class SignatureError(EdgertError):
    """The sender of a packet is not shown to be the member that it names."""

    def __init__(self, reason: Literal["bad signature", "no certificate"]) -> None:
        super().__init__(reason)
        self.reason: Literal["bad signature", "no certificate"] = reason
