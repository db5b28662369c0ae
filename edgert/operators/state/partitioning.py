"""Rows of one key to one copy of an operator: by a hash that is the same on every machine and after every restart."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import xxhash

from edgert.core.batch import Row
from edgert.core.text.long_text import beyond_short
from edgert.core.text.topic_template import MAX_KNOWN_LENGTH, TopicTemplate
from edgert.flow.graph import Node
from edgert.flow.spec import ANY, Keys
from edgert.operators.state.aggregates import compile_function
from edgert.operators.state.keys import CONSTANTS, key_source

KNOWN: Final = 100_000
"""Keys (or topics) whose copy is remembered, unless they are long; beyond it all are looked up anew."""

_DIVIDE: Final = """\
def divide(rows, parts, known):
    for row in rows:
        try:
            {values}
        except KeyError:
            get = row.get
            {values_or_none}
        try:
            {key}
            part = parts[known[key]]
        except (BadKey, TypeError):  # whichever copy gets it counts it as what it is
            part = parts[0]
        part.append(row)
"""


class Copies(dict[Any, int]):
    """The number of the copy, from 0, by key (one value, or a tuple of several)."""

    def __init__(self, copies: int) -> None:
        super().__init__()
        self.copies = copies

    def __missing__(self, key: Any) -> int:
        found = xxhash.xxh3_64_intdigest(ascii(_alike(key)).encode()) % self.copies
        if not beyond_short(key):
            if len(self) >= KNOWN:
                self.clear()
            self[key] = found
        return found


class CopiesByTopic(dict[str, int]):
    """The number of the copy of a source that takes a topic, by topic. Where the topic names the device it is the copy
    to which rows of that device go when they are divided by device, so that they need not be divided again."""

    def __init__(self, template: TopicTemplate, copies: int) -> None:
        super().__init__()
        self._template = template
        self._by_device = Copies(copies)

    def __missing__(self, topic: str) -> int:
        found = self._by_device[self._template.captures(topic).get("source") or topic]
        if len(topic) <= MAX_KNOWN_LENGTH:
            if len(self) >= KNOWN:
                self.clear()
            self[topic] = found
        return found


def _alike(key: Any) -> Any:
    """A value that is the same for all values that are one key to a dict: 1, 1.0 and true."""
    if isinstance(key, tuple):
        return tuple(map(_alike, key))
    if isinstance(key, bool) or (isinstance(key, float) and key.is_integer()):
        return int(key)
    return key


class Divider:
    """Divides rows among `copies` copies by `keys`, as `edgert.flow.fission.Division` has them."""

    def __init__(self, keys: Keys, copies: int) -> None:
        self._known = Copies(copies)
        self.copy_of: Callable[[Any], int] = self._known.__getitem__
        """From a key, in the form in which operators keep it, to the number of its copy."""
        self._divide: Callable[..., None] = compile_function("divide", _source(keys), **CONSTANTS)

    def divide(self, rows: Sequence[Row]) -> list[list[Row]]:
        """The rows of each copy, in their order."""
        parts: list[list[Row]] = [[] for _ in range(self._known.copies)]
        self._divide(rows, parts, self._known)
        return parts


def as_they_are(node: Node, keys: Keys) -> Keys:
    """`OperatorSpec.divides_by` of an operator that keeps its state by the values of the key, whatever their types."""
    return tuple((name, ANY) for name, _ in keys)


def _source(keys: Keys) -> str:
    def values(read: str) -> str:
        return "\n            ".join(f"k{number} = {read.format(name)}" for number, (name, _) in enumerate(keys))

    key = "\n            ".join(key_source(keys))
    return _DIVIDE.format(values=values("row[{!r}]"), values_or_none=values("get({!r})"), key=key)
