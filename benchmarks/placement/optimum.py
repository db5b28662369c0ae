"""The yardstick: the same problem as a mixed-integer program, without latency (its weight is 1e-6), solved by HiGHS."""

from __future__ import annotations

from typing import NamedTuple

import highspy

from agent.placement.problem.cost import PAPER
from agent.placement.problem.model import PlacementProblem


class Bound(NamedTuple):
    """Of the score without latency."""

    lower: float
    """No placement that breaks no constraint is better."""
    proven: bool
    """The solver found a placement as good as that."""


def optimum(problem: PlacementProblem, seconds: float) -> Bound | None:
    """The optimum, or the best bound known after `seconds`; None if there is no placement within the limits."""
    solver = highspy.Highs()  # type: ignore[no-untyped-call]
    solver.setOptionValue("output_flag", False)
    solver.setOptionValue("time_limit", seconds)
    solver.setOptionValue("threads", 1)
    solver.setOptionValue("mip_rel_gap", 1e-4)
    boards, limit = range(len(problem.boards)), problem.limit
    on = [[solver.addBinary() for _ in boards] for _ in problem.operators]
    used = [solver.addBinary() for _ in boards]
    for operator, row in zip(problem.operators, on, strict=True):
        solver.addConstr(sum(row) == 1)
        may = problem.allowed[problem.number[operator.name]]
        for b in boards:
            solver.addConstr(row[b] <= (used[b] if b in may else 0))
    for b, board in enumerate(problem.boards):
        cpu = sum(o.cpu * row[b] for o, row in zip(problem.operators, on, strict=True))
        memory = sum(o.memory / 1e6 * row[b] for o, row in zip(problem.operators, on, strict=True))
        solver.addConstr(cpu <= limit * board.cpu * used[b])
        solver.addConstr(memory <= limit * board.memory / 1e6 * used[b])
    cost = _crossing(problem, solver, on) + PAPER.boards / len(boards) * sum(used)
    solver.minimize(cost)
    status = solver.getModelStatus()
    if status == highspy.HighsModelStatus.kInfeasible:
        return None
    return Bound(solver.getInfo().mip_dual_bound, status == highspy.HighsModelStatus.kOptimal)


def _crossing(
    problem: PlacementProblem, solver: highspy.Highs, on: list[list[highspy.highs_var]]
) -> highspy.highs_linear_expression:
    """The terms for edges and rows between boards, and the limits of the boards' links."""
    boards = range(len(problem.boards))
    rows_sum = sum(rows for _, _, rows, _ in problem.links) or 1.0
    sent: list[list[tuple[float, highspy.highs_var]]] = [[] for _ in boards]
    received: list[list[tuple[float, highspy.highs_var]]] = [[] for _ in boards]
    cost: highspy.highs_linear_expression = 0.0 * on[0][0]
    for a, b, rows, size in problem.links:
        if a == b:
            continue
        leaves = [solver.addVariable(lb=0, ub=1) for _ in boards]
        comes = [solver.addVariable(lb=0, ub=1) for _ in boards]
        for board in boards:
            solver.addConstr(leaves[board] - comes[board] == on[a][board] - on[b][board])
            sent[board].append((size / 1e6, leaves[board]))
            received[board].append((size / 1e6, comes[board]))
        weight = PAPER.edges / len(problem.links) + PAPER.rows * rows / rows_sum
        cost += weight * sum(leaves)
    for board in boards:
        room = problem.limit * problem.boards[board].bandwidth / 1e6
        for parts in (sent[board], received[board]):
            if parts and sum(size for size, _ in parts) > room:
                solver.addConstr(sum(size * crosses for size, crosses in parts) <= room)
    return cost
