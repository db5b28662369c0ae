"""How much of a stream may be in flight."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gateway.uplink.send_window import RESEND_S, WINDOW, WINDOW_BYTES, WINDOW_MOST, SendWindow


def fill(window: SendWindow, size: int = 100) -> int:
    """Sends as much as may leave; how many batches that was."""
    count = 0
    while window.room:
        window.sends(window.sent + 1, size)
        count += 1
    return count


def test_the_window_grows_while_it_is_full_and_the_collector_keeps_up() -> None:
    window = SendWindow(0.0)
    seen = []
    for _ in range(5):
        seen.append(fill(window))
        window.reached(window.sent, 1.0)
    assert seen == [WINDOW, 2 * WINDOW, WINDOW_MOST, WINDOW_MOST, WINDOW_MOST]
    fill(window)
    window.stalls(2.0)
    assert fill(window) == 1
    window.reached(window.sent, 3.0)
    assert fill(window) == WINDOW


def test_a_window_that_is_never_full_does_not_grow() -> None:
    window = SendWindow(0.0)
    for _ in range(10):
        window.sends(window.sent + 1, 100)
        window.reached(window.sent, 1.0)
    assert fill(window) == WINDOW


def test_large_batches_fill_it_by_their_bytes() -> None:
    window = SendWindow(0.0)
    assert fill(window, WINDOW_BYTES // 2 + 1) == 2
    window.reached(1, 0.0)
    assert fill(window, WINDOW_BYTES // 2 + 1) == 1
    window.reached(window.sent, 0.0)
    assert fill(window, WINDOW_BYTES * 9) == 1, "one always may leave"


@given(st.lists(st.tuples(st.sampled_from(["send", "ack", "stall"]), st.integers(1, 400)), max_size=60))
def test_no_more_is_in_flight_than_the_window_allows(steps: list[tuple[str, int]]) -> None:
    window, now = SendWindow(0.0), 0.0
    for step, amount in steps:
        now += 1.0
        if step == "send":
            for _ in range(amount):
                if window.room:
                    window.sends(window.sent + 1, 1_000 * amount)
        elif step == "ack":
            window.reached(min(window.sent, window.acknowledged + amount), now)
        else:
            window.stalls(now)
        assert 0 <= window.acknowledged <= window.sent <= window.acknowledged + WINDOW_MOST
        assert not window.is_stalled(window.moved + RESEND_S)
        sending_bytes = sum(size for _, size in window.flying)
        assert sending_bytes < WINDOW_BYTES + 400_000
        assert sending_bytes == window._bytes
        assert [number for number, _ in window.flying] == list(range(window.acknowledged + 1, window.sent + 1))
