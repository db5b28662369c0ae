"""The state that a board tells, and which of its failures are worth another attempt."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgert.boards.board_state import (
    ATTEMPTS,
    PHASES,
    BoardState,
    UpdateProgress,
    after_start,
    may_pass,
    state_untrusted,
    wait_before,
)
from edgert.boards.slots import Pending

SHORT = st.text(max_size=30)
PROGRESS = st.builds(
    UpdateProgress, st.sampled_from(PHASES), SHORT, SHORT, SHORT, st.none() | st.integers(0, 100), SHORT
)  # fmt: skip
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
)
FIELDS = st.sampled_from(["slot", "version", "refuses", "update", "phase"])
PENDING = Pending("A", "B", "2", request="r1", url="http://h/x")


@given(st.builds(BoardState, SHORT, SHORT, SHORT, st.none() | PROGRESS))
def test_a_state_is_read_as_it_was_written(state: BoardState) -> None:
    assert state_untrusted(state.text().encode()) == state


@given(st.binary() | st.dictionaries(FIELDS, JSON).map(lambda plain: json.dumps(plain).encode()))
def test_bytes_from_outside_are_a_sound_state_or_none(content: bytes) -> None:
    found = state_untrusted(content)
    if found is not None and found.update is not None:
        assert found.update.phase in PHASES
        assert found.update.percent is None or 0 <= found.update.percent <= 100


@pytest.mark.parametrize("update", [{"phase": "dancing"}, [], "x", {}, {"phase": ["installing"]}])
def test_a_progress_that_is_none_is_left_out(update: object) -> None:
    found = state_untrusted(json.dumps({"slot": "A", "version": "1", "update": update}).encode())
    assert found == BoardState("A", "1")


@pytest.mark.parametrize(
    ("events", "pending", "slot", "phase"),
    [
        ([], None, "A", None),
        (["installed"], PENDING, "A", "installed"),
        (["installed"], PENDING, "B", "on trial"),
        (["installed", "confirmed"], None, "B", "confirmed"),
        (["installed", "rolled back"], None, "A", "rolled back"),
        (["interrupted"], None, "A", "waiting"),
        (["interrupted", "failed"], None, "A", "failed"),
        (["current", "of another version"], None, "A", "current"),
    ],
)
def test_the_last_update_after_a_start(
    events: list[str], pending: Pending | None, slot: str, phase: str | None
) -> None:
    lines: list[dict[str, Any]] = [{"event": event, "version": "2", "request": "r1", "bundle": "u"} for event in events]
    found = after_start(lines, pending, slot)
    assert (found.phase if found else None) == phase
    assert found is None or (found.version, found.request) == ("2", "r1")


@pytest.mark.parametrize(
    ("said", "again"),
    [
        ("rauc info: failed to configure streaming: server not responding", True),
        ("rauc install: Failed to read from bundle: Input/output error", True),
        ("rauc install: no space left on device", True),
        ("rauc info: signature verification failed: Verify error: unable to get local issuer certificate", False),
        ("rauc info: unexpected HTTP error code 404", False),
        ("rauc info: unexpected HTTP error code 503", True),
        ("rauc info: unauthorized: http://h/x", False),
        ("rauc install: Bundle format 'plain' not allowed", False),
        ("rauc install: Slot (1024 bytes) is too small for image (2048 bytes).", False),
        ("rauc info: range requests not supported by server", False),
        ("rauc install: Compatible mismatch: Expected 'edgert-virt' but bundle manifest has 'edgert-amd64'", False),
    ],
)
def test_another_attempt_is_made_where_it_may_help(said: str, again: bool) -> None:
    assert may_pass(said) is again


def test_attempts_wait_longer_each_time_and_end_within_minutes() -> None:
    waits = [wait_before(attempt) for attempt in range(2, ATTEMPTS + 1)]
    assert waits == [30.0, 60.0, 120.0, 240.0]
