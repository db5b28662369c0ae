"""A flow in copies says what it says in one copy: the same messages through both, worked off in any order of instances,
with a checkpoint in the midst."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from edgert.core.batch import RawBatch
from edgert.core.clock import VirtualClock
from edgert.core.errors import DocumentError, StoreError
from edgert.flow.physical import Fusion
from edgert.operators.base.logic import Message, Now, PlainMessage
from edgert.runtime.checkpoint.packing import pack_state
from edgert.runtime.instance.instance import Instance
from edgert.runtime.instance.queue import Entry
from edgert.runtime.pool.pool import Pool
from edgert.scheduling.policies import POLICIES
from gateway.flows.models import Models
from tests.examples import examples
from tests.named import named
from tests.runtime.fission_world import (
    DEVICES,
    MESSAGES,
    WALL,
    Way,
    by_device,
    documents,
    keeps_order,
    messages,
    totals,
)
from tests.runtime.pools import DEADLINE_S


# Shrinking is slow.
@settings(max_examples=examples(40, 100), deadline=None, phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(documents(), MESSAGES, st.integers(0, 2**32), st.sampled_from(["full", "chains", "none"]), st.data())
def test_copies_say_what_one_says(
    plain: dict[str, Any], stream: list[list[tuple[str, str, int]]], seed: int, fusion: Fusion, data: st.DataObject
) -> None:
    one = Way(plain, random.Random(seed), fusion, fission=False)
    many = Way(plain, random.Random(seed + 1), fusion)
    crashes = data.draw(st.lists(st.tuples(st.integers(0, len(stream) - 1), st.booleans()), max_size=3))
    for number, arrived in enumerate(stream):
        moment = 4.0 * number
        payloads = [
            (f"{room}/{source}/t", json.dumps({"time": WALL + moment + 0.01 * k, "v": v}).encode())
            for k, (source, room, v) in enumerate(arrived)
        ]
        for way in (one, many):
            if number % 2:
                way.tick(moment - 2.0)
            way.feed(payloads, moment)
        one.work(moment)
        many.work(moment, data.draw(st.integers(0, 30)))
        for at, compact in crashes:
            if at == number:
                many.crash(moment, compact)
    last = [(f"{room}/{source}/t", json.dumps({"time": WALL + 50.0, "v": 1}).encode()) for room, source in DEVICES]
    for way in (one, many):
        way.work(4.0 * len(stream) - 4.0)  # before a device that is still in a queue would count as silent
        way.feed(last, 60.0)
        way.work(60.0)
        for moment in (61.0, 62.0):
            way.tick(moment)
            way.work(moment)
    assert many.watermarks() == one.watermarks() == {WALL + 50.0}
    for moment in (200.0, 201.0, 202.0):  # all devices are silent now, and event time goes on
        for way in (one, many):
            way.tick(moment)
            way.work(moment)
    assert many.watermarks() == one.watermarks() == {WALL + 50.0 + (202.0 - 60.0 - 30.0)}
    assert totals(many.end()) == totals(one.end())
    if keeps_order(plain):
        assert many.published() == one.published()
        assert many.drops == one.drops
    elif "follow" not in plain["operators"] or plain["operators"]["follow"]["type"] != "count_window":
        assert by_device(many.sent) == by_device(one.sent)
        assert many.drops == one.drops


SPLIT: dict[str, Any] = {
    "name": "f",
    "operators": {
        "in": {"type": "mqtt_source", "topic": "{room}/{source}/+", "out_of_order_s": 0, "instances": 2},
        "ok": {"type": "filter", "input": "in", "where": "v > -8", "instances": 3},
        "by": {"type": "key_by", "input": "ok", "keys": ["room", "source"]},
        "follow": {"type": "kalman", "input": "by", "field": "v", "instances": 2},
        "tell": {"type": "publish", "input": "follow", "topic": "out/{room}/{source}", "instances": 2},
        "w": {"type": "tumbling_window", "input": "by", "size_s": 10, "aggregates": {"n": "count()", "s": "sum(v)"},
              "instances": 3},
        "out": {"type": "ship", "input": "w"},
    },
}  # fmt: skip


@pytest.mark.parametrize("policy", POLICIES)
def test_copies_on_threads_under_any_policy_say_what_one_says(policy: str) -> None:
    one, many = Way(SPLIT, random.Random(1), fission=False), Way(SPLIT, random.Random(1))
    sent: list[Message] = []

    def send(instance: Instance, given: Sequence[PlainMessage]) -> None:
        sent.extend(named(given))

    clock = VirtualClock(wall=WALL)
    pool = Pool(clock, workers=3, policy=POLICIES[policy](random.Random(1).random), send=send)
    pool.add(many.run.all)
    pool.start()
    try:
        for number in range(62):
            given = messages(number) if number < 60 else []  # at last two ticks
            one.feed(given, float(number))
            one.work(float(number))
            batch = RawBatch([t for t, _ in given], [p for _, p in given], clock.monotonic(), clock.wall(), 100)
            for reader in many.readers:
                parts = reader.divide(batch) if given else [(copy, batch) for copy in reader.copies]
                pool.put([(instance, 0, part) for instance, part in parts])
            if number >= 58:
                assert pool.wait_empty(many.run.all, DEADLINE_S)
            clock.advance(1.0)
        assert pool.hold(many.run.all, DEADLINE_S)
    finally:
        pool.stop()
    assert min(many.watermarks()) >= WALL + 59.0
    many.sent = sent
    assert totals(many.end()) == totals(one.end())
    assert many.published() == one.published()
    assert many.drops == one.drops == {}


def test_what_waited_in_the_midst_of_a_chain_says_from_which_copy_it_came() -> None:
    operators = {**SPLIT["operators"], "more": {"type": "map", "input": "ok", "set": {"u": "v"}, "instances": 3}}
    operators["by"] = {**operators["by"], "input": "more"}
    way = Way({"name": "f", "operators": operators}, random.Random(1), "none")
    way.feed(messages(1), 0.0)
    for instance in way.run.all:
        if instance.kind == "source" or instance.operators == ("ok",):
            turn = instance.run(instance.queue.take_all(), Now(0.0, WALL))
            for target, batch in turn.out:
                target.instance.queue.put(Entry(target.source, batch, producer=target.producer))
    waiting = [n for n in (1, 2, 3) if way.run.instances[f"more#{n}"].queue.rows]
    assert len(waiting) > 1
    way.fusion = "chains"
    way.crash(0.0)
    windows = [way.run.instances[f"w#{n}"] for n in (1, 2, 3)]
    assert {entry.producer + 1 for window in windows for entry in window.queue.entries} == set(waiting)


def test_a_model_that_comes_by_message_is_for_all_copies() -> None:
    guess = {"type": "predict", "input": "in", "model": "m", "fields": ["v"], "output": "p", "instances": 3}
    operators = SPLIT["operators"] | {"guess": guess, "ok": {**SPLIT["operators"]["ok"], "input": "guess"}}
    way = Way({"name": "f", "operators": operators}, random.Random(1))
    model = {"kind": "linear_regression", "coefficients": {"v": 2}}
    models = Models({"f": way.run}, lambda run, operator, document: None)
    assert asyncio.run(models.offer_untrusted("m", model)) == ["f/guess"]
    way.feed(messages(3), 0.0)
    way.work(0.0)
    found = [json.loads(message.payload)["p"] for message in way.sent]
    assert found == [6] * len(DEVICES)
    way.crash(1.0)
    way.feed(messages(5), 2.0)
    way.work(2.0)
    assert [json.loads(message.payload)["p"] for message in way.sent][len(DEVICES) :] == [10] * len(DEVICES)
    with pytest.raises(DocumentError) as caught:
        asyncio.run(models.offer_untrusted("m", {"kind": "linear_regression", "coefficients": {"x": 2}}))
    assert len(caught.value.problems) == 1, "not one for each copy"


def test_state_of_a_copy_that_there_is_not_raises_store_error() -> None:
    way = Way(SPLIT, random.Random(1))
    with pytest.raises(StoreError, match="got that of w#4"):
        way.run.restore([pack_state({"w#4": {}})], b"", Now(0.0, WALL))
