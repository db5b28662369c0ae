"""Reports of other programs, and of those before: what is none is said to be none, and raises nothing."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.core_speed import speed_untrusted
from edgert.flow.versions.kept_state import NOTHING_REPLACED, KeptState, LostState, kept_state_untrusted
from edgert.mqtt.clients.deployment import comparison_untrusted

PLAIN: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
STATES = st.fixed_dictionaries({}, optional={"kept": PLAIN, "lost": PLAIN, "replaces": PLAIN})
REPORT = KeptState(["window"], [LostState("first", "its parameters changed")])


@given(PLAIN | STATES)
def test_a_report_of_kept_state_that_is_none_says_nothing(plain: Any) -> None:
    found = kept_state_untrusted(plain)
    assert found.sentences(done=False)
    assert all(isinstance(line, str) for line in found.sentences(done=True))


def test_a_report_of_kept_state_is_read_as_it_was_written() -> None:
    assert kept_state_untrusted(msgspec.to_builtins(REPORT)) == REPORT
    assert kept_state_untrusted({"kept": 5}) is NOTHING_REPLACED


@given(st.binary(max_size=200) | PLAIN.map(lambda plain: json.dumps(plain).encode()))
def test_an_answer_that_is_no_comparison_is_a_sentence_of_bounded_length(payload: bytes) -> None:
    found = comparison_untrusted(payload)
    assert isinstance(found, KeptState) or 0 < len(found) <= 1000


@pytest.mark.parametrize("payload", [b"[" * 100_000, json.dumps({"error": "x" * 5_000}).encode(), b""])
def test_a_hostile_answer_is_no_comparison(payload: bytes) -> None:
    found = comparison_untrusted(payload)
    assert isinstance(found, str)
    assert len(found) <= 1000


@given(st.binary(max_size=200) | PLAIN.map(lambda plain: json.dumps({"kind": "arm", "speed": plain}).encode()))
def test_a_stored_speed_is_a_number_in_its_bounds(stored: bytes) -> None:
    assert 0 <= speed_untrusted(stored, "arm") < 1e6


def test_a_stored_speed_is_that_of_its_kind_of_processor() -> None:
    stored = json.dumps({"kind": "arm", "speed": 20.5}).encode()
    assert speed_untrusted(stored, "arm") == 20.5
    assert speed_untrusted(stored, "x86") == 0.0
    assert speed_untrusted(b"[" * 100_000, "arm") == 0.0
