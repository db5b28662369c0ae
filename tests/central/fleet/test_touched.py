"""Which windows a batch may have changed: nothing is left out, whatever is told together."""

from __future__ import annotations

import datetime as dt
import itertools
import sqlite3
from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st

from edgert.central.fleet.touched_windows import Low, Touched, united
from edgert.central.landing.lineage import LAST

HOUR = 3_600_000_000
SPAN = st.tuples(st.integers(-HOUR, 2000 * HOUR), st.integers(0, 30 * HOUR)).map(lambda s: (s[0], s[0] + s[1]))


@given(st.lists(SPAN, max_size=60), st.integers(1, 16))
def test_united_spans_hold_all_spans_in_order_and_are_few(spans: list[tuple[int, int]], most: int) -> None:
    done = united(spans, most)
    assert len(done) <= most
    for first, last in spans:
        assert any(low <= first and last <= high for low, high in done)
    ends = [moment for span in done for moment in span]
    assert ends == sorted(ends)
    assert all(later[0] - earlier[1] > HOUR for earlier, later in itertools.pairwise(done))


def test_hours_beside_each_other_are_one_span_and_far_ones_are_not() -> None:
    assert united([(5 * HOUR, 5 * HOUR + 9), (4 * HOUR, 5 * HOUR - 1), (90 * HOUR, 90 * HOUR)], 16) == [
        (4 * HOUR, 5 * HOUR + 9),
        (90 * HOUR, 90 * HOUR),
    ]


def test_a_condition_names_days_and_spans() -> None:
    touched = Touched()
    touched.add(dt.date(2025, 10, 9), (1_760_000_000_000_000, 1_760_000_001_500_000))
    assert touched.within("t.") == (
        "t.day IN (DATE'2025-10-09') AND (t.window_start BETWEEN TIMESTAMP'2025-10-09 08:53:20+00:00' "
        "AND TIMESTAMP'2025-10-09 08:53:21.500000+00:00')"
    )


@given(st.lists(SPAN, min_size=1, max_size=40), st.data())
def test_parts_of_what_is_touched_hold_each_window_once_and_none_that_was_not_looked_up(
    spans: list[tuple[int, int]], data: st.DataObject
) -> None:
    """By SQL on the very conditions that the parts make."""
    inside = st.one_of(*(st.integers(first, last) for first, last in spans))
    starts = data.draw(st.lists(inside, min_size=1, max_size=20))
    near = inside.flatmap(lambda at: st.integers(at - 4 * HOUR, at + 4 * HOUR))
    anywhere = st.one_of(inside, near)
    starts += data.draw(st.lists(near, max_size=30))
    first, last = sorted(data.draw(st.tuples(anywhere, anywhere)))
    whole = Touched(spans=spans, days={day_of(at) for at in starts})
    old, new = (held(part, starts) for part in whole.parted((first, last)))
    known = {at for at in starts if first <= at <= last}
    touched = {at for at in starts if any(a <= at <= b for a, b in spans)}
    assert touched & known <= old <= held(whole, starts) & known
    assert touched - known <= new <= held(whole, starts) - known


def test_parts_reach_no_further_than_the_whole_though_they_have_more_spans() -> None:
    """Three hours and 15 moments are told as 16 spans; without the middle hour these are 17, so united."""
    apart = [10 * HOUR, 11 * HOUR + HOUR // 2, *(20 * hours * HOUR for hours in range(1, 14))]
    spans = [(at, at + HOUR - 9) for at in (0, HOUR, 2 * HOUR)] + [(at, at) for at in apart]
    between = 11 * HOUR
    whole = Touched(spans=spans, days={day_of(first) for first, _ in spans})
    old, new = whole.parted((HOUR, 2 * HOUR - 9))
    assert held(whole, [between, *apart]) == held(new, [between, *apart]) == set(apart)
    assert held(old, [between, *apart, HOUR]) == {HOUR}


def day_of(at: int) -> dt.date:
    return dt.date(1970, 1, 1) + dt.timedelta(microseconds=at)


def held(part: Touched | None, starts: Iterable[int]) -> set[int]:
    """Those windows for which its condition holds."""
    if part is None:
        return set()
    table = sqlite3.connect(":memory:")
    table.execute("CREATE TABLE t (day TEXT, window_start INTEGER)")
    table.executemany("INSERT INTO t VALUES (?, ?)", [(str(day_of(at)), at) for at in starts])
    where = part.within("t.", str).replace("DATE'", "'")
    return {at for (at,) in table.execute(f"SELECT window_start FROM t WHERE {where}")}


def test_of_an_epoch_that_became_void_all_streams_that_are_not_named_are_touched() -> None:
    touched = Touched(lows={("g", 1): Low({0: (7, 20), 1: (3, 20)}), ("h", 1): Low({0: (2, 5)})})
    touched.add_void({("g", 1): {0: 9, 2: 4}, ("g", 0): {}})
    assert touched.void
    assert touched.lows == {
        ("g", 1): Low({0: (7, LAST), 1: (0, LAST), 2: (4, LAST)}, 0),
        ("g", 0): Low({}, 0),
        ("h", 1): Low({0: (2, 5)}),
    }
