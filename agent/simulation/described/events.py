"""Faults of a simulated fleet with their times: from the description, or drawn from a seed.

Times are seconds since the flow was deployed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

EventKind = Literal["kill", "card", "restart", "cut", "heal", "clock"]
COORDINATOR: Final = "@coordinator"
"""In place of a board: the one that coordinates the flow when the event comes."""
EARLIEST, LATEST = 0.05, 0.8
"""Parts of the time between which drawn events begin: the rest shows whether the fleet recovers."""
SHORTEST_S: Final = 5.0
LONGEST_S: Final = 90.0
"""Longest random outage of a board or a link."""
ONE_WAY: Final = 0.5
"""Part of the drawn cuts that stop one direction only."""
WHOLE_BOARD: Final = 0.25
"""Part of the drawn cuts that cut a board off from all others."""
FARTHEST_JUMP_S: Final = 86_400.0
Draw = Callable[[], float]


@dataclass(frozen=True, slots=True)
class FleetEvent:
    """`boards`: one, or the two between which a link is cut or healed (one: all links of that board)."""

    at_s: float
    kind: EventKind
    boards: tuple[str, ...]
    for_s: float | None = None
    """After this time a board that was killed or lost its card restarts, a cut link heals; None: another event says
    when."""
    one_way: bool = False
    """Only what the first board sends is lost: to the second one, or to all."""
    by_s: float = 0.0
    """How far the wall clock jumps."""

    def __str__(self) -> str:
        a, b = self.boards[0], self.boards[-1]
        others = "all others" if len(self.boards) == 1 else b
        back = "" if self.for_s is None else f" for {self.for_s:.1f} s"
        match self.kind:
            case "kill":
                return f"{a} loses its power{back}"
            case "card":
                return f"{a} loses its card and its power{back}"
            case "restart":
                return f"{a} starts"
            case "cut" if self.one_way:
                return f"nothing that {a} sends arrives at {others}{back}"
            case "cut":
                return f"{a} and {others} are cut apart{back}"
            case "heal":
                return f"{a} and {others} hear each other again"
            case "clock":
                return f"the wall clock of {a} jumps by {self.by_s:+.1f} s"


def drawn(
    draw: Draw, boards: Sequence[str], seconds: float, kills: int, cuts: int, jumps: int
) -> tuple[FleetEvent, ...]:
    """Events by a source of random numbers from 0 to below 1, in the order of their times."""

    def between(low: float, high: float) -> float:
        return round(low + (high - low) * draw(), 1)

    def board(among: Sequence[str]) -> str:
        return among[int(draw() * len(among))]

    def at() -> float:
        return between(EARLIEST * seconds, LATEST * seconds)

    def outage() -> float:
        return between(SHORTEST_S, max(SHORTEST_S, min(LONGEST_S, seconds / 4)))

    found = [FleetEvent(at(), "kill", (board(boards),), outage()) for _ in range(kills)]
    for _ in range(cuts if len(boards) > 1 else 0):
        first = board(boards)
        pair = (first,) if draw() < WHOLE_BOARD else (first, board([name for name in boards if name != first]))
        found.append(FleetEvent(at(), "cut", pair, outage(), draw() < ONE_WAY))
    for _ in range(jumps):
        farthest = FARTHEST_JUMP_S ** draw()
        found.append(
            FleetEvent(at(), "clock", (board(boards),), by_s=round(farthest if draw() < 0.5 else -farthest, 1))
        )
    return tuple(sorted(found, key=lambda event: event.at_s))
