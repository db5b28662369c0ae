"""Devices whose clock was never set, local times, nested and misspelt time fields: by themselves and fused."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest

from edgert.core.batch import RawBatch
from edgert.core.errors import DocumentError
from edgert.flow.document import from_plain
from edgert.operators.base.logic import Build, Now
from edgert.operators.fusion.compiled_region import CompiledRegion
from edgert.operators.fusion.region import StageEdge
from edgert.operators.registry import REGISTRY
from edgert.operators.sources.event_times import EARLY, EARLY_KEPT, NO_TIME, UNTIMED
from edgert.operators.sources.source import Source
from edgert.operators.sources.source_spec import make_source
from edgert.operators.windows import CONTRIBUTION, TumblingWindow

WALL = 1_750_000_000.25
MANY = 12
"""Messages of one shape: the last of them are decoded by a function made for that shape."""


def source(**parameters: Any) -> Source:
    node = {"type": "mqtt_source", "topic": "room/{source}", **parameters}
    plain = {"name": "f", "operators": {"in": node, "out": {"type": "publish", "topic": "out", "input": "in"}}}
    flow = from_plain(plain, REGISTRY)
    return make_source(Build(flow.nodes["in"], flow, None, (), 0, frozenset((0,))))


def times_of(made: Source, payload: dict[str, Any], wall: float = WALL) -> set[float]:
    """The times of the rows of many messages with this payload; all must be alike."""
    batch = RawBatch(["room/a"] * MANY, [json.dumps(payload).encode()] * MANY, 0.0, wall)
    emissions = made.process(batch, 0, Now(0.0, wall))
    rows = [row for emission in emissions for row in emission.batch.rows]
    return {row["time"] for row in rows}


def test_a_device_that_says_1970_after_its_boot_opens_no_window_of_1970() -> None:
    made = source()
    assert times_of(made, {"v": 1, "time": 12}) == {WALL}
    assert made.drops == {EARLY_KEPT: MANY}
    assert times_of(made, {"v": 1, "time": 946_684_800}) == {946_684_800.0}, "the first moment of 2000 is a time"


def test_rows_with_an_early_time_are_dropped_and_counted_where_the_flow_says_so() -> None:
    made = source(early="drop", time_earliest="2020-01-01T00:00:00Z")
    assert times_of(made, {"v": 1, "time": "2019-12-31T23:59:59Z"}) == set()
    assert made.drops == {EARLY: MANY}
    assert times_of(made, {"v": 1, "time": "2020-01-01T00:00:00Z"}) == {1_577_836_800.0}


def test_an_early_time_on_a_board_without_a_clock_is_no_time_at_all() -> None:
    made = source()
    assert times_of(made, {"v": 1, "time": 12}, wall=42.0) == set()
    assert made.drops == {NO_TIME: MANY}


def test_local_time_without_a_zone_is_read_in_the_zone_of_the_source() -> None:
    summer, winter = "2026-07-01T12:00:00", "2026-01-01 12:00:00"
    assert times_of(source(), {"time": summer}) == {1_782_907_200.0}
    berlin = source(time_zone="Europe/Berlin", ahead_tolerance_s=1e9)
    assert times_of(berlin, {"time": summer}) == {1_782_907_200.0 - 7_200}
    assert times_of(berlin, {"time": winter}) == {1_767_268_800.0 - 3_600}
    assert times_of(berlin, {"time": f"{summer}Z"}) == {1_782_907_200.0}, "a zone in the text counts more"
    assert times_of(source(time_zone="America/New_York"), {"time": summer}) == {1_782_907_200.0 + 14_400}
    assert times_of(berlin, {"time": "1970-01-01T00:00:07"}) == {WALL}, "before 1970 in UTC: its clock was never set"


def test_a_time_zone_that_nobody_knows_is_refused() -> None:
    with pytest.raises(DocumentError, match=r"operators.in.time_zone: expected a time zone .*got 'Europe/Berln'"):
        source(time_zone="Europe/Berln")


@pytest.mark.parametrize("codec", ["json", "senml"])
def test_with_time_of_arrival_whatever_the_payload_says_does_not_matter(codec: str) -> None:
    made = source(time="arrival", codec=codec)
    payloads = [b'{"v": 1, "time": "yesterday"}', b'{"v": 1, "time": 5}', b'{"v": 1}'] * MANY
    if codec == "senml":
        payloads = [b'[{"bt": 1700000000, "n": "v", "v": 1}]', b'[{"n": "v", "v": 1}]'] * MANY
    batch = RawBatch(["room/a"] * len(payloads), payloads, 0.0, WALL)
    (emission,) = made.process(batch, 0, Now(0.0, WALL))
    assert [row["time"] for row in emission.batch.rows] == [WALL] * len(payloads)
    assert made.drops == {}


def test_a_dotted_time_field_is_found_in_nested_objects() -> None:
    made = source(time_field="metadata.time")
    assert times_of(made, {"metadata": {"time": 1_700_000_000}, "v": 1}) == {1_700_000_000.0}
    assert times_of(made, {"metadata.time": 1_700_000_001, "v": 1}) == {1_700_000_001.0}
    assert made.drops == {}


@pytest.mark.parametrize("name", ["tiem", "metadata.tiem"])
def test_a_misspelt_time_field_is_counted_for_each_row(name: str) -> None:
    made = source(time_field=name)
    assert times_of(made, {"metadata": {"time": 1_700_000_000}, "time": 1_700_000_000, "v": 1}) == {WALL}
    assert made.drops == {UNTIMED: MANY}


def test_without_a_declared_field_messages_without_a_time_are_not_counted() -> None:
    made = source()
    assert times_of(made, {"v": 1}) == {WALL}
    assert made.drops == {}


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        ({}, {EARLY_KEPT: 20}),
        ({"early": "drop"}, {EARLY: 20}),
        ({"time_field": "time"}, {EARLY_KEPT: 20, UNTIMED: 20}),
        ({"time": "arrival"}, {}),
    ],
)
def test_fused_with_a_window_the_same_rows_are_counted_in_the_same_windows(
    parameters: dict[str, str], expected: dict[str, int]
) -> None:
    windows: list[Counter[float]] = []
    payloads = [json.dumps(p).encode() for p in ({"v": 1}, {"v": 2, "time": WALL - 5}, {"v": 3, "time": 7})] * 20
    for fused in (False, True):
        made, window = source(**parameters), TumblingWindow("w", 10.0, (), (("source", "string"),))
        batch = RawBatch(["room/a"] * len(payloads), payloads, 0.0, WALL)
        logic = CompiledRegion([made, window], [StageEdge(0, 0, 1, 0)], [(1, CONTRIBUTION)]) if fused else made
        out = logic.process(batch, 0, Now(0.0, WALL))
        if not fused:
            for emission in out:
                window.process(emission.batch, 0, Now(0.0, WALL))
        windows.append(Counter({w * 10: len(groups) for w, groups in window.windows.items()}))
        assert made.drops == expected
    assert windows[0] == windows[1]
    assert 0.0 not in windows[0]
