"""Operators as lines: on what is odd they do what they do with rows, to what they count and what checkpoints tell."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from edgert.operators.fusion.compiled_region import CompiledRegion
from tests.operators.bounds import limit, limit_to_held
from tests.operators.worlds import WALL, Way, deltas, said

CHECKPOINT: list[Any] = []
LONG = "x" * 100
FIRST_SEEN = {"type": "bloom_filter", "mode": "first_seen", "fields": ["v", "source", "time"], "expected_items": 100}
ODD: list[Any] = [1.0, None, "warm", True, 2, LONG, 1e149, 1e151, -(2**62), 2.5, None, "", False, 3.0, "1"]
"""Values of a field that fit a shape of JSON."""
Messages = Sequence[tuple[str, dict[str, Any]]]
"""Of each its device, and its fields beside the time."""


def compared(
    operator: dict[str, Any],
    *batches: Messages,
    keys: Sequence[str] = (),
    behind: dict[str, Any] | None = None,
    bound: Callable[..., None] = lambda _: None,
) -> Way:
    """Batches through an operator, as lines and alone. Before them come four messages by which the shape of the first
    is learned: their letters are not among those returned. `bound`: gives the operator less memory, after the first
    batch."""
    operators: dict[str, Any] = {"in": {"type": "mqtt_source", "topic": "{room}/{source}"}}
    if keys:
        operators["keyed"] = {"type": "key_by", "input": "in", "keys": keys}
    operators["o"] = {"input": "keyed" if keys else "in", **operator}
    if behind:
        operators["behind"] = {"input": "o", **behind}
    operators["out"] = {"type": "publish", "input": "behind" if behind else "o", "topic": "out"}
    whole, alone = (Way({"name": "f", "operators": operators}, fusion) for fusion in ("full", "chains"))
    region = whole.run.all[0].region
    assert isinstance(region, CompiledRegion)
    assert len(region.tree.entries) == len(region.stages) - 1, "all have lines"
    for number, messages in enumerate([[batches[0][0]] * 4, *batches]):
        if not messages:
            assert deltas(whole) == deltas(alone)
            continue
        times = [WALL + number + stage / 1000 for stage in range(len(messages))]
        payloads = [json.dumps({"time": time, **m}).encode() for time, (_, m) in zip(times, messages, strict=True)]
        for way in (whole, alone):
            way.feed([f"x/{device}" for device, _ in messages], payloads, float(number))
            if number == 1:
                bound(way.run.stages["o"].logic)
        assert (said(whole), whole.drops(), whole.rows()) == (said(alone), alone.drops(), alone.rows())
        if not number:
            whole.letters, alone.letters = [], []
    for name, stage in whole.run.stages.items():
        assert stage.logic.snapshot() == alone.run.stages[name].logic.snapshot()
        assert stage.logic.unusable == alone.run.stages[name].logic.unusable
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


TRACKERS: list[dict[str, Any]] = [
    {"type": "kalman", "field": "v", "output": "made"},
    {"type": "kalman", "field": "v", "output": "v"},
    {"type": "sliding_regression", "field": "v", "output": "made", "window": 3},
    {"type": "interpolate", "field": "v", "window": 2},
]
SKETCHES: list[dict[str, Any]] = [
    {"type": "distinct_count", "field": "v"},
    {"type": "second_moment", "field": "v", "output": "v", "standard_error": 0.5},
]
KEPT = TRACKERS + SKETCHES
"""Of each key something is kept."""


@pytest.mark.parametrize("operator", KEPT, ids=str)
@pytest.mark.parametrize("keys", [[], ["source"], ["v"], ["room", "source", "w"]], ids=str)
def test_values_of_any_kind(operator: dict[str, Any], keys: list[str]) -> None:
    others = of(ODD[::-1], LONG)
    way = compared(operator, of(ODD), of(ODD[::-1], "b"), CHECKPOINT, others, of(ODD), CHECKPOINT, others, keys=keys)
    assert way.drops()["o"].get("bad_value (values)", 0) == (0 if operator in SKETCHES else 35)
    assert len(way.letters) == 5 * len(ODD)


@pytest.mark.parametrize("operator", KEPT, ids=str)
def test_a_field_that_a_shape_lacks(operator: dict[str, Any]) -> None:
    way = compared(operator, [("a", {"w": 1.0}), ("b", {"w": 2.0})], CHECKPOINT, [("a", {"w": 1.0})], keys=["source"])
    assert not way.drops()["o"]


@pytest.mark.parametrize("operator", KEPT, ids=str)
def test_of_too_many_keys_the_oldest_is_forgotten(operator: dict[str, Any]) -> None:
    batches = [[(device, {"v": float(number)}) for device in devices] for number, devices in enumerate(
        ["aabbcc", "bcd", "ddea", "", "a", "bcdefgh", "", "aah"])]  # fmt: skip
    way = compared(operator, *batches, keys=["source"], bound=limit_to_held)
    assert way.drops()["o"]["too many keys (keys)"] > 5


@pytest.mark.parametrize("operator", KEPT, ids=str)
def test_long_keys_take_their_room(operator: dict[str, Any]) -> None:
    devices = [f"{n}" + "x" * 400 * (n % 3) for n in range(60)]
    batches = [[(device, {"v": 1.0}) for device in devices[at : at + 7]] for at in range(0, 60, 5)]
    bound = functools.partial(limit, 20_000)
    way = compared(operator, *batches, CHECKPOINT, *batches[::-1], keys=["source"], bound=bound)
    assert way.drops()["o"]["too many keys (keys)"] > 20


@pytest.mark.parametrize("operator", [*KEPT, FIRST_SEEN], ids=str)
def test_of_a_row_that_lines_behind_refuse_nothing_is_kept_by_then(operator: dict[str, Any]) -> None:
    """It comes again, as a row: what was looked at for it must be as it was."""
    numbers = [(1.0, 0), (2.0, 1), (2.0, 0), (3.0, 1), (5.0, 0), (3.0, 1), (6.0, 1), (5.0, 1), (1.0, 0)]
    batches = [[(device, {"v": v, "w": w}) for v, w in numbers[at : at + 3]] for at in range(8) for device in "ab"]
    dividing = {"type": "map", "set": {"quotient": "10 / w"}}
    way = compared(operator, [("a", {"v": 0.0, "w": 1})], *batches, CHECKPOINT, *batches, behind=dividing)
    assert way.drops()["behind"]["division by zero in behind"] > 5
