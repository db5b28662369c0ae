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
        for board in self.boards:
            board.exchange.peaks.observe(board.crowd.load, now)
        for board in self.rng.sample(self.boards, len(self.boards)):
            self._evaluate(board, now)

    def _evaluate(self, board: SimulatedBoard, now: float) -> None:
        free = {name: one for name, one in board.instances.items() if board.exchange.free([name], now)}
        name = board.exchange.offer(board.crowd, free, now)
        if name is None:
            return
        others = {b.gateway: b for b in self.boards if b is not board and not b.exchange.cooling(now)}
        candidates = [Candidate(b.gateway, b.crowd, b.exchange.peaks.load) for b in others.values()]
        move = board.exchange.choose(name, board.instances[name], board.crowd, candidates)
        footprint = board.instances[name]
        most = board.exchange.most_there(footprint, board.crowd)
        urgent = board.exchange.urgent
        if move is None or not others[move.to].exchange.admits(footprint, others[move.to].crowd, most, now, urgent):
            board.exchange.refused([name], now)
            return
        target = others[move.to]
        target.instances[name] = board.instances.pop(name)
        board.crowd.change(left=[footprint])
        target.crowd.change(arrived=[footprint])
        board.exchange.gave(board.crowd.share(footprint.ring), now)
        target.exchange.took([name], target.crowd.share(footprint.ring), now, urgent)
        self.moves.append((now, name, board.gateway, move.to))
