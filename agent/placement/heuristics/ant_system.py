"""Ant system: random placements, drawn towards boards that made good ones before (FGCS 2025, section 4.3.2)."""

from __future__ import annotations

from bisect import bisect
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Final

from agent.placement.problem.budget import Budget, Draw
from agent.placement.problem.cost import PAPER, CostWeights, Evaluation, Rank
from agent.placement.problem.model import BoardIndexes, PlacementProblem

PENALTY: Final = 10_000.0
"""Score that a violation of 1 counts as (section 4.3.2)."""


@dataclass(frozen=True, slots=True)
class Colony:
    """Parameters. The paper names them and gives no values; these did well on its kind of topologies."""

    ants: int = 10
    """m: placements between two updates of the pheromone."""
    alpha: float = 1.0
    """Weight of the pheromone; 0: experience counts nothing."""
    beta: float = 2.0
    """Weight of the rule of thumb; 0: neighbours and room count nothing."""
    persistence: float = 0.8
    """ρ: part of the pheromone that stays; 1: nothing is forgotten."""
    quantity: float = 1.0
    """Q: pheromone of a placement with score 1."""
    initial: float = 1.0
    """p_i."""
    minimum: float = 0.02
    """p_min: what is left anywhere, so that other ways are tried for ever."""
    current: int = 5
    """p_c: how often the current placement is laid first."""
    patience: int = 25
    """Rounds without a better placement after which the search ends."""


def ant_system(
    problem: PlacementProblem,
    start: Sequence[int] | None,
    budget: Budget,
    draw: Draw,
    weights: CostWeights = PAPER,
) -> BoardIndexes:
    """The best placement that an ant made, or `start` if that is better."""
    colony = Colony()
    ants = _Ants(problem, draw, colony)
    best: Evaluation | None = None
    if start is not None:
        best = Evaluation(problem, start, weights)
        ants.lay([(best.at, best.rank)] * colony.current)
    idle = 0
    while best is None or (idle < colony.patience and not budget.used_up()):
        made: list[tuple[BoardIndexes, Rank]] = []
        idle += 1
        for _ in range(colony.ants):
            ant = Evaluation(problem, ants.walk(), weights)
            made.append((ant.at, ant.rank))
            if best is None or ant.rank.better_than(best.rank):
                best, idle = ant, 0
            if not budget.spend():
                break
        ants.lay(made)
    return best.at


class _Ants:
    def __init__(self, problem: PlacementProblem, draw: Draw, colony: Colony) -> None:
        self.problem, self.draw, self.colony = problem, draw, colony
        boards = range(len(problem.boards))
        self.double, self.half = 2.0**colony.beta, 0.5**colony.beta
        self.cpu = [o.cpu for o in problem.operators]
        self.memory = [o.memory for o in problem.operators]
        self.room_cpu = [problem.limit * b.cpu for b in problem.boards]
        self.room_memory = [problem.limit * b.memory for b in problem.boards]
        self.near: list[list[int]] = [[] for _ in problem.operators]
        for a, b, _, _ in problem.links:
            if a != b:
                self.near[a].append(b)
                self.near[b].append(a)
        self.pheromone = [[colony.initial] * len(may) for may in problem.allowed]
        self.index = [{board: n for n, board in enumerate(may)} for may in problem.allowed]
        self.alone = [
            [
                (self.half if self.cpu[o] > self.room_cpu[b] else 1.0)
                * (self.half if self.memory[o] > self.room_memory[b] else 1.0)
                for b in may
            ]
            for o, may in enumerate(problem.allowed)
        ]
        """Rule of thumb for boards that nothing is on yet."""
        self.boards = boards
        self._weigh()

    def _weigh(self) -> None:
        alpha = self.colony.alpha
        self.attraction = [
            [p**alpha * e for p, e in zip(row, alone, strict=True)]
            for row, alone in zip(self.pheromone, self.alone, strict=True)
        ]

    def walk(self) -> BoardIndexes:
        """One ant's placement: operators in a random order, each to a board by equations 2 and 3."""
        draw, allowed = self.draw, self.problem.allowed
        at = [-1] * len(allowed)
        cpu, memory = [0.0] * len(self.boards), [0.0] * len(self.boards)
        used: set[int] = set()
        for _, operator in sorted((draw(), o) for o in range(len(at))):
            may, index = allowed[operator], self.index[operator]
            chances = self.attraction[operator].copy()
            near = {at[n] for n in self.near[operator]}
            for board in used:
                if (n := index.get(board)) is None:
                    continue
                factor = self.double * (self.double if board in near else 1.0)
                if cpu[board] + self.cpu[operator] > self.room_cpu[board]:
                    factor *= self.half
                if memory[board] + self.memory[operator] > self.room_memory[board]:
                    factor *= self.half
                chances[n] = factor * chances[n] / self.alone[operator][n]
            sums = list(accumulate(chances))
            board = may[min(bisect(sums, draw() * sums[-1]), len(may) - 1)]
            at[operator] = board
            cpu[board] += self.cpu[operator]
            memory[board] += self.memory[operator]
            used.add(board)
        return at

    def lay(self, made: Sequence[tuple[BoardIndexes, Rank]]) -> None:
        """Decay, then the pheromone of some placements (equations 4 and 5)."""
        colony = self.colony
        for row in self.pheromone:
            row[:] = [p * colony.persistence for p in row]
        for at, rank in made:
            amount = colony.quantity / max(rank.score + PENALTY * rank.violation, 1e-3)
            for operator, board in enumerate(at):
                if (n := self.index[operator].get(board)) is not None:
                    self.pheromone[operator][n] += amount
        for row in self.pheromone:
            row[:] = [max(p, colony.minimum) for p in row]
        self._weigh()
