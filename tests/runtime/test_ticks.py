"""Malformed payloads in the log: the first of a kind, then a line a minute."""

from __future__ import annotations

import logging

import pytest

from edgert.core.batch import RawBatch
from edgert.operators.base.logic import Now
from edgert.runtime.ticks import TICK_S, _log_samples
from tests.operators.worlds import source


def test_a_sensor_that_sends_only_malformed_payloads_writes_a_line_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    made = source()
    caplog.set_level(logging.WARNING)
    for step in range(int(150 / TICK_S)):
        at = step * TICK_S
        made.process(RawBatch(["room/b"] * 3, [b"21.5 C"] * 3, at, 1.7e9), 0, Now(at, 1.7e9))
        _log_samples("air", "readings", made, at)
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == 3, lines
    assert lines[0].startswith("flow air, readings: malformed payload on 'room/b': expected JSON, got 6 bytes")
    assert lines[1].startswith(
        "flow air, readings: 722 more malformed payloads (expected JSON) in 60 s; the newest on 'room/b'"
    )
    assert made.drops["bad_payload"] == 3 * 150 / TICK_S
