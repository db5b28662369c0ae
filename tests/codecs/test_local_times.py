"""The hour that comes twice, and local times of 14 digits, as a source decodes them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import msgspec
import pytest

from edgert.codecs.json import JsonCodec

ENDS_OF_SUMMER_TIME = [
    ("Europe/Berlin", datetime(2026, 10, 25, 0, 0, tzinfo=UTC), 60),
    ("America/New_York", datetime(2026, 11, 1, 5, 0, tzinfo=UTC), 60),
    ("Australia/Lord_Howe", datetime(2027, 4, 3, 14, 30, tzinfo=UTC), 30),
]
"""Zone, the moment from which local times come twice, and for how many minutes."""


def flat(text: str) -> dict[str, Any]:
    return {"time": text, "t": 1.5}


def nested(text: str) -> dict[str, Any]:
    return {"metadata": {"time": text}, "t": 1.5}


@pytest.mark.parametrize(("zone", "begin", "minutes"), ENDS_OF_SUMMER_TIME)
@pytest.mark.parametrize(("make", "field"), [(flat, "time"), (nested, "metadata.time")])
@pytest.mark.parametrize("form", ["%Y-%m-%dT%H:%M:%S", "%Y%m%d%H%M%S"])
@pytest.mark.parametrize("late_s", [0.0, 5.0, 300.0])
def test_a_row_a_minute_has_the_reading_that_is_nearer_to_its_arrival(
    zone: str, begin: datetime, minutes: int, make: Callable[[str], Any], field: str, form: str, late_s: float
) -> None:
    codec = JsonCodec(frozenset({"t"}), time_field=field, time_zone=ZoneInfo(zone))
    for minute in range(-30, 2 * minutes + 30):
        moment = begin + timedelta(minutes=minute)
        payload = msgspec.json.encode(make(moment.astimezone(ZoneInfo(zone)).strftime(form)))
        arrival = moment.timestamp() + late_s
        decoded = codec.decode_batch_untrusted(["x/a"], [payload], lambda _: {"source": "a"}, arrival)
        assert [row["time"] for row in decoded.rows] == [moment.timestamp()], minute


@pytest.mark.parametrize(("zone", "begin", "minutes"), ENDS_OF_SUMMER_TIME)
@pytest.mark.parametrize("late_s", [3_600.0, 7_200.0, 86_400.0])
def test_rows_that_a_device_kept_go_on_from_its_last_time(
    zone: str, begin: datetime, minutes: int, late_s: float
) -> None:
    codec = JsonCodec(frozenset({"t"}), time_zone=ZoneInfo(zone))
    moments = [begin + timedelta(minutes=minute) for minute in range(-30, 2 * minutes + 30)]
    payloads = [msgspec.json.encode(flat(m.astimezone(ZoneInfo(zone)).strftime("%FT%T"))) for m in moments]
    arrival = moments[-1].timestamp() + late_s
    topics = ["x/a"] * len(payloads)
    decoded = codec.decode_batch_untrusted(topics, payloads, lambda _: {"source": "a"}, arrival)
    assert [row["time"] for row in decoded.rows] == [m.timestamp() for m in moments]


def test_a_time_that_names_its_zone_has_one_reading() -> None:
    codec = JsonCodec(frozenset({"t"}), time_zone=ZoneInfo("Europe/Berlin"))
    moment = datetime(2026, 10, 25, 0, 30, tzinfo=UTC)
    payload = msgspec.json.encode(flat("2026-10-25T02:30:00+02:00"))
    for _ in range(3):
        decoded = codec.decode_batch_untrusted(["x/a"], [payload], lambda _: {}, moment.timestamp() + 3_600)
        assert decoded.rows[0]["time"] == moment.timestamp()


@pytest.mark.parametrize("given", [20261128183807, "20261128183807"])
def test_fourteen_digits_are_a_local_time(given: object) -> None:
    codec = JsonCodec(frozenset({"t"}), time_zone=ZoneInfo("Europe/Berlin"))
    expected = datetime(2026, 11, 28, 17, 38, 7, tzinfo=UTC).timestamp()
    usual = msgspec.json.encode({"time": 1_795_887_487_000, "t": 1})
    for payload in (usual, usual, msgspec.json.encode({"time": given, "t": 1})):
        decoded = codec.decode_batch_untrusted(["x/a"], [payload], lambda _: {}, expected)
        assert [row["time"] for row in decoded.rows] == [expected]


def test_fourteen_digits_that_are_no_date_are_refused() -> None:
    decoded = JsonCodec().decode_batch_untrusted(["x/a"], [b'{"time": 20261328183807}'], lambda _: {}, 1.0)
    assert not decoded.rows
    assert len(decoded.bad_payloads) == 1
