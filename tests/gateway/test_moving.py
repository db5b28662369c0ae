"""Moves between boards amid kills of boards and coordinators, and cuts of links: `tests.gateway.moving` in small."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.gateway.moving import run
from tests.waiting import in_loop


@pytest.mark.timeout(240)
@in_loop
async def test_moves_that_are_cut_short_anywhere_lose_double_and_reorder_nothing(tmp_path: Path) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    outcome = await run(seed, 8, 200, tmp_path)
    print(outcome)
    assert outcome.good, outcome
    assert outcome.moves == 8
