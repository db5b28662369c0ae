"""One line for the first event of a kind, then a summary a minute: a broken sensor must not fill the log."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

PERIOD_S: Final = 60.0
MOST_KINDS: Final = 32
"""Kinds that are told apart; further ones share a line."""
OTHER: Final = "other reasons"


def is_told(count: int) -> bool:
    """True for the 1st, 2nd, 4th, 8th, ... event, for a log that says the count: however many come, a few lines."""
    return count & (count - 1) == 0


@dataclass(slots=True)
class _Kind:
    told_at: float
    count: int = 0
    example: str = ""


class LogSampling:
    """Events by kind. Time (monotonic seconds) is an argument."""

    def __init__(self) -> None:
        self._kinds: dict[str, _Kind] = {}

    def note(self, kind: str, count: int, example: str, now: float) -> str | None:
        """Counts events; returns the `example` to be logged now if they are the first of their kind. A kind that came
        no more for a period is new again."""
        if kind not in self._kinds and len(self._kinds) >= MOST_KINDS:
            kind = OTHER
        known = self._kinds.get(kind)
        if known is None:
            self._kinds[kind] = _Kind(now, count - 1, example)
            return example
        known.count += count
        known.example = example
        return None

    def due(self, now: float) -> list[tuple[str, int, float, str]]:
        """(kind, events, seconds, newest example) of each kind whose period is over and that came again in it."""
        out = []
        for kind, known in list(self._kinds.items()):
            if now - known.told_at < PERIOD_S:
                continue
            if not known.count:
                del self._kinds[kind]
                continue
            out.append((kind, known.count, now - known.told_at, known.example))
            known.told_at, known.count = now, 0
        return out
