"""A board that is emptied for its restart: its operators go to other boards, and come back when all is over."""

from __future__ import annotations

import sys
import time
from typing import Any, Final

from edgert.boards.files import folder, write
from edgert.cli._control import ask_agent
from edgert.cli.board import slots
from edgert.core.errors import EdgertError

DRAINED: Final = "drained"
"""Beside the notes of updates: the board was drained for one, and is to be filled."""
TIMEOUT_S: Final = 300.0
TRIES: Final = 12
AGAIN_S: Final = 5.0
"""The agent may still start."""


def drain() -> None:
    """Asks the board's agent. Where there is none, or no other board can take an operator, it stays."""
    folder(slots.NOTES)
    write(slots.NOTES / DRAINED, b"")
    try:
        found = _call("fleet.drain")
    except EdgertError as error:
        print(f"this board is not drained: {error}", file=sys.stderr)
        return
    for flow, why in found["stays"].items():
        print(f"flow {flow} stays on this board: {why}", file=sys.stderr)


def fill() -> None:
    """Ends the drain that was for an update, if there was one."""
    if not (slots.NOTES / DRAINED).exists():
        return
    why = ""
    for attempt in range(TRIES):
        if attempt:
            time.sleep(AGAIN_S)
        try:
            _call("fleet.fill")
        except EdgertError as error:
            why = str(error)
        else:
            (slots.NOTES / DRAINED).unlink()
            return
    print(f"this board is still drained (edgert fleet fill BOARD): {why}", file=sys.stderr)


def _call(verb: str) -> Any:
    board = ask_agent("fleet.status")["gateway"]
    return ask_agent(verb, {"board": board}, TIMEOUT_S)
