"""Moves between boards amid kills of boards and coordinators, and cuts of links: `moving.py` in small."""

from __future__ import annotations

import json
import random
from pathlib import Path

from tests.gateway.flows.moving import Outcome, run
from tests.waiting import in_loop


@in_loop
async def test_moves_that_are_cut_short_anywhere_lose_double_and_reorder_nothing(tmp_path: Path) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    outcome = await run(seed, 8, 200, tmp_path)
    print(outcome)
    assert outcome.good, outcome
    assert outcome.made == 8


def test_what_came_of_a_seed_can_be_written_as_json() -> None:
    assert json.loads(json.dumps(Outcome(1, 2, faults={"kill": 3}).plain()))["faults"] == {"kill": 3}
