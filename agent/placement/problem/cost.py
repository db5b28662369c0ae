"""The score of an assignment and the constraints that it breaks, kept up to date move by move (FGCS 2025, section 4.2).

A move costs the degree of the operator that moves. The latency term is computed when it is asked for, and then only for
the moved operators and what stands behind them.

The paper counts broken constraints. Here a board that uses twice what it may breaks its constraint more than one that
uses a little too much: the *violation* is the sum of the parts of capacity used beyond the limits. A count has plateaus
(one board far above its limits looks better than two a little above), and in a fleet that is too small for its load it
would put everything onto one board. Violations are compared first, scores only between equal violations.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from agent.placement.problem.model import BoardIndexes, PlacementProblem

EPSILON: Final = 1e-9
"""Differences below it are rounding."""


class CostWeights(NamedTuple):
    """w1 to w4 of equation 1. w1 is so small that latency decides only between placements that are else equal."""

    latency: float = 1e-6
    boards: float = 1.0
    edges: float = 1.0
    rows: float = 1.0


PAPER: Final = CostWeights()


class CostTerms(NamedTuple):
    """The terms of the score, before their weights."""

    latency_ms: float
    """s_lat: sum of link latencies on the longest path from a source to a sink."""
    boards: float
    """s_sup: boards used / boards."""
    edges: float
    """s_co: edges between boards / edges."""
    rows: float
    """s_event: rows that cross between boards / all rows."""

    def score(self, weights: CostWeights = PAPER) -> float:
        return sum(w * term for w, term in zip(weights, self, strict=True))


class Violations(NamedTuple):
    """Constraints that an assignment breaks, counted, and by how much."""

    cpu: int
    memory: int
    bandwidth: int
    """Boards that would send more, and boards that would receive more, than they can."""
    pins: int
    """Operators on a board that their pins or labels exclude."""
    amount: float
    """Sum of the parts of capacity used beyond the limits, and 1 per excluded board."""


class Rank(NamedTuple):
    """The order of placements, as a tuple: less is better."""

    violation: float
    score: float

    def better_than(self, other: Rank) -> bool:
        """Less violation, or the same and a better score; differences by rounding are none."""
        if abs(self.violation - other.violation) > EPSILON:
            return self.violation < other.violation
        return self.score < other.score - EPSILON


class Evaluation:
    """An assignment with its score. `at` is the number of the board of each operator: read it, change it by `move`."""

    def __init__(self, problem: PlacementProblem, at: Sequence[int], weights: CostWeights = PAPER) -> None:
        self.problem, self.weights = problem, weights
        self.at: BoardIndexes = list(at)
        boards, operators = problem.boards, problem.operators
        limit = problem.limit
        self._cpu = [o.cpu for o in operators]
        self._memory = [o.memory for o in operators]
        self.room_cpu = [limit * b.cpu for b in boards]
        self.room_memory = [limit * b.memory for b in boards]
        self._room_link = [limit * b.bandwidth for b in boards]
        self.cpu = [0.0] * len(boards)
        self.memory = [0.0] * len(boards)
        self.sent = [0.0] * len(boards)
        self.received = [0.0] * len(boards)
        self.members: list[set[int]] = [set() for _ in boards]
        self._may = [frozenset(may) for may in problem.allowed]
        self._total_edges = len(problem.links) or 1
        self._total_rows = sum(rows for _, _, rows, _ in problem.links) or 1.0
        self._out: list[list[tuple[int, float, float]]] = [[] for _ in operators]
        self._in: list[list[tuple[int, float, float]]] = [[] for _ in operators]
        self._crossing, self._crossing_rows = 0, 0.0
        for a, b, rows, size in problem.links:
            if a != b:
                self._out[a].append((b, rows, size))
                self._in[b].append((a, rows, size))
        self._order_paths()
        self._place_all()

    def _order_paths(self) -> None:
        index = {operator: n for n, operator in enumerate(self.problem.order)}
        self._index = [index[n] for n in range(len(self.at))]
        self._above = [sorted({a for a, _, _ in self._in[n] if index[a] < index[n]}) for n in range(len(self.at))]
        self._below = [sorted({b for b, _, _ in self._out[n] if index[b] > index[n]}) for n in range(len(self.at))]
        self._path = [0.0] * len(self.at)
        self._stale = set(range(len(self.at)))

    def _place_all(self) -> None:
        for operator, board in enumerate(self.at):
            self.cpu[board] += self._cpu[operator]
            self.memory[board] += self._memory[operator]
            self.members[board].add(operator)
        for a, b, rows, size in self.problem.links:
            if self.at[a] != self.at[b]:
                self._crossing += 1
                self._crossing_rows += rows
                self.sent[self.at[a]] += size
                self.received[self.at[b]] += size
        self._used = sum(map(bool, self.members))
        self._excluded = sum(board not in may for board, may in zip(self.at, self._may, strict=True))
        self._excess = [self._excess_of(board) for board in range(len(self.members))]
        self._violation = sum(self._excess)

    def _excess_of(self, board: int) -> float:
        excess = 0.0
        if (over := self.cpu[board] - self.room_cpu[board]) > 0:
            excess += over / self.room_cpu[board]
        if (over := self.memory[board] - self.room_memory[board]) > 0:
            excess += over / self.room_memory[board]
        if (over := self.sent[board] - self._room_link[board]) > 0:
            excess += over / self._room_link[board]
        if (over := self.received[board] - self._room_link[board]) > 0:
            excess += over / self._room_link[board]
        return excess if excess > EPSILON else 0.0

    def move(self, operator: int, to: int) -> int:
        """Put `operator` onto the board `to`; returns the board that it was on."""
        at = self.at
        was = at[operator]
        if was == to:
            return was
        at[operator] = to
        for board, sign in ((was, -1.0), (to, 1.0)):
            self.cpu[board] += sign * self._cpu[operator]
            self.memory[board] += sign * self._memory[operator]
        self._move_edges(self._out[operator], was, to, self.sent, self.received)
        self._move_edges(self._in[operator], was, to, self.received, self.sent)
        self._move_member(operator, was, to)
        may = self._may[operator]
        self._excluded += (to not in may) - (was not in may)
        for board in (was, to):
            new = self._excess_of(board)
            self._violation += new - self._excess[board]
            self._excess[board] = new
        self._stale.add(operator)
        return was

    def _move_edges(
        self, edges: list[tuple[int, float, float]], was: int, to: int, own: list[float], others: list[float]
    ) -> None:
        """`own`: bytes in the direction of the edges as the moved operator sees them, by board; `others`: the other."""
        at = self.at
        for other, rows, size in edges:
            there = at[other]
            if there == was:  # crossed not, crosses now
                self._crossing += 1
                self._crossing_rows += rows
                own[to] += size
                others[was] += size
            elif there == to:
                self._crossing -= 1
                self._crossing_rows -= rows
                own[was] -= size
                others[to] -= size
            else:
                own[was] -= size
                own[to] += size

    def _move_member(self, operator: int, was: int, to: int) -> None:
        self.members[was].discard(operator)
        self._used += (not self.members[to]) - (not self.members[was])
        self.members[to].add(operator)

    def excess(self, board: int) -> float:
        """Parts of its capacities that `board` uses beyond its limits."""
        return self._excess[board]

    def has_room(self, operator: int, board: int) -> bool:
        """True if `board` has CPU and memory left for one more `operator`."""
        return self.cpu[board] + self._cpu[operator] <= self.room_cpu[board] + EPSILON and self.memory[
            board
        ] + self._memory[operator] <= self.room_memory[board] * (1 + EPSILON)

    def can_swap(self, one: int, other: int) -> bool:
        """True if both boards stay within CPU, or that of `one` becomes less overloaded."""
        here, there = self.at[one], self.at[other]
        more = self._cpu[other] - self._cpu[one]
        fits_here = more <= 0 or self.cpu[here] + more <= self.room_cpu[here] + EPSILON
        return fits_here and (more >= 0 or self.cpu[there] - more <= self.room_cpu[there] + EPSILON)

    @property
    def violation(self) -> float:
        """The amount of the violations, as in `Violations.amount`."""
        amount = self._violation + self._excluded
        return amount if amount > EPSILON else 0.0

    @property
    def rough(self) -> float:
        """The score without its latency term: a lower bound that costs nothing."""
        w = self.weights
        return (
            w.boards * self._used / len(self.members)
            + w.edges * self._crossing / self._total_edges
            + w.rows * self._crossing_rows / self._total_rows
        )

    def may_beat(self, best: Rank) -> bool:
        """False if this assignment cannot be better than `best`, whatever its latency is."""
        violation = self.violation
        if abs(violation - best.violation) > EPSILON:
            return violation < best.violation
        return self.rough < best.score - EPSILON

    @property
    def rank(self) -> Rank:
        return Rank(self.violation, self.rough + self.weights.latency * self.latency_ms)

    @property
    def latency_ms(self) -> float:
        """s_lat; computed for the operators that moved since it was asked last, and for those behind them."""
        if self._stale:
            self._update_paths()
        return max(self._path, default=0.0)

    def _update_paths(self) -> None:
        at, path, stale, delays = self.at, self._path, self._stale, self.problem.latency_ms
        for operator in list(stale):  # the links behind a moved operator changed, too
            stale.update(self._below[operator])
        first = min(self._index[operator] for operator in stale)
        for operator in self.problem.order[first:]:
            if operator in stale:
                board = at[operator]
                new = max((path[a] + delays[at[a]][board] for a in self._above[operator]), default=0.0)
                if new != path[operator]:
                    path[operator] = new
                    stale.update(self._below[operator])
        stale.clear()

    @property
    def terms(self) -> CostTerms:
        return CostTerms(
            self.latency_ms,
            self._used / (len(self.members) or 1),
            self._crossing / self._total_edges,
            self._crossing_rows / self._total_rows,
        )

    @property
    def violations(self) -> Violations:
        """Counted."""

        def count(used: Iterable[float], room: Iterable[float]) -> int:
            return sum(u > r * (1 + EPSILON) for u, r in zip(used, room, strict=True))

        links = count(self.sent, self._room_link) + count(self.received, self._room_link)
        cpu, memory = count(self.cpu, self.room_cpu), count(self.memory, self.room_memory)
        return Violations(cpu, memory, links, self._excluded, self.violation)


def best_of(
    problem: PlacementProblem, assignments: Iterable[Sequence[int]], weights: CostWeights = PAPER
) -> BoardIndexes:
    """The best of some assignments, the first among equals."""
    best: Evaluation | None = None
    for at in assignments:
        tried = Evaluation(problem, at, weights)
        if best is None or tried.rank.better_than(best.rank):
            best = tried
    if best is None:
        raise ValueError("expected at least one assignment, got none")
    return best.at
