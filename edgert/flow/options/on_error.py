"""`[on_error]` of a flow: what becomes of a row on which an operator raises."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from edgert.core.errors import Problem, show
from edgert.core.text.topic_template import TopicTemplate

ErrorAction = Literal["drop", "dead-letter", "retry"]
ACTIONS: Final[tuple[ErrorAction, ...]] = ("drop", "dead-letter", "retry")
KEYS: Final = ("action", "topic", "tries", "backoff_s")
NAMES: Final = ("flow", "operator", "source")
"""Placeholders allowed in the topic of dead letters: values that are known for every row."""
LONGEST_BACKOFF_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class OnError:
    """The policy of one flow; the default is that of a document without any."""

    action: ErrorAction = "drop"
    topic: TopicTemplate | None = None
    """The topic of dead letters; None: none are sent."""
    tries: int = 3
    """How often a row is tried again (`retry`)."""
    backoff_s: float = 0.1
    """Time before it is first tried again, seconds; doubled with every try."""

    def wait_s(self, tried: int) -> float:
        """Time before the next try of what was tried again `tried` times, seconds."""
        return float(min(LONGEST_BACKOFF_S, self.backoff_s * 2.0 ** min(tried, 32)))


def parse(table: Any) -> tuple[OnError, list[Problem]]:
    """The policy that a document's table says, and what is wrong with it."""
    if not isinstance(table, Mapping):
        return OnError(), [Problem("on_error", "a table", show(table))]
    problems: list[Problem] = []
    action = table.get("action", "drop")
    if action not in ACTIONS:
        problems.append(Problem("on_error.action", f"one of {', '.join(ACTIONS)}", show(action)))
        action = "retry"  # which takes all the other keys: what is wrong with them is told, too
    topic = _topic(table, action, problems)
    tries = _number(table, "tries", 3, 1, 100, "an integer from 1 to 100", problems)
    backoff_s = _number(table, "backoff_s", 0.1, 0.01, LONGEST_BACKOFF_S, "a number from 0.01 to 60 (s)", problems)
    if action != "retry":
        problems += [
            Problem(f"on_error.{key}", 'nothing, unless action = "retry"', show(table[key]))
            for key in ("tries", "backoff_s")
            if key in table
        ]
    return OnError(action, topic, int(tries), float(backoff_s)), problems


def _topic(table: Mapping[str, Any], action: str, problems: list[Problem]) -> TopicTemplate | None:
    given = table.get("topic")
    if action == "drop" and "topic" in table:
        expected = 'nothing, unless action = "dead-letter" or "retry"'
        problems.append(Problem("on_error.topic", expected, show(given)))
        return None
    if "topic" not in table and action != "dead-letter":
        return None
    if not isinstance(given, str):
        problems.append(Problem("on_error.topic", "a topic", show(given) if "topic" in table else "nothing"))
        return None
    try:
        topic = TopicTemplate(given, sink=True)
    except ValueError as error:
        expected, _, got = str(error).partition(", got ")
        problems.append(Problem("on_error.topic", expected.removeprefix("expected "), got))
        return None
    unknown = [name for name in topic.names if name not in NAMES]
    if unknown:
        expected = f"only {', '.join(f'{{{name}}}' for name in NAMES)} in braces (what is known of every row)"
        problems.append(Problem("on_error.topic", expected, f"{{{unknown[0]}}}"))
        return None
    return topic


def _number(
    table: Mapping[str, Any],
    key: str,
    default: float,
    low: float,
    high: float,
    expected: str,
    problems: list[Problem],
) -> float:
    value = table.get(key, default)
    right = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if not right or not low <= value <= high or (isinstance(default, int) and not float(value).is_integer()):
        problems.append(Problem(f"on_error.{key}", expected, show(value)))
        return default
    return float(value)


def loop_problems(policy: OnError, flow: str, filters: Iterable[str]) -> list[Problem]:
    """A problem for each of the sources' topic `filters` that may take in the flow's own dead letters."""
    if policy.topic is None:
        return []
    topic = policy.topic.text.replace("{flow}", flow)
    return [
        Problem("on_error.topic", f"a topic that no source of the flow reads itself ({filter_})", show(topic))
        for filter_ in dict.fromkeys(filters)
        if _may_match(filter_, topic)
    ]


def _may_match(filter_: str, topic: str) -> bool:
    """True if `filter_` matches some topic for which `topic` stands; a level with a brace in it stands for any."""
    wanted, levels = filter_.split("/"), topic.split("/")
    for at, level in enumerate(wanted):
        if level == "#":
            return True
        if at >= len(levels) or (level not in ("+", levels[at]) and "{" not in levels[at]):
            return False
    return len(wanted) == len(levels)
