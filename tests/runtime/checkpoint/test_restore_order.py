"""What waited in front of operators that are one now comes back in order, and what fails on the way is told."""

from __future__ import annotations

import json
import random
from typing import Any, get_args

import pytest

from edgert.flow.physical import Fusion
from edgert.operators.base.logic import Now
from edgert.runtime.instance.queue import Entry
from tests.runtime.fission_world import WALL, Way


def turn(way: Way, *names: str, moment: float) -> None:
    for name in names:
        instance = way.run.instances[name]
        for target, batch in instance.run(instance.queue.take_all(), Now(moment, WALL + moment)).out:
            target.instance.queue.append(Entry(target.source, batch, producer=target.producer))


def messages(*rows: tuple[float, float]) -> list[tuple[str, bytes]]:
    return [("dev/d", json.dumps({"time": WALL + time, "v": v}).encode()) for time, v in rows]


@pytest.mark.parametrize("after", get_args(Fusion))
@pytest.mark.parametrize("copies", [1, 2])
def test_newer_rows_in_the_midst_of_a_chain_do_not_overtake_older_ones_behind_it(after: Fusion, copies: int) -> None:
    operators: dict[str, Any] = {
        "in": {"type": "mqtt_source", "topic": "dev/{source}", "out_of_order_s": 0},
        "a": {"type": "filter", "input": "in", "where": "v >= 0"},
        "b": {"type": "map", "input": "a", "set": {"u": "v"}},
        "by": {"type": "key_by", "input": "b", "keys": ["source"]},
        "w": {
            "type": "tumbling_window",
            "input": "by",
            "size_s": 10,
            "aggregates": {"n": "count()"},
            "instances": copies,
        },
        "out": {"type": "ship", "input": "w"},
    }
    way = Way({"name": "f", "operators": operators}, random.Random(1), "none")
    way.feed(messages((1, 1), (2, 1), (3, 1)), 5.0)
    turn(way, "in", "a", "b", moment=5.0)
    way.feed(messages((11, 1), (12, 1), (25, 1)), 30.0)
    turn(way, "in", "a", moment=30.0)
    way.fusion = after
    way.crash(31.0)
    way.work(31.0)
    way.tick(100.0)
    way.work(100.0)
    way.checkpoint()
    way.keep_drops()
    assert sorted((row["window_start"] - WALL, row["n"]) for row in way.shipped) == [(0.0, 3), (10.0, 2), (20.0, 1)]
    assert not any(way.drops.values())


@pytest.mark.parametrize("after", get_args(Fusion))
def test_rows_that_fail_while_a_restore_works_them_off_are_sent_as_dead_letters(after: Fusion) -> None:
    operators = {
        "in": {"type": "mqtt_source", "topic": "dev/{source}", "out_of_order_s": 0},
        "a": {"type": "filter", "input": "in", "where": "v >= 0"},
        "b": {"type": "map", "input": "a", "set": {"u": "1 / v"}},
        "p": {"type": "publish", "input": "b", "topic": "o"},
    }
    document = {"name": "f", "on_error": {"action": "dead-letter", "topic": "bad/{operator}"}, "operators": operators}
    way = Way(document, random.Random(1), "none")
    way.feed(messages((1, 0), (1, 1), (1, 0)), 2.0)
    turn(way, "in", "a", moment=2.0)
    way.fusion = after
    way.crash(3.0)
    way.work(3.0)
    topics = [message.topic.split("/")[0] for message in way.sent]
    assert (topics.count("o"), topics.count("bad")) == (1, 2)
