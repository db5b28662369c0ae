"""How much of a stream may be in flight."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gateway.uplink.send_window import RESEND_S, WINDOW, WINDOW_BYTES, WINDOW_MOST, Sending


def fill(sending: Sending, size: int = 100) -> int:
    """Sends as much as may leave; how many batches that was."""
    count = 0
    while sending.room:
        sending.sends(sending.sent + 1, size)
        count += 1
    return count


def test_the_window_grows_while_it_is_full_and_the_collector_keeps_up() -> None:
    sending = Sending(0.0)
    seen = []
    for _ in range(5):
        seen.append(fill(sending))
        sending.reached(sending.sent, 1.0)
    assert seen == [WINDOW, 2 * WINDOW, WINDOW_MOST, WINDOW_MOST, WINDOW_MOST]
    fill(sending)
    sending.stalls(2.0)
    assert fill(sending) == 1
    sending.reached(sending.sent, 3.0)
    assert fill(sending) == WINDOW


def test_a_window_that_is_never_full_does_not_grow() -> None:
    sending = Sending(0.0)
    for _ in range(10):
        sending.sends(sending.sent + 1, 100)
        sending.reached(sending.sent, 1.0)
    assert fill(sending) == WINDOW


def test_large_batches_fill_it_by_their_bytes() -> None:
    sending = Sending(0.0)
    assert fill(sending, WINDOW_BYTES // 2 + 1) == 2
    sending.reached(1, 0.0)
    assert fill(sending, WINDOW_BYTES // 2 + 1) == 1
    sending.reached(sending.sent, 0.0)
    assert fill(sending, WINDOW_BYTES * 9) == 1, "one always may leave"


@given(st.lists(st.tuples(st.sampled_from(["send", "ack", "stall"]), st.integers(1, 400)), max_size=60))
def test_no_more_is_in_flight_than_the_window_allows(steps: list[tuple[str, int]]) -> None:
    sending, now = Sending(0.0), 0.0
    for step, amount in steps:
        now += 1.0
        if step == "send":
            for _ in range(amount):
                if sending.room:
                    sending.sends(sending.sent + 1, 1_000 * amount)
        elif step == "ack":
            sending.reached(min(sending.sent, sending.acknowledged + amount), now)
        else:
            sending.stalls(now)
        assert 0 <= sending.acknowledged <= sending.sent <= sending.acknowledged + WINDOW_MOST
        assert not sending.is_stalled(sending.moved + RESEND_S)
        sending_bytes = sum(size for _, size in sending._flying)
        assert sending_bytes < WINDOW_BYTES + 400_000
        assert sending_bytes == sending._bytes
        assert [number for number, _ in sending._flying] == list(range(sending.acknowledged + 1, sending.sent + 1))
