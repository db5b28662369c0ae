"""The limits on bytes: never more than promised in any span of time, and never less than the rate allows."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gateway.uplink.token_bucket import BURST_S, TokenBucket

RATE = 1_000.0
LARGEST = 5_000


@given(st.lists(st.tuples(st.integers(1, LARGEST), st.floats(0, 3)), min_size=1, max_size=60))
def test_no_span_of_time_sees_more_than_the_rate_a_burst_and_one_batch(batches: list[tuple[int, float]]) -> None:
    now, bucket, left = 100.0, TokenBucket(RATE, 100.0), list[tuple[float, int]]()
    for size, pause in batches:
        now += pause
        now += bucket.wait(now)
        assert bucket.wait(now) == 0.0, "what was said to wait was enough"
        bucket.spend(size, now)
        left.append((now, size))
    for at, (begin, _) in enumerate(left):
        total = 0
        for end, size in left[at:]:
            total += size
            assert total <= RATE * (end - begin + BURST_S) + size + 1e-6


@given(st.lists(st.integers(1, LARGEST), min_size=2, max_size=60))
def test_who_always_has_something_to_send_gets_all_of_the_rate(sizes: list[int]) -> None:
    now, bucket = 5.0, TokenBucket(RATE, 5.0)
    for size in sizes:
        now += bucket.wait(now)
        bucket.spend(size, now)
    assert sum(sizes[:-1]) >= RATE * (now - 5.0) - 1.1, "it waited for what was owed, and for one byte"


def test_without_a_rate_nothing_waits() -> None:
    bucket = TokenBucket(0, 0.0)
    for _ in range(3):
        bucket.spend(10**12, 0.0)
        assert bucket.wait(0.0) == 0.0
