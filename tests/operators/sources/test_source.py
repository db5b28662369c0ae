"""`mqtt_source`: watermarks, bad payloads, state. Times are numbers given by hand.

device a  ──95────────────────110──▶
device b  ──────100────▶ silent        watermark: that of b, then (b timed out) that of a
"""

from __future__ import annotations

import json
from itertools import pairwise

import pytest

from edgert.codecs.registry import make
from edgert.core.batch import CLOCK_IS_SET, NO_WATERMARK, Batch, RawBatch
from edgert.core.errors import DocumentError
from edgert.core.text.topic_template import TopicTemplate
from edgert.flow.document import from_plain
from edgert.operators.base.logic import Now
from edgert.operators.registry import REGISTRY
from edgert.operators.sources.device_watermarks import Devices, new_board
from edgert.operators.sources.event_times import NO_TIME
from edgert.operators.sources.source import RECOMPUTE_S, SAMPLE_BYTES, Source
from edgert.operators.state.wrong_clock import TAKEN_BACK
from tests.named import named
from tests.operators.sources.source_feed import WALL, fed
from tests.operators.worlds import source


def test_the_smallest_time_of_the_active_devices_counts() -> None:
    made = source()
    assert fed(made, 0.0, ("a", 995), ("b", 1000)).watermark == 993.0  # type: ignore[union-attr]
    assert fed(made, 1.0, ("a", 1001)).watermark == 998.0  # type: ignore[union-attr]


def test_a_device_silent_for_its_time_out_holds_nothing_back() -> None:
    made = source()
    fed(made, 0.0, ("a", 1000), ("b", 900))
    assert fed(made, 29.9, ("a", 1029)).watermark == 898.0  # type: ignore[union-attr]
    assert fed(made, 32.0, ("a", 1032)).watermark == 1030.0  # type: ignore[union-attr]


def test_a_device_whose_messages_wait_in_the_queue_is_not_silent() -> None:
    made = source()
    fed(made, 0.0, ("a", 1000), ("b", 900))
    assert fed(made, 20.0, ("a", 1020), waited=60.0).watermark == 898.0  # type: ignore[union-attr]
    assert fed(made, 21.0, ("b", 921), waited=60.0).watermark == 919.0  # type: ignore[union-attr]
    assert fed(made, 22.0, ("a", 1022), waited=120.0).watermark == 919.0  # type: ignore[union-attr]
    assert fed(made, 60.0, ("a", 1060), waited=120.0).watermark == 1058.0  # type: ignore[union-attr]


def test_a_device_without_a_clock_holds_nothing_back() -> None:
    made = source(behind_tolerance_s=600.0)
    batch = fed(made, 0.0, ("good", 1_000_000), ("no-clock", 12))
    assert batch is not None
    assert batch.watermark == 999_998.0
    slow = fed(made, 1.0, ("good", 1_000_001), ("slow", 999_500))
    assert slow is not None
    assert slow.watermark == 999_998.0, "it never goes back"


def test_when_all_are_silent_event_time_goes_on_at_the_pace_of_the_clock() -> None:
    made = source()
    fed(made, 0.0, ("a", 1000))
    assert fed(made, 20.0) is None, "nothing to say while the device may still come"
    at_40, at_45 = fed(made, 40.0), fed(made, 45.0)
    assert at_40 is not None
    assert at_45 is not None
    assert (at_40.rows, at_40.watermark, at_45.watermark) == ([], 1000 - 2 + 10.0, 1000 - 2 + 15.0)


def test_the_watermark_never_goes_back() -> None:
    made = source(out_of_order_s=0.0)
    marks = []
    for moment, (device, time) in enumerate([("a", 1000), ("a", 990), ("b", 900), ("b", 1001), ("a", 1002)]):
        batch = fed(made, float(moment), (device, time))
        assert batch is not None
        marks.append(batch.watermark)
    assert marks == [1000.0, 1000.0, 1000.0, 1000.0, 1001.0]


def test_rows_whose_time_does_not_go_on_are_told_with_the_device_that_holds_it() -> None:
    made = source()
    for second in range(91):
        assert made.devices.still() is None, second
        fed(made, second, ("a", 100.0), ("b", 100.0 + second))
    assert made.devices.still() == (90.0, 100.0, "a")
    fed(made, 91.0, ("a", 101.0))
    assert made.devices.still() is None


def test_a_device_that_holds_time_back_since_it_sends_rarely_is_not_told() -> None:
    made = source(idle_timeout_s=3600.0)
    for second in range(3000):
        if second % 600 == 0:
            fed(made, second, ("slow", 100.0 + second))
        fed(made, second, ("a", 100.0 + second))
        assert made.devices.still() is None, second


