"""In which order results are taken."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgert.central.landing.acceptance import Acceptance, SourceKey, Verdict

KEY: SourceKey = ("g", "flow", 1, 0)
OTHER: SourceKey = ("g", "flow", 1, 1)
Item = tuple[SourceKey, int]


def offer(acceptance: Acceptance[Item], key: SourceKey, sequence: int, size: int = 10, now: float = 0.0) -> Verdict:
    return acceptance.offer(key, sequence, (key, sequence), size, now)


@pytest.fixture
def acceptance() -> Acceptance[Item]:
    made: Acceptance[Item] = Acceptance(hold_s=5.0, hold_bytes=100)
    made.learn(KEY, 0)
    return made


def test_result_after_a_gap_waits_for_the_missing_one(acceptance: Acceptance[Item]) -> None:
    assert offer(acceptance, KEY, 2) is Verdict.HELD
    assert acceptance.take() == []
    assert offer(acceptance, KEY, 1) is Verdict.TAKEN
    assert acceptance.take() == [(KEY, 1), (KEY, 2)]
    assert acceptance.held_bytes == 0


def test_known_result_is_a_duplicate(acceptance: Acceptance[Item]) -> None:
    acceptance.learn(KEY, 7)
    assert offer(acceptance, KEY, 7) is Verdict.DUPLICATE
    assert offer(acceptance, KEY, 8) is Verdict.TAKEN
    assert offer(acceptance, KEY, 8) is Verdict.DUPLICATE


def test_hold_that_expires_is_dropped_and_may_come_again(acceptance: Acceptance[Item]) -> None:
    offer(acceptance, KEY, 2, now=0.0)
    assert acceptance.expire(4.9) == 0
    assert acceptance.expire(5.0) == 1
    assert not acceptance.knows(KEY), "another collector may have landed what is missing"
    acceptance.learn(KEY, 0)
    assert offer(acceptance, KEY, 1, now=6.0) is Verdict.TAKEN
    assert acceptance.take() == [(KEY, 1)]
    assert offer(acceptance, KEY, 2, now=6.0) is Verdict.TAKEN


def test_what_is_held_is_bounded_in_bytes(acceptance: Acceptance[Item]) -> None:
    assert offer(acceptance, KEY, 2, size=60) is Verdict.HELD
    assert offer(acceptance, KEY, 3, size=60) is Verdict.FULL
    assert offer(acceptance, KEY, 1, size=60) is Verdict.TAKEN


def test_a_stream_of_which_nothing_can_be_held_is_learned_anew_after_a_while() -> None:
    acceptance: Acceptance[Item] = Acceptance(0.0, 100)
    acceptance.learn(KEY, 0)
    assert offer(acceptance, KEY, 3, now=0.0) is Verdict.FULL
    assert acceptance.expire(0.5) == 0
    assert offer(acceptance, KEY, 3, now=0.6) is Verdict.FULL
    assert acceptance.expire(1.0) == 0
    assert not acceptance.knows(KEY)
    acceptance.learn(KEY, 2)
    assert offer(acceptance, KEY, 3, now=1.0) is Verdict.TAKEN


def test_second_stream_waits_until_its_epoch_is_opened(acceptance: Acceptance[Item]) -> None:
    acceptance.learn(OTHER, 0)
    assert offer(acceptance, OTHER, 1) is Verdict.HELD
    assert acceptance.take() == []
    assert offer(acceptance, KEY, 1) is Verdict.TAKEN
    assert acceptance.take() == [(KEY, 1), (OTHER, 1)]


def test_learning_that_the_epoch_is_open_frees_its_second_stream(acceptance: Acceptance[Item]) -> None:
    acceptance.learn(OTHER, 0)
    offer(acceptance, OTHER, 1)
    acceptance.learn(KEY, 3)
    assert acceptance.take() == [(OTHER, 1)]


def test_forgotten_stream_is_learned_anew(acceptance: Acceptance[Item]) -> None:
    offer(acceptance, KEY, 1)
    offer(acceptance, KEY, 3)
    acceptance.forget(KEY)
    assert not acceptance.knows(KEY)
    assert (acceptance.held_items, acceptance.held_bytes) == (0, 0)
    acceptance.learn(KEY, 0)
    acceptance.take()
    assert offer(acceptance, KEY, 1) is Verdict.TAKEN


@given(
    st.integers(0, 2**32),
    st.dictionaries(st.sampled_from([KEY, OTHER, ("h", "flow", 1, 0), ("g", "flow", 2, 0)]), st.integers(1, 12)),
)
def test_whatever_is_lost_doubled_or_overtaken_each_stream_is_taken_once_and_in_order(
    seed: int, lengths: dict[SourceKey, int]
) -> None:
    """An outbox that sends all that is not acknowledged, over a network that does what it likes, and a collector that
    forgets everything now and then, against the simplest model: a list per stream."""
    rng = random.Random(seed)
    lengths.setdefault(KEY, 1)  # an epoch's first result is always its opening batch
    landed: dict[SourceKey, list[int]] = {key: [] for key in lengths}
    acceptance: Acceptance[Item] = Acceptance(rng.choice([0.0, 2.0, 50.0]), rng.choice([0, 30, 1000]))
    for step in range(400):
        # From step 300 on nothing is lost or overtaken any more, so that the walk ends.
        calm = step >= 300
        waiting = [(k, n) for k, m in lengths.items() for n in range(len(landed[k]) + 1, m + 1)]
        waiting.sort() if calm else rng.shuffle(waiting)
        for key, sequence in waiting if calm else waiting[: rng.randint(0, 3)]:
            for stream in (key, (*key[:3], 0)):
                if not acceptance.knows(stream):
                    acceptance.learn(stream, len(landed.get(stream, ())))
            offer(acceptance, key, sequence, size=rng.randint(1, 20), now=float(step))
        acceptance.expire(float(step))
        for key, sequence in acceptance.take():
            landed[key].append(sequence)
            if key == OTHER:
                assert landed[KEY], "a row of an epoch that was not opened"
        assert acceptance.held_bytes <= 1000
        if not calm and rng.random() < 0.1:  # a crash: nothing but the tables is known
            acceptance = Acceptance(5.0, 1000)
    for key, length in lengths.items():
        assert landed[key] == list(range(1, length + 1))


def test_longest_unused_stream_is_forgotten_with_what_was_held_of_it() -> None:
    acceptance: Acceptance[Item] = Acceptance(hold_s=5.0, hold_bytes=100, most_streams=2)
    acceptance.learn(KEY, 0)
    offer(acceptance, KEY, 2)
    for epoch in range(2, 50):
        acceptance.learn(("g", "flow", epoch, 0), 0)
        assert not acceptance.knows(("g", "flow", epoch - 2, 0))
    assert not acceptance.knows(KEY)
    assert (acceptance.held_items, acceptance.held_bytes) == (0, 0)
    assert (acceptance.expire(0.0), acceptance.expire(99.0)) == (1, 0)
    acceptance.learn(KEY, 0)
    assert offer(acceptance, KEY, 1) is Verdict.TAKEN
