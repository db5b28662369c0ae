"""Topics and topic filters (section 4.7): matching, filters that overlap, and a trie over many filters."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Generic, TypeVar

from edgert.core.errors import show
from edgert.core.text.mqtt_text import UNFIT, fits
from edgert.core.text.topic_template import MAX_KNOWN_LENGTH, check_levels

T = TypeVar("T")

_MAX_CACHED = 16_384


def check_filter(text: str) -> None:
    """ValueError unless `text` is a topic filter: `+` is a whole level, `#` a whole level and the last."""
    if not text or not fits(text) or len(text.encode()) > 65_535:
        raise ValueError(f"expected a topic filter of 1..65535 bytes without {UNFIT}, got {show(text)}")
    check_levels(text)
    levels = text.split("/")
    for at, level in enumerate(levels):
        if "#" in level and (level != "#" or at != len(levels) - 1):
            raise ValueError(f"expected # only as the whole last level, got {show(text)}")
        if "+" in level and level != "+":
            raise ValueError(f"expected + only as a whole level, got {show(text)}")


def _levels(text: str) -> list[str]:
    """Levels of a filter. No topic is empty, so `#` is the same as `+/#`, and `/#` as `/+/#`."""
    return [*text.split("/")[:-1], "+", "#"] if text in ("#", "/#") else text.split("/")


def _apart_by_dollar(a: list[str], b: list[str]) -> bool:
    """One begins with a wildcard and the other with `$`, which wildcards do not match there."""
    return (a[0] == "+" and b[0].startswith("$")) or (b[0] == "+" and a[0].startswith("$"))


def covers(a: str, b: str) -> bool:
    """True if every topic that matches `b` matches `a` too."""
    left, right = _levels(a), _levels(b)
    if _apart_by_dollar(left, right):
        return False
    for at, level in enumerate(left):
        if level == "#":
            return True
        if at >= len(right) or right[at] == "#" or level not in ("+", right[at]):
            return False
    return len(left) == len(right)


def _widen(a: str, b: str) -> str:
    """A filter that covers both of two overlapping ones: `+` where they differ, `#` where one of them ends."""
    left, right = _levels(a), _levels(b)
    out: list[str] = []
    for x, y in zip(left, right, strict=False):
        if "#" in (x, y):
            return "/".join([*out, "#"])
        out.append(x if x == y else "+")
    return "/".join(out if len(left) == len(right) else [*out, "#"])


def merge_filters(filters: Iterable[str]) -> dict[str, str]:
    """Returns for each given filter the filter that covers it, of filters of which no two overlap. For MQTT 3.1.1,
    where a broker may send one copy of a message per overlapping subscription and nothing tells the copies apart.
    Filters that overlap in part are widened, so more than was asked for may be delivered.

    For MQTT 3.1.1, where a broker may send one copy of a message per overlapping subscription and nothing tells the
    copies apart. Filters that overlap in part are widened, so more than was asked for may be delivered.
    """
    merged: TopicTrie[str] = TopicTrie()
    given: dict[str, list[str]] = {}
    for text in filters:
        its = [text]
        while (other := merged.overlapping(levels := _levels(text))) is not None:
            merged.remove("/".join(_levels(other)), other)
            its += given.pop(other)
            text = other if covers(other, text) else text if covers(text, other) else _widen(other, text)
        merged.add("/".join(levels), text)
        given[text] = its
    return {one: text for text, its in given.items() for one in its}


class _Node(Generic[T]):
    __slots__ = ("children", "here", "rest")

    def __init__(self) -> None:
        self.children: dict[str, _Node[T]] = {}
        """Nodes by level; `+` among them."""
        self.here: list[T] = []
        self.rest: list[T] = []
        """Values of filters that end with `#` below this node."""


class TopicTrie(Generic[T]):
    """Values by topic filter. A value added under two filters that both match is found twice."""

    def __init__(self, max_cached: int = _MAX_CACHED) -> None:
        self._root: _Node[T] = _Node()
        self._cache: dict[str, tuple[T, ...]] = {}
        self._max_cached = max_cached

    def add(self, text: str, value: T) -> None:
        """Raises ValueError for a bad filter."""
        check_filter(text)
        node = self._root
        levels = text.split("/")
        for level in levels[:-1] if levels[-1] == "#" else levels:
            node = node.children.setdefault(level, _Node())
        (node.rest if levels[-1] == "#" else node.here).append(value)
        self._cache.clear()

    def remove(self, text: str, value: T) -> None:
        """Remove one such value; KeyError if it is not there."""
        levels = text.split("/")
        path = [self._root]
        steps = levels[:-1] if levels[-1] == "#" else levels
        for level in steps:
            node = path[-1].children.get(level)
            if node is None:
                raise KeyError(text)
            path.append(node)
        values = path[-1].rest if levels[-1] == "#" else path[-1].here
        if value not in values:
            raise KeyError(text)
        values.remove(value)
        for at in range(len(steps), 0, -1):
            node = path[at]
            if node.children or node.here or node.rest:
                break
            del path[at - 1].children[steps[at - 1]]
        self._cache.clear()

    def overlapping(self, levels: list[str]) -> T | None:
        """A value of some filter that has a topic in common with the one of these levels; of filters as `_levels` gives
        them, none of which begins with `#`."""
        nodes = [(self._root, 0)]
        while nodes:
            node, at = nodes.pop()
            if node.rest:
                return node.rest[0]
            level = levels[at] if at < len(levels) else ""
            if node.here and (at == len(levels) or level == "#"):
                return node.here[0]
            if level == "#":
                nodes += [(child, at) for child in node.children.values()]
            elif level == "+":
                nodes += [(n, at + 1) for key, n in node.children.items() if at or not key.startswith("$")]
            elif at < len(levels):
                for key in {level} if not at and level.startswith("$") else {level, "+"}:
                    if (child := node.children.get(key)) is not None:
                        nodes.append((child, at + 1))
        return None

    def match(self, topic: str) -> tuple[T, ...]:
        """Values of all filters that match `topic`, in no particular order; cached by topic, unless that is long."""
        found = self._cache.get(topic)
        if found is None:
            found = tuple(self._search(topic))
            if len(topic) <= MAX_KNOWN_LENGTH:
                if len(self._cache) >= self._max_cached:
                    self._cache.clear()
                self._cache[topic] = found
        return found

    def _search(self, topic: str) -> list[T]:
        out: list[T] = []
        nodes = [self._root]
        dollar = topic.startswith("$")
        for at, level in enumerate(topic.split("/")):
            below: list[_Node[T]] = []
            for node in nodes:
                wild = not (dollar and at == 0)
                if wild:
                    out.extend(node.rest)
                for key in (level, "+") if wild else (level,):
                    child = node.children.get(key)
                    if child is not None:
                        below.append(child)
            nodes = below
        for node in nodes:
            out.extend(node.here)
            out.extend(node.rest)
        return out
