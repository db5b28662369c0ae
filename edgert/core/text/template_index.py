"""Sinks' topic templates, found by a topic that they may have given, without a try of each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from edgert.core.text.topic_template import NAME


class TemplateIndex:
    """A tree over the levels of templates. A literal level is found by its text, a level with fields by the text before
    the first field and the text after the last one."""

    def __init__(self, templates: Iterable[str]) -> None:
        self._root = _Level()
        for number, template in enumerate(templates):
            level = self._root
            for text in template.split("/"):
                level = level.child(text)
            level.first = number if level.first is None else level.first

    def first(self, topic: str) -> int | None:
        """The number of the first template that, filled from some row, gives `topic`; None if none does."""
        found: Sequence[_Level] = (self._root,)
        for text in topic.split("/"):
            found = [child for level in found for child in level.matching(text)]
        return min((level.first for level in found if level.first is not None), default=None)


class _Level:
    __slots__ = ("_by_affixes", "_filled", "_lengths", "_literal", "first")

    def __init__(self) -> None:
        self.first: int | None = None
        """Number of the first template that ends here."""
        self._literal: dict[str, _Level] = {}
        self._filled: dict[tuple[str, ...], _Level] = {}
        """Levels with fields, by the texts before, between and after their fields."""
        self._by_affixes: dict[tuple[str, str], list[tuple[str, ...]]] = {}
        self._lengths: set[tuple[int, int]] = set()

    def child(self, text: str) -> _Level:
        """The next level of a template; it is made if there is none."""
        parts = tuple(NAME.split(text)[::2])
        if len(parts) == 1:
            return self._literal.setdefault(text, _Level())
        if parts not in self._filled:
            self._filled[parts] = _Level()
            self._by_affixes.setdefault((parts[0], parts[-1]), []).append(parts)
            self._lengths.add((len(parts[0]), len(parts[-1])))
        return self._filled[parts]

    def matching(self, text: str) -> Iterator[_Level]:
        """The next levels of all templates that may have given a level with this text."""
        if text in self._literal:
            yield self._literal[text]
        for before, after in self._lengths:
            for parts in self._by_affixes.get((text[:before], text[max(0, len(text) - after) :]), ()):
                if _fills(parts, text):
                    yield self._filled[parts]


def _fills(parts: Sequence[str], text: str) -> bool:
    """True if `text` is the parts, which it begins and ends with, with at least a character between each two."""
    at = len(parts[0])
    for part in parts[1:-1]:
        if (found := text.find(part, at + 1)) < 0:
            return False
        at = found + len(part)
    return at + 1 <= len(text) - len(parts[-1])
