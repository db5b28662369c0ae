"""A fleet on a virtual clock: the product's own decisions, moves that take no time."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field

from agent.interference.exchange import Candidate, Exchange, Rules
from agent.interference.ring import WINDOWS, Ring, board_ring
from agent.interference.score import Crowd, Footprint, Room


def flat(cpu: float, link: float = 0.0) -> Ring:
    """The same in all windows."""
    return Ring((cpu,) * WINDOWS, (link,) * WINDOWS)


@dataclass
class SimulatedBoard:
    """One board with its instances."""

    gateway: str
    instances: dict[str, Footprint]
    crowd: Crowd
    exchange: Exchange


@dataclass
class SimulatedFleet:
    """Boards that evaluate by turns, in an order drawn anew each time."""

    rng: random.Random
    boards: list[SimulatedBoard] = field(default_factory=list)
    moves: list[tuple[float, str, str, str]] = field(default_factory=list)
    """When, instance, from, to."""

    def add(self, gateway: str, instances: Mapping[str, Ring], room: Room, rules: Rules) -> None:
        footprints = {name: Footprint(ring) for name, ring in instances.items()}
        crowd = Crowd(board_ring(instances.values()), room)
        self.boards.append(SimulatedBoard(gateway, footprints, crowd, Exchange(rules)))

    def round(self, now: float) -> None:
        """Every board evaluates once."""
        for board in self.rng.sample(self.boards, len(self.boards)):
            self._evaluate(board, now)

    def _evaluate(self, board: SimulatedBoard, now: float) -> None:
        name = board.exchange.offer(board.crowd, board.instances, now)
        if name is None:
            return
        others = {b.gateway: b for b in self.boards if b is not board and not b.exchange.cooling(now)}
        candidates = [Candidate(gateway, other.crowd) for gateway, other in others.items()]
        move = board.exchange.choose(name, board.instances[name], board.crowd, candidates)
        if move is None:
            board.exchange.refused(name, now)
            return
        target = others[move.to]
        footprint = target.instances[name] = board.instances.pop(name)
        board.crowd.change(left=[footprint])
        target.crowd.change(arrived=[footprint])
        board.exchange.moved(now)
        target.exchange.moved(now)
        self.moves.append((now, name, board.gateway, move.to))
