"""`mqtt_source` over a restart, and the memory that its devices may take."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from edgert.codecs.registry import make
from edgert.codecs.shapes import KNOWN_TOPICS
from edgert.core.batch import RawBatch
from edgert.core.packing import pack, unpack
from edgert.core.text.topic_template import TopicTemplate
from edgert.operators.base.logic import Now
from edgert.operators.base.memory import MemoryBudget
from edgert.operators.sources.device_watermarks import DEVICE_BYTES, Devices
from edgert.operators.sources.source import RECOMPUTE_S, TOO_MANY, Source, TopicCaptures
from tests.operators.bounds import limit
from tests.operators.sources.source_feed import WALL, fed
from tests.operators.worlds import source


def test_state_survives_deltas_and_snapshots() -> None:
    """a is heard, b too; b times out; b comes back: all between checkpoints or across them."""
    steps: list[tuple[float, list[tuple[str, object]]]] = [
        (0.0, [("a", 1000), ("b", 1000)]), (29.0, [("a", 1029)]), (31.5, [("a", 1031)]), (33.0, [("b", 1030)]),
        (64.0, [("a", 1064)]), (200.0, []),
    ]  # fmt: skip
    for saved in range(1 << len(steps)):
        made, blobs = source(), []
        for at, (moment, messages) in enumerate(steps):
            fed(made, moment, *messages)
            if saved >> at & 1:
                blobs.append(pack(made.delta()))
        delta = made.delta()
        blobs += [pack(delta)] if delta is not None else []
        assert made.delta() is None
        again = source()
        for blob in blobs:
            again.restore(unpack(blob))
        assert again.snapshot() == made.snapshot()
        assert again.delta() is None


@pytest.mark.parametrize("take", [Source.delta, Source.snapshot])
def test_a_checkpoint_between_two_looks_holds_the_times_of_the_last_turns(take: Callable[[Source], Any]) -> None:
    made = source()
    fed(made, 0.0, ("a", 1000))
    fed(made, RECOMPUTE_S / 2, ("a", 1010), ("b", 1005))
    state = take(made)
    assert (state["latest"], state["greatest"]) == ({"a": 1010, "b": 1005}, 1010)


def test_time_outs_begin_anew_after_a_restart() -> None:
    made = source()
    fed(made, 0.0, ("a", 1000), ("b", 900))
    again = source()
    again.restore(made.snapshot())
    again.resumed(Now(5_000.0, WALL))
    assert fed(again, 5_029.0, ("a", 1030)).watermark == 898.0  # type: ignore[union-attr]
    assert fed(again, 5_031.0, ("a", 1031)).watermark == 1029.0  # type: ignore[union-attr]


def test_event_time_that_went_on_alone_goes_on_from_there_after_a_restart() -> None:
    made = source()
    fed(made, 0.0, ("a", 1000))
    fed(made, 100.0)
    assert made.devices.watermark == 1068.0
    again = source()
    again.restore(made.snapshot())
    again.resumed(Now(0.0, WALL))
    batch = fed(again, 31.0)
    assert batch is not None
    assert batch.watermark == 1069.0


def test_captures_are_remembered_within_a_bound() -> None:
    known = TopicCaptures(TopicTemplate("room/{source}"))
    for number in range(KNOWN_TOPICS + 50):
        assert known[f"room/d{number}"] == {"source": f"d{number}"}
        assert len(known) <= KNOWN_TOPICS
    assert known["room/d1"] is known["room/d1"]


def test_devices_without_end_take_bounded_memory_the_longest_silent_go_first_and_are_counted() -> None:
    devices = Devices(0.0, 1e9, memory=MemoryBudget(100 * DEVICE_BYTES))
    for second in range(50):
        devices.observe({f"device-{second}-{n}": float(second) for n in range(20)}, float(second))
        gone = devices.too_many()
        assert len(devices.latest) <= 100
        assert len(devices.heard) == len(devices.latest)
        assert all(int(name.split("-")[1]) < second for name in gone)
    devices.observe({"x" * 5_000 + str(n): 50.0 for n in range(5)}, 50.0)
    devices.too_many()
    assert len(devices.latest) <= 100 - 5 * 5_000 // DEVICE_BYTES
    devices.remove(list(devices.latest))
    assert devices.memory.own_bytes == 0


def test_names_that_come_and_go_between_two_checkpoints_leave_nothing() -> None:
    made = Source(TopicTemplate("s/{source}"), make("json", None))
    limit(10 * DEVICE_BYTES, made)
    for turn in range(100):
        topics = [f"s/{turn}-{n}" for n in range(5)]
        batch = RawBatch(topics, [b'{"time": 1700000000, "v": 1}'] * 5, float(turn), 1_700_000_000.0)
        made.process(batch, 0, Now(float(turn), 1_700_000_000.0))
    assert made.drops[TOO_MANY] >= 480
    state: Any = made.delta()
    assert len(state["latest"]) <= 10
    assert state["gone"] == []
    made.process(RawBatch(["s/new"] * 1, [b'{"v": 1}'], 200.0, 1_700_000_000.0), 0, Now(200.0, 1_700_000_000.0))
    made.process(RawBatch([], [], 201.0, 1_700_000_000.0), 0, Now(201.0, 1_700_000_000.0))
    later: Any = made.delta()
    assert set(later["gone"]) <= set(state["latest"])
    again = Source(TopicTemplate("s/{source}"), make("json", None))
    for part in (state, later):
        again.restore(part)
    assert again.devices.latest == made.devices.latest


def test_a_start_with_the_state_of_more_devices_than_may_be_keeps_no_more() -> None:
    made = Source(TopicTemplate("s/{source}"), make("json", None))
    limit(10 * DEVICE_BYTES, made)
    latest = {f"d{n}": 1_700_000_000.0 for n in range(1_000)}
    made.restore({"latest": latest, "gone": [], "watermark": 0.0, "greatest": 0.0})
    made.resumed(Now(1.0, 1_700_000_000.0))
    assert len(made.devices.latest) == len(made.devices.heard) == 10
    assert made.drops[TOO_MANY] == 990
