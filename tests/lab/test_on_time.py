"""When a window of a laboratory run has ended, and whether its result came on time."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from tests.lab.on_time import Delays, Down, Sent

NOW = 1_700_000_000.0
SENT = Sent("g1", 0.0, 0.1, 0.5, [NOW + 0.05 * number for number in range(400)])
"""40 s of event time in 20 s. The window from 0 has ended with the message of 12.5 s, after 6.25 s."""


def row(start_s: float, after_s: float, source: str = "a") -> dict[str, Any]:
    return {"window_start": datetime.fromtimestamp(start_s, UTC), "source": source, "received": NOW + after_s}


def test_a_result_is_as_late_as_its_last_row() -> None:
    delays = Delays()
    delays.add(SENT, [row(0, 7.25), row(0, 17.25), row(10, 12.25)], NOW + 10, [])
    assert sorted(delays.meanwhile) == pytest.approx([1.0, 11.0])
    assert not delays.before
    assert delays.slow == 1
    assert "worst 11.0 s; source down: 0, worst 0.0 s; 1 over 10 s" in str(delays)


def test_a_window_that_the_removal_of_the_flow_ended_is_not_judged() -> None:
    delays = Delays()
    delays.add(SENT, [row(30, 90)], NOW, [])
    assert delays == Delays()


def test_what_came_before_the_first_drain_is_told_apart() -> None:
    delays = Delays()
    delays.add(SENT, [row(0, 7.25)], NOW + 10, [])
    assert delays.before == pytest.approx([1.0])


def test_results_of_a_source_that_was_down_count_from_its_return() -> None:
    delays, downs = Delays(), [Down("g1", NOW + 6, NOW + 26), Down("g2", NOW + 6, NOW + 60)]
    delays.add(SENT, [row(0, 28)], NOW, downs)
    assert delays.waited == pytest.approx([2.0])
    assert not delays.meanwhile
    early = Delays()
    early.add(SENT, [row(0, 6.5)], NOW, [Down("g1", NOW + 7, NOW + 26)])
    assert early.meanwhile == pytest.approx([0.25])
    assert not early.waited
