"""Resource-aware greedy in the style of R-Storm (Peng et al., Middleware 2015, section 4; a choice in FGCS 2025, 6.1).

Operators in breadth-first order from the sources, so that those that exchange rows are chosen one after the other. Each
goes to the board with the least distance between what it needs and what the board has left, where distance has three
axes: CPU, memory, and latency to the reference board. Memory and CPU are hard constraints while some board keeps them.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from agent.placement.problem.model import BoardIndexes, PlacementProblem

NETWORK: Final = 1.0
"""Weight of latency beside CPU and memory, all as parts of the greatest in the fleet."""


def resource_aware(problem: PlacementProblem) -> BoardIndexes:
    """One pass; the reference board is the one with the most CPU and memory."""
    boards = problem.boards
    most_cpu, most_memory = max(b.cpu for b in boards), max(b.memory for b in boards)
    farthest = max(map(max, problem.latency_ms)) or 1.0
    cpu = [problem.limit * b.cpu for b in boards]
    memory = [problem.limit * b.memory for b in boards]
    reference = max(range(len(boards)), key=lambda b: cpu[b] / most_cpu + memory[b] / most_memory)
    at = [0] * len(problem.operators)
    for n in breadth_first(problem):
        operator = problem.operators[n]

        def distance(board: int, need_cpu: float = operator.cpu, need_memory: float = operator.memory) -> float:
            spare_cpu = (cpu[board] - need_cpu) / most_cpu
            spare_memory = (memory[board] - need_memory) / most_memory
            way = problem.latency_ms[reference][board] / farthest
            return spare_cpu**2 + spare_memory**2 + NETWORK * way**2

        fits = [b for b in problem.allowed[n] if cpu[b] >= operator.cpu and memory[b] >= operator.memory]
        if fits:
            board = min(fits, key=distance)
        else:  # the fleet is too small: where least is missing
            board = max(problem.allowed[n], key=lambda b: min(cpu[b] / boards[b].cpu, memory[b] / boards[b].memory))
        at[n] = board
        cpu[board] -= operator.cpu
        memory[board] -= operator.memory
    return at


def breadth_first(problem: PlacementProblem) -> list[int]:
    """Operators by their hops from the sources; those of a graph without a source begin at its first in order."""
    after: list[list[int]] = [[] for _ in problem.operators]
    fed = set()
    for a, b, _, _ in problem.links:
        after[a].append(b)
        if a != b:
            fed.add(b)
    seen: dict[int, None] = {}
    sources = [n for n in problem.order if n not in fed]
    for start in (*sources, *problem.order):
        queue = deque([start] if start not in sources or start not in seen else [])
        if start in sources and not seen:
            queue = deque(sources)
        while queue:
            n = queue.popleft()
            if n not in seen:
                seen[n] = None
                queue.extend(after[n])
    return list(seen)
