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
FILLING: Final = b"filling"
"""In the note: the drain has ended, and operators could not come back yet."""
TRIES: Final = 12
AGAIN_S: Final = 5.0
"""The agent may still start."""
LATER_TRIES: Final = 36
LATER_S: Final = 300.0
"""An operator cannot come back while its flow is changed, or the board where it runs does not answer."""


def drain() -> None:
    """Asks the board's agent. Where there is none, or no other board can take an operator, it stays."""
    folder(slots.NOTES)
    note = slots.NOTES / DRAINED
    ours = note.exists() and note.read_bytes() != FILLING
    write(note, b"")
    try:
        found = _call("fleet.drain")
    except EdgertError as error:
        print(f"this board is not drained: {error}", file=sys.stderr)
        return
    if found.get("before") and not ours:
        note.unlink()  # people have drained it, and fill it
    for flow, why in found["stays"].items():
        print(f"flow {flow} stays on this board: {why}", file=sys.stderr)


def fill() -> None:
    """Ends the drain that was for an update, if there was one. Operators that cannot come back yet are asked for again,
    also after the next start."""
    note, why = slots.NOTES / DRAINED, ""
    known = note.read_bytes() if note.exists() else None
    for attempt in range(TRIES + LATER_TRIES):
        if attempt >= TRIES and known != FILLING:
            break
        if attempt:
            time.sleep(AGAIN_S if attempt < TRIES else LATER_S)
        if known is None or not note.exists() or note.read_bytes() != known:
            return  # drained anew, for another update
        try:
            if known == FILLING and ask_agent("fleet.status").get("drained"):
                note.unlink()  # by people, since
                return
            stays = _call("fleet.fill")["stays"]
        except EdgertError as error:
            why = f"this board is still drained: {error}"
            continue
        if not stays:
            note.unlink()
            return
        if known != FILLING:
            write(note, known := FILLING)
        why = "; ".join(f"flow {flow} stays elsewhere: {reason}" for flow, reason in stays.items())
    print(f"{why}. Try: edgert fleet fill BOARD", file=sys.stderr)


def _call(verb: str) -> Any:
    board = ask_agent("fleet.status")["gateway"]
    return ask_agent(verb, {"board": board}, TIMEOUT_S)
