"""Operators as lines: on what is odd they do what they do with rows, to what they count and what checkpoints tell."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from edgert.operators.pipeline import Pipeline
from tests.operators.test_pipeline import WALL, Way
from tests.operators.test_tree import deltas, said

CHECKPOINT: list[Any] = []
LONG = "x" * 100
ODD: list[Any] = [1.0, None, "warm", True, 2, LONG, 1e149, 1e151, -(2**62), 2.5, None, "", False, 3.0, "1"]
"""Values of a field that fit a shape of JSON."""
Messages = Sequence[tuple[str, dict[str, Any]]]
"""Of each its device, and its fields beside the time."""


def compared(operator: dict[str, Any], *batches: Messages, keys: Sequence[str] = ()) -> Way:
    """Batches through an operator, as lines and alone. Before them come four messages by which the shape of the first
    is learned: their letters are not among those returned."""
    operators: dict[str, Any] = {"in": {"type": "mqtt_source", "topic": "{room}/{source}"}}
    if keys:
        operators["keyed"] = {"type": "key_by", "input": "in", "keys": keys}
    operators["o"] = {"input": "keyed" if keys else "in", **operator}
    operators["out"] = {"type": "publish", "input": "o", "topic": "out"}
    whole, alone = (Way({"name": "f", "operators": operators}, fusion) for fusion in ("full", "chains"))
    region = whole.run.all[0].region
    assert isinstance(region, Pipeline)
    assert len(region._tree.entries) == 2, "the operator and its sink have lines"
    for number, messages in enumerate([[batches[0][0]] * 4, *batches]):
        if messages is CHECKPOINT:
            assert deltas(whole) == deltas(alone)
            continue
        times = [WALL + number + place / 1000 for place in range(len(messages))]
        payloads = [json.dumps({"time": time, **m}).encode() for time, (_, m) in zip(times, messages, strict=True)]
        for way in (whole, alone):
            way.feed([f"x/{device}" for device, _ in messages], payloads, float(number))
        assert (said(whole), whole.drops(), whole.rows()) == (said(alone), alone.drops(), alone.rows())
        if not number:
            whole.letters, alone.letters = [], []
    for name, place in whole.run.places.items():
        assert place.logic.snapshot() == alone.run.places[name].logic.snapshot()
    return whole


def of(values: Sequence[Any], device: str = "a") -> Messages:
    return [(device, {"v": value}) for value in values]


def passed(way: Way) -> list[Any]:
    return [json.loads(payload)["v"] for _, payload in way.letters]


@pytest.mark.parametrize("values", [["1", "warm", LONG], ["2.5", "true"]])
def test_known_keys_of_any_kind(values: list[str]) -> None:
    way = compared({"type": "bloom_filter", "fields": ["v"], "values": values}, of(ODD), of(ODD))
    assert way.drops()["o"] == {"no key": 4}
    assert passed(way)[-1] == ("1" if "1" in values else 2.5)


def test_a_key_that_a_shape_lacks_is_none() -> None:
    way = compared({"type": "bloom_filter", "fields": ["w"], "values": ["a"]}, of([1.0] * 5), of([1.0]))
    assert way.drops()["o"] == {"no key": 10}


@pytest.mark.parametrize("fields", [["v"], ["source", "v"], ["w", "v"]])
def test_first_rows_of_keys_of_any_kind(fields: list[str]) -> None:
    operator = {"type": "bloom_filter", "mode": "first_seen", "fields": fields, "expected_items": 100}
    way = compared(operator, of(ODD), CHECKPOINT, of([*ODD, "new"]), CHECKPOINT, of(["new", "newer"], "b"))
    assert way.drops()["o"].get("no key", 0) == (0 if "source" in fields else 4)
    assert len(way.letters) > len(set(map(str, ODD))) - 2


def test_first_rows_of_more_keys_than_are_remembered() -> None:
    """A key of the older filter is let go, and goes into the newer one all the same."""
    numbers = [1, 2, 3, 4, 5, 6, 1, 7, 2, 8, 3, 9, 1, 10, 1, 11, 12, 1]
    operator = {"type": "bloom_filter", "mode": "first_seen", "fields": ["v"], "expected_items": 3}
    way = compared(operator, of(numbers), CHECKPOINT, of(numbers[::-1]), CHECKPOINT, of(range(200)), CHECKPOINT)
    assert way.drops()["o"]["forgotten (keys)"] > 100
