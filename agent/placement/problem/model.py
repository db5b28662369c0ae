"""The placement problem: operators, the edges between them, boards, latencies (FGCS 2025, section 4.2).

A problem holds the operators of all flows of a fleet. Heuristics work on an *assignment*: the number of a board for
each operator, in the order of `PlacementProblem.operators`. People and other programs see a *placement*: names.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import inf, isfinite
from typing import Final, NamedTuple

from agent.placement.problem.cyclic_order import order
from edgert.core.errors import EdgertError

LIMIT: Final = 0.95
"""Part of a board's CPU, memory and bandwidth that operators may use (section 4.2)."""
MS_PER_S: Final = 1000.0

BoardIndexes = list[int]
"""Number of the board of each operator."""
Placement = Mapping[str, str]
"""Gateway id of each operator's board, by the operator's name."""


class PlacementError(EdgertError):
    """A problem that no placement can solve, or that contradicts itself; the message names the part at fault."""


@dataclass(frozen=True, slots=True)
class PlacedOperator:
    """One physical instance."""

    name: str
    """Unique in the problem; for instances of flows `FLOW/INSTANCE`."""
    cpu: float = 0.0
    """Reference core-seconds per second: time on a core × that core's speed beside the reference core."""
    memory: float = 0.0
    """Bytes."""
    gateways: frozenset[str] = frozenset()
    """The only boards that may run it (a sensor's source, an actuator's sink); empty: any."""
    labels: frozenset[str] = frozenset()
    """Labels that its board must have."""
    copy_of: str = ""
    """The logical operator of which it is a copy; empty: it has no copies."""

    @property
    def logical(self) -> str:
        """The logical operator."""
        return self.copy_of or self.name


class PlacedEdge(NamedTuple):
    """Rows and bytes per second from one operator to another, by name."""

    source: str
    target: str
    rows: float = 0.0
    bytes: float = 0.0


@dataclass(frozen=True, slots=True)
class CandidateBoard:
    """A gateway that can run operators."""

    gateway: str
    cpu: float
    """Capacity in reference cores."""
    memory: float
    """Bytes that operators may share."""
    labels: frozenset[str] = frozenset()
    bandwidth: float = inf
    """Bytes per second that it can send to other boards, and as many that it can receive."""
    slots: int = 1
    """Processes that run instances; only `even` and `locality-fairness` count them."""
    drained: bool = False
    """True if the board runs only operators that are pinned to it."""


@dataclass(frozen=True)
class PlacementProblem:
    """The data that a heuristic may use. Raises `PlacementError` if an operator has no board that may run it."""

    operators: tuple[PlacedOperator, ...]
    edges: tuple[PlacedEdge, ...]
    boards: tuple[CandidateBoard, ...]
    latency_ms: tuple[tuple[float, ...], ...]
    """One way, from the board of the row to that of the column."""
    limit: float = LIMIT
    allowed: tuple[tuple[int, ...], ...] = field(init=False)
    """Boards whose pins and labels let them run each operator, by number."""

    def __post_init__(self) -> None:
        self._check()
        object.__setattr__(self, "allowed", tuple(self._may_run(operator) for operator in self.operators))

    @cached_property
    def number(self) -> dict[str, int]:
        """Number of each operator, by name."""
        return {operator.name: n for n, operator in enumerate(self.operators)}

    @cached_property
    def board_number(self) -> dict[str, int]:
        """Number of each board, by gateway id."""
        return {board.gateway: n for n, board in enumerate(self.boards)}

    @cached_property
    def links(self) -> tuple[tuple[int, int, float, float], ...]:
        """Edges with numbers of operators: source, target, rows/s, bytes/s."""
        return tuple((self.number[e.source], self.number[e.target], e.rows, e.bytes) for e in self.edges)

    @cached_property
    def order(self) -> tuple[int, ...]:
        """Operators from sources to sinks; an edge that leads backwards in it closes a cycle and counts no latency."""
        levels = order(range(len(self.operators)), [(a, b) for a, b, _, _ in self.links])
        return tuple(operator for level in levels for operator in level)

    def assignment(self, placement: Placement) -> BoardIndexes:
        """Board numbers of `placement`. An operator without a board in this problem gets the first that may run it."""
        return [
            self.board_number.get(placement.get(operator.name, ""), may[0])
            for operator, may in zip(self.operators, self.allowed, strict=True)
        ]

    def placement(self, at: Sequence[int]) -> dict[str, str]:
        """Names of an assignment."""
        return {o.name: self.boards[board].gateway for o, board in zip(self.operators, at, strict=True)}

    def _check(self) -> None:
        for kind, names in (
            ("operator", [o.name for o in self.operators]),
            ("board", [b.gateway for b in self.boards]),
        ):
            if twice := sorted({name for name in names if names.count(name) > 1}):
                raise PlacementError(f"expected every {kind} once, got {twice[0]!r} twice or more")
        known = {operator.name for operator in self.operators}
        for edge in self.edges:
            if missing := {edge.source, edge.target} - known:
                raise PlacementError(
                    f"edge {edge.source!r} → {edge.target!r}: expected operators of the problem, got {min(missing)!r}"
                )
        figures = [n for o in self.operators for n in (o.cpu, o.memory)] + [n for e in self.edges for n in e[2:]]
        figures += [delay for row in self.latency_ms for delay in row]
        if not all(isfinite(n) and n >= 0 for n in figures):
            raise PlacementError("expected costs, rates and latencies that are finite and at least 0")
        for board in self.boards:
            if not (board.cpu > 0 and board.memory > 0 and board.bandwidth > 0 and board.slots > 0):
                raise PlacementError(f"board {board.gateway!r}: expected capacities above 0, got {board}")
        boards = len(self.boards)
        if len(self.latency_ms) != boards or any(len(row) != boards for row in self.latency_ms):
            raise PlacementError(f"expected {boards} × {boards} latencies, one per pair of boards")

    def _may_run(self, operator: PlacedOperator) -> tuple[int, ...]:
        may = tuple(
            n
            for n, board in enumerate(self.boards)
            if (board.gateway in operator.gateways or not (operator.gateways or board.drained))
            and operator.labels <= board.labels
        )
        if not may:
            pins = f"pinned to {', '.join(sorted(operator.gateways))}" if operator.gateways else "not pinned"
            labels = f"needs labels {', '.join(sorted(operator.labels))}" if operator.labels else "needs no label"
            raise PlacementError(
                f"operator {operator.name!r} ({pins}; {labels}): expected a board that may run it, got none of"
                f" {', '.join(map(_told, self.boards)) or 'no boards'}; change its pins, or label or fill a board"
            )
        return may


def _told(board: CandidateBoard) -> str:
    return f"{board.gateway} (drained)" if board.drained else board.gateway
