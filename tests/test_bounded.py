"""What other programs say is read for a bounded time, and up to a number of bytes."""

from __future__ import annotations

import pytest

from edgert.bounded import READ_BYTES, output
from edgert.core.errors import EdgertError


def test_output_in_small_steps_ends_with_the_time_for_all_of_it() -> None:
    with pytest.raises(EdgertError, match=r"sh: expected an end within 0\.2 s, got none"):
        output("sh", "-c", "while :; do echo x; sleep 0.01; done", within_s=0.2)


def test_output_without_end_is_cut_at_a_line() -> None:
    said = output("yes", "a line", within_s=100.0, most_bytes=10_000)
    assert said.endswith("a line\n")
    assert 10_000 - 10 <= len(said) <= 10_000 + READ_BYTES


def test_output_that_nobody_waits_for_any_more_is_given_up() -> None:
    with pytest.raises(EdgertError, match="sleep: expected an end"):
        output("sleep", "1000", within_s=1_000.0, given_up=lambda: True)
