"""When a key counts as silent, and a key's newest windows, as plain functions."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgert.central.alerts.silence import (
    AHEAD_US,
    MERGES,
    Group,
    SeenKey,
    SilenceLimits,
    Window,
    as_of,
    clock_of,
    group_as_of,
    heard,
    look_again,
    newest,
    not_ahead,
    seen_now,
    silent,
    to_tell,
    value,
)

MIN = 60_000
"""ms."""
LIMITS = SilenceLimits(after=10 * MIN, patience=60 * MIN)


def seen(last_min: float, arrived_min: float) -> SeenKey:
    return SeenKey(round(last_min * MIN * 1000), round(arrived_min * MIN))


def group(clock_min: float, arrived_min: float) -> Group:
    return Group(*seen(clock_min, arrived_min))


def test_a_key_is_silent_when_its_group_has_gone_on_without_it() -> None:
    keys = {"a": seen(100, 100), "b": seen(109, 109)}
    assert silent(keys, group(109.9, 110), LIMITS, 110 * MIN) == []
    assert silent(keys, group(110, 110), LIMITS, 110 * MIN) == ["a"]


def test_an_outage_of_the_group_makes_nobody_silent_until_the_patience_ends() -> None:
    keys = {"a": seen(100, 100), "b": seen(100, 100)}
    assert silent(keys, group(100, 100), LIMITS, 159 * MIN) == []
    assert silent(keys, group(100, 100), LIMITS, 160 * MIN) == ["a", "b"]
    assert clock_of(group(100, 100), LIMITS, 160 * MIN) == 160 * MIN * 1000


def test_what_comes_late_is_no_silence() -> None:
    """A gateway whose backlog comes beside its live results, and a job that begins with an old table."""
    keys = {"backlog": seen(100, 500), "live": seen(500, 500)}
    assert silent(keys, group(500, 500), LIMITS, 500 * MIN) == []
    assert silent(keys, group(509, 509), LIMITS, 509 * MIN) == []
    assert silent(keys, group(509.9, 510), LIMITS, 510 * MIN) == ["backlog"]


def test_a_key_that_may_count_as_silent_elsewhere_is_said_to_be_heard() -> None:
    assert to_tell(None, LIMITS, 100 * MIN)
    assert not to_tell(seen(100, 100), LIMITS, 109 * MIN)
    assert to_tell(seen(100, 100), LIMITS, 110 * MIN)
    assert to_tell(seen(100, 109), LIMITS, 110 * MIN), "a backlog comes, and others' time has gone on"


@given(st.floats(0, 300), st.builds(group, st.floats(0, 300), st.floats(0, 300)), st.floats(0, 300), st.floats(0, 300))
def test_no_group_can_call_a_key_silent_of_which_another_would_keep_quiet(
    last: float, other: Group, now: float, later: float
) -> None:
    """The newest window of all is the other's last one; then this group hears the key again."""
    judged = max(round(now * MIN), -(-other.clock // 1000), other.arrived)
    if silent({"a": seen(last, 0)}, other, LIMITS, judged):
        assert to_tell(seen(last, now), LIMITS, judged + round(later * MIN))


def test_a_window_of_the_future_does_not_put_the_clock_ahead() -> None:
    assert heard(None, [5 * MIN * 1000, 900 * MIN * 1000], 10 * MIN) == group(10, 10)
    assert heard(group(7, 7), [5 * MIN * 1000], 10 * MIN) == group(7, 10)


def test_a_window_of_the_future_counts_as_one_of_now() -> None:
    """A device's clock was 20 years ahead; then it was right; then the device died, and no alert came."""
    ahead = seen_now(None, 10_000_000 * MIN * 1000, 100 * MIN)
    assert ahead == seen(100, 100)
    last = seen_now(ahead, 104 * MIN * 1000, 105 * MIN)
    assert last == seen(104, 105)
    assert seen_now(last, 50 * MIN * 1000, 106 * MIN) == seen(104, 106), "a backlog puts nothing back"
    assert silent({"a": last}, group(116, 116), LIMITS, 116 * MIN) == ["a"]


def test_marks_that_a_clock_ahead_has_left_come_down() -> None:
    """Those kept by former versions, and those of a time when the clock of the job itself was ahead."""
    assert as_of(seen(10_000_000, 100), 105 * MIN) == seen(100, 100)
    assert as_of(seen(9_999_999, 10_000_000), 105 * MIN) == seen(105, 105)
    assert as_of(seen(99, 100), 105 * MIN) == seen(99, 100)
    assert group_as_of(group(10_000_000, 10_000_000), 105 * MIN) == group(105, 105)


def test_windows_far_ahead_do_not_hide_the_newest_ones() -> None:
    now, day = 10**9, AHEAD_US
    right = [(n * 10, n * 10 + 10, 1.0, 0.0) for n in range(3)]
    ahead = [(now * 1000 + day + n, now * 1000 + day + n + 10, 1.0, 0.0) for n in range(4)]
    assert newest("sum", [], not_ahead([*ahead[1:], *right], now), 3) == right
    assert not_ahead(ahead, now) == ahead[:1], "by a day a local time may be wrong for ever"


@given(
    st.dictionaries(st.text(), st.builds(seen, st.floats(0, 300), st.floats(0, 300))),
    st.builds(group, st.floats(0, 300), st.floats(0, 300)),
)
def test_judged_again_and_again_in_time_all_are_silent_in_the_end(keys: dict[str, SeenKey], at: Group) -> None:
    """Timers come to an end, and the last of them does not come before it has to."""
    now = max([at.arrived, *(s.arrived for s in keys.values())])
    left = dict(keys)
    for _ in range(3 * len(keys) + 3):
        for key in silent(left, at, LIMITS, now):
            assert max(keys[key].last // 1000, keys[key].arrived) + LIMITS.after <= max(now, at.clock // 1000)
            del left[key]
        again = look_again(left, at, LIMITS, now)
        if again is None:
            break
        assert again > now
        now = again
    assert left == {}


def contributions(kind: str) -> st.SearchStrategy[Window]:
    a = st.integers(-50, 50).map(float) if kind != "mean" else st.integers(1, 9).map(float)
    b = st.just(0.0) if kind != "mean" else st.integers(-50, 50).map(float)
    start = st.integers(0, 8)
    return st.tuples(start, start, a, b).map(lambda w: (w[0] * 10, w[0] * 10 + 10, w[2], w[3]))


@pytest.mark.parametrize("kind", MERGES)
@given(st.data())
def test_windows_do_not_depend_on_how_contributions_are_cut_into_batches(kind: str, data: st.DataObject) -> None:
    """While no more windows are open than are kept."""
    given_ = data.draw(st.lists(contributions(kind), min_size=1, max_size=30))
    order = list(given_)
    random.Random(data.draw(st.integers(0, 99))).shuffle(order)
    cut = data.draw(st.integers(0, len(order)))
    parts = newest(kind, newest(kind, [], order[:cut], 9), order[cut:], 9)
    assert parts == newest(kind, [], given_, 9)
    sums = {kind: [w for w in given_ if w[0] == parts[-1][0]]}[kind]
    values = [w[2] for w in sums]
    want = {
        "count": sum(values), "sum": sum(values), "min": min(values), "max": max(values),
        "mean": sum(w[3] for w in sums) / sum(values) if kind == "mean" else 0.0,
    }[kind]  # fmt: skip
    assert value(kind, parts[-1]) == pytest.approx(want)


def test_only_the_newest_windows_are_kept_and_no_part_of_a_forgotten_one_comes_back() -> None:
    kept = newest("sum", [], [(n * 10, n * 10 + 10, 1.0, 0.0) for n in range(5)], 3)
    assert [w[0] for w in kept] == [20, 30, 40]
    assert newest("sum", kept, [(10, 20, 5.0, 0.0)], 3) == kept
    assert newest("sum", kept, [(25, 35, 5.0, 0.0)], 3) == [(25, 35, 5.0, 0.0), *kept[1:]]
