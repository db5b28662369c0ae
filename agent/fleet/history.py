"""The moves of operators that this agent made as the coordinator of their flows: with their reason, pause and cost.

The coordinator keeps them, whoever asked for the move, and in a file: a board that is drained for an update restarts.
"""

from __future__ import annotations

import json
import logging
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, get_args

from agent.membership.files import replace_file
from edgert.core.clock import Clock

log = logging.getLogger(__name__)
FILE: Final = "moves.json"
KEPT: Final = 100
"""Moves that are kept for people to read."""
NAMED: Final = 6
"""Operators of a move that are named."""
By = Literal["board", "drain", "person", "placement", "version", "coordinator"]
"""The mover: a crowded board, a drain or its end, a person, a heuristic by itself, or the way to the next version of
the flow, or to its end; or the coordinator that ended what the one before had left."""


class Why(NamedTuple):
    """The mover of operators, and its reason."""

    by: By
    reason: str
    """A sentence of its own where a board moves; else it stands behind the operators, in brackets."""


class MoveHistory:
    """The moves of this agent. `totals`: by figure and by what moved, since the agent began."""

    def __init__(self, clock: Clock, folder: Path | None = None) -> None:
        """`folder`: of the agent's data; None: the moves are in memory only."""
        self._clock, self._file = clock, folder and folder / FILE
        self.kept: deque[dict[str, Any]] = deque(_read(self._file), KEPT)
        self.unfinished: dict[str, tuple[int, Mapping[str, str], Why]] = {}
        """Flow -> plan, placement before it and reason, of a change that is decided and not made everywhere."""
        names = ("moves", "pause_s", "bytes", "rows_delayed")
        self.totals: dict[str, dict[str, float]] = {name: dict.fromkeys(get_args(By), 0) for name in names}

    def note(self, before: Mapping[str, str], why: Why, made: Mapping[str, Any]) -> None:
        """A change of plan that moved operators. `before`: operator copy -> gateway; `made`: as `FleetFlows.change`
        tells it."""
        flow, after = made["flow"], made["assignment"]
        moves = {operator: to for operator, to in after.items() if before[operator] != to}
        told = [f"{operator} to {to}" for operator, to in moves.items()]
        if len(told) > NAMED:
            told[NAMED:] = [f"{len(told) - NAMED} more"]
        sentence = why.reason if why.by == "board" and why.reason else f"{flow}: {', '.join(told)} ({why.reason})"
        costs = {name: made[name] for name in ("pause_s", "rows_delayed", "ahead_bytes", "paused_bytes")}
        givers, takers = (", ".join(sorted(set(some))) for some in (map(before.__getitem__, moves), moves.values()))
        self.kept.append({
            "at": self._clock.wall(), "flow": flow, "from": givers, "to": takers, "by": why.by, "reason": sentence,
            "plan": made["plan"], **costs,
        })  # fmt: skip
        self._store()
        size = made["ahead_bytes"] + made["paused_bytes"]
        figures = {"moves": 1, "pause_s": made["pause_s"], "bytes": size, "rows_delayed": made["rows_delayed"]}
        for name, number in figures.items():
            self.totals[name][why.by] += number

    def note_ended(
        self, flow: str, plan: int, parts: Mapping[str, Mapping[str, Any]], pause: Mapping[str, Any]
    ) -> None:
        """A change of plan that was left is made now. `parts`: as they stood. What travelled is not known any more."""
        number, before, why = self.unfinished.pop(flow, (plan, {}, Why("coordinator", "its coordinator had left it")))
        holding = [part for part in parts.values() if part.get("prepared_plan") == plan]
        before = before or _on(next((part for part in holding if part.get("assignment")), {}).get("assignment", {}))
        after = _on(holding[0]["prepared_assignment"]) if holding else {}
        if before and after and number == plan:
            made = {"flow": flow, "plan": plan, "assignment": after, "ahead_bytes": 0, "paused_bytes": 0, **pause}
            self.note(before, why, made)

    def _store(self) -> None:
        if self._file is not None:
            try:
                replace_file(self._file, json.dumps(list(self.kept)))
            except OSError as error:
                log.warning("%s: the moves are not kept across a restart: %s", self._file, error.strerror or error)


def _on(assignment: Mapping[str, Any]) -> dict[str, str]:
    return {operator: at[0] for operator, at in assignment.items()}


def _read(file: Path | None) -> list[dict[str, Any]]:
    """The moves that an agent before wrote; none where the file is damaged."""
    try:
        found = json.loads(file.read_text()) if file is not None and file.exists() else []
    except (OSError, ValueError) as error:
        log.warning("%s: the moves before this start are not known: %s", file, error)
        return []
    return found if isinstance(found, list) and all(isinstance(move, dict) and "at" in move for move in found) else []
