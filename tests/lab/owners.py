"""A witness of who runs which operator: it asks every gateway of a laboratory again and again, and notes two owners."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from edgert.control.messages import ControlError

EVERY_S: Final = 0.2
Ask = Callable[[], Mapping[str, Any]]
"""The answer of one gateway to `part.status`. Raises `ControlError` where it is down."""


class Owners:
    """What was seen so far. Of one flow; pure, times are arguments.

    No board runs a plan any more once a part runs by a later one. So of two answers about an operator on two
    boards, the later one was asked for after the first had come: with a plan that is not greater it shows two owners.
    """

    def __init__(self, flow: str) -> None:
        self._flow = flow
        self._seen: dict[str, tuple[int, str, float]] = {}
        """Operator → the greatest plan by which it was seen to run, on which board, and when that was known."""
        self.violations: list[str] = []
        self.looks = 0

    def answered(self, board: str, parts: Mapping[str, Any], asked: float, came: float) -> None:
        """`asked`, `came`: when the request left and the answer was there, of one clock."""
        self.looks += 1
        part = parts.get(self._flow, {})
        if part.get("state") != "running":
            return
        plan = int(part["plan"])
        for operator, at in part["assignment"].items():
            if at[0] != board:
                continue
            newest, other, known = self._seen.get(operator, (-1, board, came))
            if other != board and asked >= known and plan <= newest:
                self._violated(f"{operator} runs on {board} by plan {plan}, and on {other} by plan {newest}")
            if plan >= newest:
                self._seen[operator] = plan, board, came

    def removed(self) -> None:
        """The flow is removed: its plans begin anew."""
        self._seen.clear()

    def _violated(self, text: str) -> None:
        if text not in self.violations:
            self.violations.append(text)


class Witness:
    """A thread that asks all boards every `EVERY_S` while the context lasts."""

    def __init__(self, owners: Owners, boards: Mapping[str, Ask], clock: Callable[[], float] = time.monotonic) -> None:
        self.owners, self._boards, self._clock = owners, boards, clock
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> Witness:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._ends.wait(EVERY_S):
            for board, ask in self._boards.items():
                asked = self._clock()
                with contextlib.suppress(ControlError):  # it is down, or busy: the next look asks again
                    self.owners.answered(board, ask(), asked, self._clock())
