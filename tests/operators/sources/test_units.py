"""Units that devices name themselves."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgert.core.batch import RawBatch
from edgert.operators.sources.units import MOST_TOPICS, Units, units_untrusted
from tests.fuzz.nearly import nearly


def units_of(*messages: tuple[str, object], captures: tuple[str, ...] = ("source",)) -> Units:
    """Units after these messages, each a batch of its own; the topic's levels are what is captured."""
    units = Units(lambda topic: dict(zip(captures, topic.split("/"), strict=False)))
    for at, (topic, document) in enumerate(messages):
        payload = document if isinstance(document, bytes) else json.dumps(document).encode()
        batch = RawBatch([topic], [payload], float(at), float(at))
        if batch.arrival >= units.next_look:
            units.look(batch)
    return units


def test_one_unit_of_all_devices_is_said_once() -> None:
    pack = [{"bn": "x:", "n": "temperature", "u": "Cel", "v": 21}, {"n": "dust", "v": 3}]
    assert units_of(("a", pack), ("b", pack)).found() == [[{}, {"temperature": "Cel"}]]


def test_devices_with_units_of_their_own_are_told_apart_by_what_the_topic_captures() -> None:
    percent, hertz = ([{"bn": "x", "u": unit, "v": 1}] for unit in ("%", "Hz"))
    found = units_of(("c0/busy", percent), ("c0/frequency", hertz), captures=("source", "quantity")).found()
    assert found == [
        [{"source": "c0", "quantity": "busy"}, {"value": "%"}],
        [{"source": "c0", "quantity": "frequency"}, {"value": "Hz"}],
    ]


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ({"value": 21, "unit": "°C"}, {"value": "°C"}),
        (
            [{"bu": "W", "n": "a", "v": 1}, {"n": "b", "v": 2}, {"n": "c", "u": "V", "v": 2}],
            {"a": "W", "b": "W", "c": "V"},
        ),
        ({"bu": "W", "e": [{"n": "a", "v": "1"}]}, {"a": "W"}),
        ([{"n": "a", "u": "x" * 100}, {"n": 5, "u": 6}, 7], {}),
        ({"unit": 5}, {}),
        (b"21.5 C", {}),
        (b"", {}),
        (b"\xff", {}),
        (5, {}),
    ],
)
def test_units_of_payloads(document: object, expected: dict[str, str]) -> None:
    payload = document if isinstance(document, bytes) else json.dumps(document).encode()
    assert dict(units_untrusted(payload)) == expected


def test_endless_topics_cost_no_memory_and_are_looked_at_no_more() -> None:
    units = units_of(*((f"t{number}", {"value": 1, "unit": "V"}) for number in range(MOST_TOPICS + 10)))
    assert units.next_look == float("inf")
    assert units.found() == [[{}, {"value": "V"}]]


@given(
    st.binary(max_size=40) | nearly([{"bn": "x", "n": "a", "u": "W", "bu": "V"}]).map(lambda one: repr(one).encode())
)
def test_whatever_devices_send_has_short_units_or_none(payload: bytes) -> None:
    assert all(len(field) <= 64 and len(unit) <= 16 for field, unit in units_untrusted(payload))
