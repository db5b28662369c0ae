"""Hill climbing: better and better neighbours of a placement, until none is better (FGCS 2025, section 4.3.1).

The paper's three moves (one operator; two operators swapped; all operators of a board to another one) and a fourth: the
operators of a board spread over others. The third needs a board with room for all of them; the fourth empties boards
that the third cannot.

Neighbours that cannot be better are not tried: a table holds how strongly each board draws each operator (its edges to
operators there, with their weights in the score), so that a glance tells what a move gains before latency. Where
nothing is gained but latency, only moves of one operator are tried.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from agent.placement.problem.budget import Budget, Draw
from agent.placement.problem.cost import EPSILON, PAPER, CostWeights, Evaluation, Rank
from agent.placement.problem.model import BoardIndexes, PlacementProblem

MoveChain = Sequence[tuple[int, int]]
"""Operators, and the boards that they move to, in this order."""
KICKED: int = 4
"""Operators that a kick throws elsewhere."""


def hill_climbing(
    problem: PlacementProblem, start: Sequence[int], budget: Budget, draw: Draw, weights: CostWeights = PAPER
) -> BoardIndexes:
    """A local optimum near `start`, or the best found when the budget ends; never worse than `start`."""
    return Climb(problem, start, budget, draw, weights).climb()


def iterated(
    problem: PlacementProblem,
    start: Sequence[int],
    budget: Budget,
    draw: Draw,
    weights: CostWeights = PAPER,
    patience: int = 150,
) -> BoardIndexes:
    """Climbs from `start`, then from the best found with a few operators thrown elsewhere, again and again.

    It ends with the budget, or after `patience` climbs in a row that found nothing better.
    """
    climb = Climb(problem, start, budget, draw, weights)
    best, rank = list(climb.climb()), climb.best
    idle = 0
    while idle < patience and not budget.used_up():
        climb.kick()
        climb.climb()
        idle += 1
        if climb.best.better_than(rank):
            best, rank, idle = list(climb.state.at), climb.best, 0
        else:
            climb.go(best)
    return best


class Climb:
    """A walk upwards. `state` is where it is, `best` the rank there."""

    def __init__(
        self, problem: PlacementProblem, start: Sequence[int], budget: Budget, draw: Draw, weights: CostWeights = PAPER
    ) -> None:
        self.problem, self.budget, self.draw = problem, budget, draw
        self.state = Evaluation(problem, start, weights)
        self.best: Rank = self.state.rank
        self.may = [frozenset(may) for may in problem.allowed]
        self.board_weight = weights.boards / len(problem.boards)
        self.near: list[dict[int, float]] = [{} for _ in start]
        """Neighbours of each operator, and what it costs to be parted from them."""
        rows_sum = sum(rows for _, _, rows, _ in problem.links) or 1.0
        for a, b, rows, _ in problem.links:
            if a != b:
                cost = weights.edges / len(problem.links) + weights.rows * rows / rows_sum
                self.near[a][b] = self.near[b][a] = self.near[a].get(b, 0.0) + cost
        self.pull = [[0.0] * len(problem.boards) for _ in start]
        for operator, near in enumerate(self.near):
            for other, cost in near.items():
                self.pull[operator][self.state.at[other]] += cost

    def climb(self) -> BoardIndexes:
        """Up to a local optimum. After a better one of the larger neighbours all begins anew with the smallest."""
        kinds: tuple[Callable[[], bool], ...] = (
            lambda: self._walk(self._single()),
            lambda: self._walk(self._swaps()),
            lambda: self._walk(self._boards()),
            self._spread,
        )
        while not self.budget.used_up() and any(improve() for improve in kinds):
            pass
        return self.state.at

    def _walk(self, steps: Iterable[MoveChain]) -> bool:
        """Take every step that is better; True if one was."""
        improved = False
        for step in steps:
            improved |= self._try(step)
            if self.budget.used_up():
                break
        return improved

    def kick(self) -> None:
        """Throw a board's operators, or a few that are near each other, to boards in use; better or not."""
        state = self.state
        if state.violation and self.draw() < 0.5:
            self._repack()
            self.best = state.rank
            return
        used = [b for b, members in enumerate(state.members) if members]
        first = self._one(range(len(state.at)))
        if self.draw() < 0.3:
            thrown = sorted(state.members[state.at[first]])
        else:
            thrown = [first, *self._shuffled(self.near[first])[: KICKED - 1]]
        one = self._one(used) if self.draw() < 0.5 else None
        for operator in thrown:
            to = one if one is not None and one in self.may[operator] else None
            if to is None:
                to = self._one([b for b in used if b in self.may[operator]] or self.problem.allowed[operator])
            self._move(operator, to)
        self.best = state.rank

    def _repack(self) -> None:
        """Pack the operators of an overloaded board and of some others anew: best fit, the largest first.

        A limit that only an exchange of several operators can keep is out of reach of single moves and swaps. Sizes
        are blurred by up to a half, so that each call packs in another order."""
        state = self.state
        crowded = [b for b in range(len(state.members)) if state.excess(b)]
        chosen = {self._one(crowded)} if crowded else set()
        used = [b for b, members in enumerate(state.members) if members]
        chosen.update(self._shuffled(used)[: 1 + int(self.draw() * len(used))])
        loose = [operator for board in sorted(chosen) for operator in sorted(state.members[board])]
        cpu = [operator.cpu for operator in self.problem.operators]
        free = [room - used_cpu for room, used_cpu in zip(state.room_cpu, state.cpu, strict=True)]
        for operator in loose:
            free[state.at[operator]] += cpu[operator]
        for _, operator in sorted((-cpu[o] * (0.5 + 0.5 * self.draw()), o) for o in loose):
            need = cpu[operator]
            fits = [b for b in self.problem.allowed[operator] if free[b] + EPSILON >= need]
            to = min(fits, key=free.__getitem__) if fits else max(self.problem.allowed[operator], key=free.__getitem__)
            free[to] -= need
            self._move(operator, to)

    def go(self, at: Sequence[int]) -> None:
        """To the assignment `at`."""
        for operator, board in enumerate(at):
            if self.state.at[operator] != board:
                self._move(operator, board)
        self.best = self.state.rank

    def _one(self, items: Sequence[int]) -> int:
        return items[int(self.draw() * len(items))]

    def _move(self, operator: int, to: int) -> None:
        was = self.state.move(operator, to)
        for other, cost in self.near[operator].items():
            self.pull[other][was] -= cost
            self.pull[other][to] += cost

    def _try(self, step: MoveChain) -> bool:
        """Take the step if it is better, else leave all as it was."""
        state = self.state
        back = [(operator, state.move(operator, to)) for operator, to in step]
        self.budget.spend()
        return self._keep(back)

    def _keep(self, back: Sequence[tuple[int, int]]) -> bool:
        """Keep what was moved if it is better, else undo it. `back`: operators, and the boards that they were on."""
        state = self.state
        if state.may_beat(self.best) and (rank := state.rank).better_than(self.best):
            self.best = rank
            for operator, was in back:
                to = state.at[operator]
                for other, cost in self.near[operator].items():
                    self.pull[other][was] -= cost
                    self.pull[other][to] += cost
            return True
        for operator, was in reversed(back):
            state.move(operator, was)
        return False

    def _shuffled(self, items: Iterable[int]) -> list[int]:
        return [item for _, item in sorted((self.draw(), item) for item in items)]

    def _single(self) -> Iterator[MoveChain]:
        """One operator to another board."""
        for operator in self._shuffled(range(len(self.state.at))):
            for to in self._worth(operator):
                yield ((operator, to),)

    def _worth(self, operator: int) -> list[int]:
        """Boards to which moving `operator` may be better, the most promising first."""
        state = self.state
        here = state.at[operator]
        if state.excess(here) or here not in self.may[operator]:
            return [b for b in self.problem.allowed[operator] if b != here]
        pull, members = self.pull[operator], state.members
        alone = self.board_weight if len(members[here]) == 1 else 0.0
        least = pull[here] - alone - EPSILON
        found = []
        for board in self.problem.allowed[operator]:
            draws = pull[board] if members[board] else pull[board] - self.board_weight
            if draws >= least and board != here and state.has_room(operator, board):
                found.append((-draws, board))
        return [board for _, board in sorted(found)]

    def _swaps(self) -> Iterator[MoveChain]:
        """Two operators that are not together change places."""
        state, pull, may = self.state, self.pull, self.may
        for one in self._shuffled(range(len(state.at))):
            near, own = self.near[one], pull[one]
            for there in self.problem.allowed[one]:
                here = state.at[one]
                crowded = state.excess(here) > 0
                if here == there or (own[there] <= own[here] and not crowded):
                    continue
                most = own[there] - own[here] - EPSILON
                for other in sorted(state.members[there]):
                    gain = most + pull[other][here] - pull[other][there] - 2 * near.get(other, 0.0)
                    if here in may[other] and (crowded or (gain > 0 and state.can_swap(one, other))):
                        yield ((one, there), (other, here))
                        if state.at[one] != here:
                            break

    def _boards(self) -> Iterator[MoveChain]:
        """All operators of a board to another one."""
        state = self.state
        for board in self._shuffled(b for b, members in enumerate(state.members) if members):
            for to in self._shuffled(range(len(state.members))):
                members = sorted(state.members[board])
                if to == board or not members or state.cpu[board] + state.cpu[to] > state.room_cpu[to] + EPSILON:
                    continue
                if all(to in self.may[operator] for operator in members):
                    yield [(operator, to) for operator in members]

    def _spread(self) -> bool:
        """Empty boards, the emptiest first: each operator goes to the board in use that draws it most."""
        state, improved = self.state, False
        used = [b for b, members in enumerate(state.members) if members]
        for board in sorted(used, key=lambda b: (state.cpu[b], b)):
            if self.budget.used_up():
                break
            improved |= self._empty(board)
        return improved

    def _empty(self, board: int) -> bool:
        state = self.state
        back: list[tuple[int, int]] = []
        for operator in sorted(state.members[board], key=lambda o: (-self.problem.operators[o].cpu, o)):
            pull = self.pull[operator]
            targets = [b for b in self.problem.allowed[operator] if b != board and state.members[b]]
            targets = [b for b in targets if state.has_room(operator, b)]
            if not targets:
                break
            state.move(operator, max(targets, key=lambda b: (pull[b], -b)))
            self.budget.spend()
            back.append((operator, board))
        return bool(back) and self._keep(back)