def test_a_sensor_that_reports_rarely_or_is_silent_lets_no_time_stand_still() -> None:
    made = source()
    for hour in range(5):
        fed(made, 3600.0 * hour, ("door", 100.0 + 3600.0 * hour))
        for second in range(1, 3600, 30):
            fed(made, 3600.0 * hour + second)
            assert made.devices.still() is None, (hour, second)


def test_after_a_restart_time_is_given_a_while_to_go_on() -> None:
    made = source()
    fed(made, 1.0, ("a", 100.0))
    restored = source()
    restored.restore(made.snapshot())
    restored.resumed(Now(1_000.0, WALL + 1_000.0))
    for second in range(1_000, 1_091):
        assert restored.devices.still() is None, second
        fed(restored, second, ("a", 100.0))
    assert restored.devices.still() == (90.0, 100.0, "a")


def test_an_idle_source_that_never_heard_anything_promises_nothing() -> None:
    made = source()
    assert fed(made, 0.0) is None
    assert fed(made, 1e6) is None
    assert made.devices.watermark == NO_WATERMARK


@pytest.mark.parametrize(("devices", "looks"), [(1, 200), (5_000, 200), (20_000, 50), (100_000, 10)])
def test_looks_at_the_devices_cost_no_more_where_there_are_many(
    devices: int, looks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In ten seconds with a row every 10 ms. Each look goes over all devices."""
    made, looked = source(), list[float]()
    fed(made, 0.0, *((f"d{n}", 1000) for n in range(devices)))
    monkeypatch.setattr(Devices, "advance", lambda self, arrival, limit: looked.append(arrival))
    for step in range(1, 1_001):
        fed(made, step / 100, ("d0", 1000))
    assert 0.8 * looks <= len(looked) <= looks
    assert max(b - a for a, b in pairwise(looked)) <= 1.02, "windows close no later by more"


def test_the_minimum_over_the_devices_is_not_taken_for_every_batch() -> None:
    made = source()
    fed(made, 0.0, ("a", 1000))
    early = fed(made, RECOMPUTE_S / 2, ("a", 1010))
    assert early is not None
    assert (len(early.rows), early.watermark) == (1, 998.0)
    assert fed(made, RECOMPUTE_S, ("a", 1010)).watermark == 1008.0  # type: ignore[union-attr]


def test_what_waited_for_a_look_was_heard_when_it_came_and_not_when_the_look_was_taken() -> None:
    made = source(idle_timeout_s=10.0)
    fed(made, 0.0, ("a", 1000))
    fed(made, RECOMPUTE_S / 2, ("b", 900))
    fed(made, 8.0, ("a", 1008))
    assert made.devices.heard == {"a": 8.0, "b": RECOMPUTE_S / 2}
    assert fed(made, 11.0, ("a", 1011)).watermark == 1009.0  # type: ignore[union-attr]


def test_the_newest_time_counts_even_if_the_same_device_sends_older_ones_before_the_next_look() -> None:
    made = source()
    fed(made, 0.0, ("a", 1000))
    fed(made, RECOMPUTE_S / 2, ("a", 1010), ("a", 1005))
    fed(made, RECOMPUTE_S, ("a", 1003))
    assert (made.devices.latest, made.devices.greatest) == ({"a": 1003}, 1010)


SET = CLOCK_IS_SET + WALL
"""A wall clock that was set."""


def at_set_clock(made: Source, *messages: tuple[str, float]) -> Batch | None:
    """One turn whose wall clock says SET."""
    payloads = [json.dumps({"time": time, "v": 1}).encode() for _, time in messages]
    batch = RawBatch([f"room/{device}" for device, _ in messages], payloads, 0.0, SET)
    emissions = made.process(batch, 0, Now(0.0, SET))
    return emissions[0].batch if emissions else None


@pytest.mark.parametrize(
    ("codec", "without", "timed"),
    [
        ("json", b'{"v": 1}', b'{"v": 1, "time": 1700000000}'),
        ("senml", b'[{"n": "v", "v": 1}, {"n": "w", "v": 2}]', b'[{"bt": 1700000000, "n": "v", "v": 1}]'),
    ],
)
def test_while_the_clock_is_not_set_a_row_without_a_time_is_dropped_and_counted(
    codec: str, without: bytes, timed: bytes
) -> None:
    made = Source(TopicTemplate("room/{source}"), make(codec, None), out_of_order_s=2.0)

    def turn(wall: float) -> list[float]:
        payloads = [without, timed, without, without, without]
        batch = RawBatch(["room/a"] * len(payloads), payloads, 0.0, wall)
        return [row["time"] for row in made.process(batch, 0, Now(0.0, wall))[0].batch.rows]

    assert turn(42.0) == [1_700_000_000.0]
    assert made.drops == {NO_TIME: 4}
    assert (made.devices.latest, made.devices.watermark) == ({"a": 1_700_000_000.0}, 1_699_999_998.0)
    assert turn(SET) == [SET, 1_700_000_000.0, SET, SET, SET]
    assert turn(42.0) == [1_700_000_000.0], "by learned shapes, too"
    assert made.drops == {NO_TIME: 8, "ahead of time (kept)": 1, TAKEN_BACK: 1}


def test_a_time_far_ahead_is_clamped_for_the_watermark_kept_and_counted() -> None:
    made = source()
    batch = at_set_clock(made, ("mad", SET + 4000), ("fast", SET + 30))
    assert batch is not None
    assert [r["time"] for r in batch.rows] == [SET + 4000, SET + 30]
    assert (batch.watermark, made.devices.latest) == (SET - 2, {"mad": SET, "fast": SET + 30})
    assert made.drops == {"ahead of time (kept)": 1}


def test_a_time_far_ahead_can_be_dropped_and_counted() -> None:
    made = source(ahead="drop")
    batch = at_set_clock(made, ("mad", SET + 4000), ("a", SET))
    assert batch is not None
    assert [r["source"] for r in batch.rows] == ["a"]
    assert (made.devices.latest, made.drops) == ({"a": SET}, {"ahead of time": 1})
    assert at_set_clock(made, ("mad", SET + 4000)) is None
    assert made.devices.greatest == SET


def test_before_the_clock_is_set_nothing_is_ahead_of_it() -> None:
    made = source(ahead="drop")
    batch = fed(made, 0.0, ("a", 1_700_000_000.0))
    assert batch is not None
    assert len(batch.rows) == 1
    assert (batch.watermark, made.drops) == (1_699_999_998.0, {})


def test_malformed_payloads_are_counted_sampled_and_sent_on_and_nothing_else_suffers() -> None:
    made = source(dead_letter="bad/payloads")
    broken = b"{" + b"x" * 1000
    batch = fed(made, 0.0, ("a", 1000), *[("b", broken)] * 7, ("c", 1001))
    assert batch is not None
    assert [r["source"] for r in batch.rows] == ["a", "c"]
    assert made.drops == {"bad_payload": 7}
    assert {kind: count for kind, (count, _) in made.bad_payloads.items()} == {"expected JSON": 7}
    assert made.newest_bad is not None
    assert (made.newest_bad.topic, made.newest_bad.beginning) == ("room/b", broken[:SAMPLE_BYTES])
    assert [(m.topic, m.payload) for m in named(made.messages)] == [("bad/payloads", broken)] * 7
    assert all("expected JSON" in m.reason for m in named(made.messages))


def test_bad_values_are_counted_and_their_rows_stay() -> None:
    made = source()
    batch = fed(made, 0.0, ("a", b'{"time": 1000, "v": "NaN", "w": 2}'))
    assert batch is not None
    assert (len(batch.rows), batch.rows[0]["w"]) == (1, 2)
    assert sum(made.drops.values()) <= 1


@pytest.mark.parametrize(
    ("dead_letter", "path"), [("room/x", "operators.in.dead_letter"), ("bad/{source}", "operators.in.dead_letter")]
)
def test_a_dead_letter_topic_is_fixed_and_not_read_by_its_own_source(dead_letter: str, path: str) -> None:
    document = {
        "name": "f",
        "operators": {
            "in": {"type": "mqtt_source", "topic": "room/{source}", "dead_letter": dead_letter},
            "out": {"type": "publish", "input": "in", "topic": "x"},
        },
    }
    with pytest.raises(DocumentError) as refused:
        from_plain(document, REGISTRY)
    assert [p.path for p in refused.value.problems] == [path]


def test_a_source_that_heard_nobody_or_is_not_heeded_needs_no_turn_as_time_passes() -> None:
    made = source()
    assert not made.is_due(1e6)
    fed(made, 0.0, ("a", 100.0))
    assert made.is_due(0.0)
    unheeded = source()
    unheeded.heeded = False
    fed(unheeded, 0.0, ("a", 100.0))
    assert not unheeded.is_due(1e6)


def test_a_silent_source_takes_ever_fewer_turns_and_its_event_time_stays_near_the_clock() -> None:
    made = source(idle_timeout_s=30.0, out_of_order_s=0.0)
    fed(made, 0.0, ("a", 1_000.0))
    turns, tick = 0, 0.25
    for n in range(1, int(3_600 / tick)):
        now = n * tick
        if made.is_due(now):
            fed(made, now)
            turns += 1
        silent = max(0.0, now - 30.0)
        assert made.devices.watermark >= 1_000.0 + silent - max(1.0, now / 20) - 2 * tick
    assert turns < 400, "120 in the time-out, and then ever fewer"


def test_a_copy_of_a_source_is_due_always_since_others_wait_for_its_watermark() -> None:
    made = source()
    made.join(new_board(2), 0)
    assert made.is_due(0.0)
