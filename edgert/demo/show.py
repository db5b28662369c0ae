"""Where the summary goes: a live display on a terminal, lines elsewhere."""

from __future__ import annotations

import sys
import time
from typing import Protocol

from edgert.demo.screen import StepState, View, plain_line, render

LINE_PERIOD_S = 10.0


class Display(Protocol):
    """Takes a view twice a second."""

    def show(self, view: View, last: bool = False) -> None: ...

    def close(self) -> None: ...


class Live:
    """One screenful that is written over in place."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.live import Live as RichLive

        self._console = Console()
        self._live = RichLive(console=self._console, auto_refresh=False, vertical_overflow="ellipsis")
        self._live.start()

    def show(self, view: View, last: bool = False) -> None:
        width, height = self._console.size
        self._live.update(render(view, width, height), refresh=True)

    def close(self) -> None:
        self._live.stop()


class DemoLines:
    """A line for each thing that becomes ready, then one every few seconds."""

    def __init__(self) -> None:
        self._due = time.monotonic() + LINE_PERIOD_S
        self._told: dict[str, StepState] = {}

    def show(self, view: View, last: bool = False) -> None:
        for stage in view.stages:
            if stage.state != "waiting" and self._told.get(stage.title) != stage.state:
                self._told[stage.title] = stage.state
                print(f"{stage.title}: {stage.state}{f', {stage.text}' if stage.text else ''}", flush=True)
        now = time.monotonic()
        if now >= self._due or last:
            self._due = now + LINE_PERIOD_S
            print(plain_line(view), flush=True)
        if view.note:
            print(view.note, flush=True)

    def close(self) -> None:
        """Does nothing: nothing is held."""


def make_display(plain: bool) -> Display:
    """A live display if standard output is a terminal and nobody asked for lines."""
    return DemoLines() if plain or not sys.stdout.isatty() else Live()
