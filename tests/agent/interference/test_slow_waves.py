"""Moves come to an end, or are few, under loads that rise and fall, however slowly."""

from __future__ import annotations

import math
import random
from collections import Counter

import pytest

from agent.interference.exchange import Rules
from agent.interference.ring import board_ring
from agent.interference.score import Crowd, Footprint, Room
from tests.agent.interference.worlds import SimulatedFleet, flat

ROOM = Room(1.0, 1e6)
BOARDS, INSTANCES, HOURS, LOOK_S = 6, 12, 4, 15
RULES = Rules(in_a_row=1, warm_s=600.0)
"""A look every 15 s, not three in that time."""
TOP = 0.95
"""Of its room a board needs so much at the top of its wave, at the foot a third of it."""


def moves_of(seed: int, period_s: float, rules: Rules = RULES) -> list[float]:
    """Moves per board, given and taken, in each hour. The boards' waves are shifted against each other."""
    rng = random.Random(seed)
    fleet = SimulatedFleet(rng)
    weight, phase = {}, {}
    for board in range(BOARDS):
        for name in (f"{board}.{n}" for n in range(INSTANCES)):
            weight[name] = TOP / 1.5 / INSTANCES * rng.uniform(0.5, 1.5)
            phase[name] = board / BOARDS + rng.uniform(-0.05, 0.05)
        fleet.add(f"b{board}", {f"{board}.{n}": flat(0.0) for n in range(INSTANCES)}, ROOM, rules)
    for now in range(0, HOURS * 3_600, LOOK_S):
        for one in fleet.boards:
            rings = {
                name: flat(weight[name] * (1 + 0.5 * math.sin(2 * math.pi * (now / period_s + phase[name]))))
                for name in one.instances
            }
            one.crowd = Crowd(board_ring(rings.values()), ROOM)
            crowded = one.exchange.crowded(one.crowd, now)
            one.instances = {name: Footprint(ring) if crowded else one.instances[name] for name, ring in rings.items()}
        fleet.round(float(now))
    hours = Counter(int(at // 3_600) for at, *_ in fleet.moves)
    return [2 * hours[hour] / BOARDS for hour in range(HOURS)]


@pytest.mark.parametrize("period_s", [120, 900, 3_600, 5_400, 7_200, 10_800])
def test_a_wave_of_any_period_makes_fewer_than_four_moves_per_board_and_hour(period_s: float) -> None:
    """1 s of CPU each: four simulated hours of six boards, two seeds."""
    for seed in (1, 2):
        made = moves_of(seed, period_s)
        print(f"seed {seed}, period {period_s} s: {made}")
        assert max(made) < 4


def test_without_the_budget_slow_waves_make_more() -> None:
    assert max(moves_of(1, 5_400, Rules(in_a_row=1, moves=1_000))) > 4
