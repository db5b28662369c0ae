"""The delivery protocol, from a sensor's message to what the fleet table counts: random walks through crashes, cuts,
redelivery, full disks, restored cards, racing collectors, brokers that lose what they had and fleet jobs that stand
still; and the same as a state machine, which finds the shortest way to a failure. `python -m tests.protocol --seeds
0-9999` walks on."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from tests.protocol.board import at_once
from tests.protocol.fleet_side import FLEET_ACTS
from tests.protocol.kinds import (
    AT_LEAST_ONCE,
    BLOCKS,
    CARDS,
    DROPPING,
    EQUAL,
    FILTERS,
    LAST,
    QUOTA,
    RESULTS_FLOW,
    ROTS,
    SLOTS,
)
from tests.protocol.mutants import MUTANTS
from tests.protocol.mutants_central import Patch
from tests.protocol.spark import without_spark
from tests.protocol.truth import check
from tests.protocol.world import ALL_ACTS, World, walk

KINDS = (
    range(60), AT_LEAST_ONCE[:30], RESULTS_FLOW[40:70], ROTS[:30], BLOCKS[:30], SLOTS[:30], QUOTA[:30], EQUAL[:30],
    CARDS[:20], DROPPING[:20], FILTERS[:30],
)  # fmt: skip
QUICK = 7
"""So many walks of each kind are in the quick tests."""
SEEDS = [
    pytest.param(seed, marks=() if at < QUICK else pytest.mark.long) for seeds in KINDS for at, seed in enumerate(seeds)
]
MOST_SEEDS = 60
"""A broken rule is found out in fewer, from the seed on that stands beside it."""

SLOW = {
    "what_a_failed_commit_held_is_dropped", "the_brokers_word_counts", "overlapping_subscriptions_look_alike",
    "checked_with_another_handle_than_written", "what_was_captured_survives_the_death_of_a_slot",
    "acknowledged_when_one_flow_has_it", "every_epoch_counts", "a_fallback_voids_nothing",
    "ids_are_free_before_a_commit_says_so", "a_lost_session_leaves_the_ids", "acknowledged_out_of_order",
    "pages_of_a_failed_commit_are_forgotten", "a_fallback_takes_nothing_again",
}  # fmt: skip
"""Rules whose violation takes a walk many seeds to find."""


@pytest.fixture(autouse=True)
def by_hand() -> Iterator[None]:
    with at_once(), without_spark():
        yield


@pytest.mark.parametrize("seed", SEEDS)
def test_no_message_is_lost_and_none_counted_twice(seed: int, tmp_path: Path) -> None:
    walk(seed, tmp_path)


class Protocol(RuleBasedStateMachine):
    """One act after another, each with chance of its own."""

    @initialize(seed=st.integers(0, LAST))
    def begin(self, seed: int) -> None:
        self.patches = [at_once(), without_spark()]
        for patch in self.patches:
            patch.__enter__()
        self.folder = tempfile.TemporaryDirectory()
        self.world = World(seed, Path(self.folder.name))

    @rule(number=st.integers(0, len(ALL_ACTS) - 1), chance=st.integers(0, 1 << 16))
    def act(self, number: int, chance: int) -> None:
        self.world.draw.seed(chance)
        ALL_ACTS[number][0](self.world)

    @rule(number=st.integers(0, len(FLEET_ACTS) - 1), chance=st.integers(0, 1 << 16))
    def fleet_job(self, number: int, chance: int) -> None:
        self.world.fleet.draw.seed(chance)
        FLEET_ACTS[number][0](self.world.fleet)

    def teardown(self) -> None:
        if not hasattr(self, "world"):
            return
        try:
            self.world.settle()
            check(self.world)
        finally:
            self.world.close()
            self.folder.cleanup()
            for patch in self.patches:
                patch.__exit__(None, None, None)


TestProtocol = Protocol.TestCase
TestProtocol.settings = settings(max_examples=20, stateful_step_count=80, deadline=None)


def broken_rules() -> Iterator[Any]:
    for broken, first in MUTANTS.items():
        name = broken.__name__.strip("_")
        yield pytest.param(broken, first, id=name, marks=pytest.mark.long if name in SLOW else ())


@pytest.mark.parametrize(("broken", "first"), [*broken_rules()])
def test_each_rule_of_the_design_is_needed(
    broken: Callable[[], Patch], first: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    for seed in range(first, first + MOST_SEEDS):
        with without_spark(), broken():
            try:
                walk(seed, tmp_path_factory.mktemp("walk"))
            except AssertionError:
                return
    pytest.fail(f"{MOST_SEEDS} walks without a violation, though a rule was broken")
