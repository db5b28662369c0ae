"""Topic templates: `city/{source}/sense` names the levels of a topic that become fields of a row, and the reverse."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from edgert.core.errors import show
from edgert.core.text.mqtt_text import UNFIT, fits

NAME = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]{0,63})\}")
"""A field in a template."""
MAX_TOPIC_BYTES = 65_535
MAX_LEVELS = 200
"""Levels of a topic or filter: Mosquitto hangs up at more."""
_OF_BROKERS = ("$SYS", "$share", "$queue")
"""First levels of topics to which no broker takes a message of a client; those of cloud brokers (`$aws`) are others."""
MAX_KNOWN, MAX_KNOWN_LENGTH = 4_096, 256


def check_levels(text: str) -> None:
    """ValueError for a topic or filter of more levels than each broker takes."""
    if (levels := text.count("/") + 1) > MAX_LEVELS:
        raise ValueError(f"expected at most {MAX_LEVELS} levels (Mosquitto hangs up at more), got {levels}")


def _check_sendable(topic: str) -> None:
    if topic.startswith("$") and topic.split("/", 1)[0] in _OF_BROKERS:
        raise ValueError(
            f"expected a topic that does not begin with {', '.join(_OF_BROKERS)} (brokers take no message there), "
            f"got {show(topic)}"
        )


class TopicTemplate:
    """A parsed template. Raises `ValueError` ("expected ..., got ...") for text that is none.

    As a source's topic each `{name}` takes exactly one level; `+` takes one level without a name and a last `#` all
    that follow. As a sink's topic `{field}` may stand anywhere and is filled from a row; wildcards are refused.
    """

    def __init__(self, text: str, *, sink: bool = False) -> None:
        self.text = text
        if not text or len(text.encode("utf-8", "replace")) > MAX_TOPIC_BYTES or not fits(text):
            raise ValueError(f"expected a topic of 1 to {MAX_TOPIC_BYTES} bytes without {UNFIT}, got {show(text)}")
        check_levels(text)
        self.names: tuple[str, ...] = tuple(NAME.findall(text))
        if "{" in NAME.sub("", text) or "}" in NAME.sub("", text):
            raise ValueError(f"expected {{name}} with letters, digits and _, got {show(text)}")
        if sink:
            if "+" in text or "#" in text:
                raise ValueError(
                    f"expected a topic without + and # (nobody can publish to a wildcard), got {show(text)}"
                )
            _check_sendable(text)
            self.filter = text
        else:
            if text.split("/", 1)[0] in ("$share", "$queue"):
                raise ValueError(
                    "expected a filter that is not shared (the broker gives each message of a shared subscription to "
                    f"one client of its group, so this flow would miss the others), got {show(text)}"
                )
            self.filter = self._as_filter(text)
        self._known = _Known(self)
        self._format = NAME.sub(lambda m: f"%({m[1]})s", text.replace("%", "%%"))

    def _as_filter(self, text: str) -> str:
        levels = text.split("/")
        self._captures: list[tuple[int, str]] = []
        for at, level in enumerate(levels):
            if match := NAME.fullmatch(level):
                self._captures.append((at, match[1]))
                levels[at] = "+"
            elif NAME.search(level):
                raise ValueError(f"expected {{name}} to fill a whole level, got {show(level)}")
            elif ("+" in level and level != "+") or ("#" in level and (level != "#" or at != len(levels) - 1)):
                raise ValueError(f"expected + alone in its level and # alone in the last, got {show(level)}")
        if len(set(self.names)) != len(self.names):
            raise ValueError(f"expected each {{name}} once, got {show(text)}")
        return "/".join(levels)

    def captures(self, topic: str) -> dict[str, str]:
        """The named levels of `topic`, which must match `filter`."""
        levels = topic.split("/")
        return {name: levels[at] for at, name in self._captures if at < len(levels)}

    def fill(self, rows: Sequence[Mapping[str, Any]]) -> list[str]:
        """The topic for each row. Raises `ValueError` when a field is missing or would not make a valid topic."""
        if len(self.names) == 1:
            name, known = self.names[0], self._known
            try:
                return [known[row[name]] for row in rows]
            except (KeyError, TypeError):  # a row without the field, or whose value is no text
                pass
        return [self.filled(row) for row in rows]

    def inline(self, code: Mapping[str, str]) -> tuple[str, dict[str, Any]]:
        """An expression for one row's topic, of the code of its fields; and what that names. It raises `KeyError`,
        `TypeError` or `ValueError` for a row of which only `fill` knows the topic, or that has none."""
        if len(self.names) == 1:
            return f"filled[{code[self.names[0]]}]", {"filled": self._known}
        return f"filled({{{', '.join(f'{name!r}: {code[name]}' for name in self.names)}}})", {"filled": self.filled}

    def filled(self, row: Mapping[str, Any]) -> str:
        """Works as `fill`, for one row."""
        for name in self.names:
            value = row.get(name)
            text = "" if value is None else str(value)
            if not text or any(c in text for c in "+#/") or not fits(text):
                raise ValueError(
                    f"expected field {name!r} to hold a topic level (no + # /, no {UNFIT}), got {show(value)}"
                )
        topic = self._format % row
        if len(topic) > MAX_TOPIC_BYTES // 4 and len(topic.encode()) > MAX_TOPIC_BYTES:
            raise ValueError(f"expected a topic of at most {MAX_TOPIC_BYTES} bytes, got {show(topic)}")
        _check_sendable(topic)
        return topic


class _Known(dict[str, str]):
    """Topics by the text that fills the only name: most rows come from few devices."""

    def __init__(self, template: TopicTemplate) -> None:
        super().__init__()
        self._template = template

    def __missing__(self, text: str) -> str:
        if type(text) is not str:  # 1 and True are one key, and two topics
            raise KeyError(text)
        template = self._template
        topic = template.filled({template.names[0]: text})
        if len(topic) <= MAX_KNOWN_LENGTH:
            if len(self) >= MAX_KNOWN:
                self.clear()
            self[text] = topic
        return topic
