"""Raw figures of flows in slots, as slots report them: counters go on when a flow begins a new life after a death."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from weakref import WeakKeyDictionary

from edgert.runtime.figures import Figures
from edgert.runtime.flow_run import FlowRun


class SlotFigures:
    """Work that is done again after a slot's death counts again: it has cost as much."""

    def __init__(self) -> None:
        self._flows: WeakKeyDictionary[FlowRun, _Lives] = WeakKeyDictionary()

    def reported(self, run: FlowRun, life: int, figures: Mapping[str, Sequence[Any]]) -> None:
        """A slot has said what instances of a flow have done in the flow's `life` (the number of its run)."""
        lives = self._flows.setdefault(run, _Lives())
        if lives.number != life:
            lives.before = {name: lives.get(name) for name in lives.now.keys() | lives.before.keys()}
            lives.number, lives.now = life, {}
        lives.now |= {name: Figures(*plain) for name, plain in figures.items()}

    def get(self, run: FlowRun, name: str) -> Figures:
        """Of one instance; zeros before its first report."""
        lives = self._flows.get(run)
        return lives.get(name) if lives else Figures()


class _Lives:
    """Of one flow."""

    def __init__(self) -> None:
        self.number = 0
        self.now: dict[str, Figures] = {}
        """By instance, of the present life."""
        self.before: dict[str, Figures] = {}
        """By instance, of all lives before."""

    def get(self, name: str) -> Figures:
        now, before = self.now.get(name), self.before.get(name)
        if now and before:
            return now.after(before)
        return now or (Figures(before.counters, sent=before.sent, left=before.left) if before else Figures())
