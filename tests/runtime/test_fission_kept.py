"""What operators keep by key is shared anew among more copies or fewer, and the results stay what one copy says."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from tests.runtime.test_fission import WALL, Way

KEPT: dict[str, Any] = {
    "name": "f",
    "operators": {
        "in": {"type": "mqtt_source", "topic": "{room}/{source}/+", "out_of_order_s": 0},
        "known": {"type": "bloom_filter", "input": "in", "values": list("abc"), "instances": 2},
        "ts": {"type": "select", "input": "known", "fields": ["t", "room"], "instances": 2},
        "hs": {"type": "select", "input": "known", "fields": ["h", "room"], "instances": 2},
        "j": {"type": "join_observations", "inputs": ["ts", "hs"], "fields": ["t", "h"], "on": ["source", "room"],
              "timeout_s": 100, "instances": 3},
        "tell": {"type": "publish", "input": "j", "topic": "j/{room}/{source}"},
        "by": {"type": "key_by", "input": "j", "keys": ["source", "room"]},
        "moment": {"type": "second_moment", "input": "by", "field": "h", "instances": 4},
        "tell2": {"type": "publish", "input": "moment", "topic": "m/{room}/{source}"},
        "fit": {"type": "train_regression", "input": "by", "target": "t", "fields": ["h"], "size": 5, "instances": 2},
        "tell3": {"type": "publish", "input": "fit", "topic": "f/{room}/{source}"},
        "tree": {"type": "train_tree", "input": "by", "target": "t", "fields": ["h"], "size": 5, "least": 1,
                 "instances": 2},
        "tell4": {"type": "publish", "input": "tree", "topic": "t/{room}/{source}"},
    },
}  # fmt: skip


@pytest.mark.parametrize(("before", "after"), [(True, False), (False, True)])
def test_state_of_every_operator_that_keeps_some_by_key_is_shared_anew(before: bool, after: bool) -> None:
    """The setting is changed while observations wait, and models and estimates are in the making."""
    one, many = Way(KEPT, random.Random(1), fission=False), Way(KEPT, random.Random(2), fission=before)
    for number in range(24):
        fields = [{"t": number * number % 7}, {"h": number % 5}]
        for field in fields if number % 3 else fields[:1]:
            for way in (one, many):
                way.feed(
                    [
                        (f"{room}/{source}/t", json.dumps({"time": WALL + number, **field}).encode())
                        for room in "xy"
                        for source in "abcd"
                    ],
                    float(number),
                )
                way.work(float(number))
        if number == 13:
            assert one.run.places["j"].logic.snapshot() is not None, "some wait"
            many.crash(13.0, after)
    for way in (one, many):
        way.end()
    assert set(one.published()) == {f"{of}/{room}/{source}" for of in "jmft" for room in "xy" for source in "abc"}
    assert many.published() == one.published()
    assert many.drops == one.drops
