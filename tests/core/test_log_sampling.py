"""Events by kind: the first, then a summary a minute."""

from __future__ import annotations

from edgert.core.log_sampling import MOST_KINDS, OTHER, PERIOD_S, LogSampling, is_told


def test_the_first_of_a_kind_is_told_and_the_others_are_summed_up_each_minute() -> None:
    sampling = LogSampling()
    assert sampling.note("no JSON", 3, "first", 0.0) == "first"
    assert sampling.note("too deep", 1, "deep", 1.0) == "deep"
    lines = 0
    for second in range(1, 120):
        assert sampling.note("no JSON", 10, f"at {second}", float(second)) is None
        for kind, count, seconds, newest in sampling.due(float(second)):
            lines += 1
            assert (kind, count, seconds, newest) == ("no JSON", 602, 60.0, "at 60")
    assert lines == 1


def test_a_kind_that_was_silent_for_a_period_is_new_again() -> None:
    sampling = LogSampling()
    assert sampling.note("a", 1, "x", 0.0)
    assert sampling.due(PERIOD_S) == []
    assert sampling.note("a", 1, "again", PERIOD_S + 1) == "again"


def test_endless_kinds_share_a_line() -> None:
    sampling = LogSampling()
    told = [sampling.note(f"kind {n}", 1, "x", 0.0) for n in range(1000)]
    assert sum(line is not None for line in told) == MOST_KINDS + 1
    assert [(kind, count) for kind, count, _, _ in sampling.due(PERIOD_S)] == [(OTHER, 1000 - MOST_KINDS - 1)]


def test_of_a_million_events_a_few_are_told() -> None:
    assert [count for count in range(1, 1_000_001) if is_told(count)] == [2**n for n in range(20)]
