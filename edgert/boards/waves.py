"""An update of many boards in waves: which boards are asked when, and when it stops.

Pure: what was seen of the boards and the time go in, the boards to ask come out.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from edgert.boards.board_state import GOOD, BoardState, UpdateProgress
from edgert.core.errors import EdgertError, show

ASK_AGAIN_S: Final = 15.0
"""A board that does not answer is asked again after so long: it may have just connected anew,"""
ASKED_MOST: Final = 4
"""and so often in all."""
PERCENT: Final = re.compile(r"([0-9]{1,3}(\.[0-9]+)?)%?")
Ended = Literal["confirmed", "current", "refused", "failed", "rolled back", "no answer", "timed out", "offline", "left"]
"""`left`: never asked, as the update stopped before."""


def waves_untrusted(text: str) -> list[float]:
    """The percentages in `5%,25%,100%`: the part of all boards that is asked when the wave has begun. Raises
    `EdgertError`."""
    found = [PERCENT.fullmatch(part.strip()) for part in text.split(",")]
    percents = [float(match[1]) for match in found if match]
    rising = all(one < other for one, other in zip([0.0, *percents], percents, strict=False))
    if len(percents) < len(found) or not rising or percents[-1] > 100:
        raise EdgertError(f"expected rising percentages up to 100%, as 5%,25%,100%, got {show(text)}")
    return percents


def cut(boards: Sequence[str], percents: Sequence[float]) -> list[list[str]]:
    """The boards of each wave, in their order: up to the first percentage (rounded up, one board at least), then up to
    the second, and so on. A wave without a board is left out."""
    waves, begin = [], 0
    for percent in percents:
        end = min(len(boards), max(begin + 1, math.ceil(round(len(boards) * percent / 100, 9))))
        if end > begin:
            waves.append(list(boards[begin:end]))
        begin = max(begin, end)
    return waves


@dataclass(frozen=True, slots=True)
class SeenBoard:
    """A board as it is known at one moment."""

    online: bool = True
    state: BoardState | None = None
    refusal: str = ""
    """Its answer, if the board did not take the request."""
    taken: bool = False
    """True if it did."""


@dataclass(slots=True)
class Track:
    """One board in the update."""

    ended: Ended | None = None
    """None: not yet."""
    why: str = ""
    update: UpdateProgress | None = None
    """The progress that the board told last."""
    request: str = ""
    """Request that is waited for; empty: the board was not asked yet."""
    asked: int = 0
    asked_at: float = 0.0
    began_at: float = 0.0

    @property
    def good(self) -> bool:
        return self.ended in GOOD


class Waves:
    """The state machine. A wave begins when all boards of the one before have ended, at most `max_failures` of them
    badly."""

    def __init__(
        self, waves: Sequence[Sequence[str]], request: str, url: str, version: str = "",
        *, max_failures: int = 0, timeout_s: float = 3600.0,
    ) -> None:  # fmt: skip
        """`request` is the id of the requests; `version`: boards that run it are not asked."""
        self.waves = [list(wave) for wave in waves]
        self.tracks = {board: Track() for wave in self.waves for board in wave}
        self.wave = 0
        """Wave that is under way; as many as there are waves: all are over."""
        self.stopped = ""
        """Why no further wave begins."""
        self._request, self._url, self._version = request, url, version
        self._max_failures, self._timeout_s = max_failures, timeout_s

    @property
    def over(self) -> bool:
        return bool(self.stopped) or self.wave >= len(self.waves)

    @property
    def good(self) -> bool:
        """True if all boards run the version."""
        return all(track.good for track in self.tracks.values())

    def turn(self, at_s: float, seen: Mapping[str, SeenBoard]) -> list[str]:
        """Takes what is seen at a time; returns the boards to ask now."""
        ask: list[str] = []
        while not self.over:
            boards = self.waves[self.wave]
            for board in boards:
                track = self.tracks[board]
                if track.ended is None and self._board(track, at_s, seen.get(board, SeenBoard(online=False))):
                    ask.append(board)
            if any(self.tracks[board].ended is None for board in boards):
                break
            self._wave_ends(boards)
        return ask

    def _wave_ends(self, boards: Sequence[str]) -> None:
        self.wave += 1
        bad = [board for board in boards if not self.tracks[board].good]
        if len(bad) > self._max_failures:
            self.stopped = f"wave {self.wave}: {len(bad)} of {len(boards)} boards are not updated"
            for track in self.tracks.values():
                track.ended = track.ended or "left"

    def _board(self, track: Track, at_s: float, seen: SeenBoard) -> bool:
        """Moves one board on: whether it is to be asked now."""
        last = seen.state.update if seen.state else None
        if not track.request:
            return self._begin(track, at_s, seen, last)
        if last is not None and last.request == track.request:
            track.update = last
            if last.decided:
                track.ended, track.why = last.phase, last.why  # type: ignore[assignment]
        elif seen.refusal:
            track.ended, track.why = "refused", seen.refusal
        elif not seen.taken and at_s - track.asked_at >= ASK_AGAIN_S:
            if track.asked < ASKED_MOST:
                return self._ask(track, at_s)
            track.ended, track.why = "no answer", f"asked {track.asked} times"
        if track.ended is None and at_s - track.began_at >= self._timeout_s:
            told = track.update or "nothing was told of it"
            track.ended, track.why = "timed out", f"not decided after {self._timeout_s:g} s; the last: {told}"
        return False

    def _begin(self, track: Track, at_s: float, seen: SeenBoard, last: UpdateProgress | None) -> bool:
        track.began_at = at_s
        if last is not None and not last.decided and last.url == self._url:  # of a command that was cut off
            track.request, track.update, track.asked_at = last.request, last, at_s
        elif seen.state and self._version and seen.state.version == self._version and (not last or last.decided):
            track.ended = "current"
        elif not seen.online:
            track.ended, track.why = "offline", "the board is not connected"
        else:
            return self._ask(track, at_s)
        return False

    def _ask(self, track: Track, at_s: float) -> bool:
        track.request, track.asked, track.asked_at = self._request, track.asked + 1, at_s
        return True
