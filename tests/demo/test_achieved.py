"""What the demo's sensors and its Spark job achieved lately."""

from __future__ import annotations

import pytest

from edgert.demo.achieved import UNWRITTEN_S, FleetWrites, sensors_fault


@pytest.mark.parametrize(
    ("age_s", "rate", "fault"),
    [(None, 1.0, False), (0.5, 1.0, False), (16.0, 1.0, True), (16.0, 0.1, False), (31.0, 0.1, True)],
)
def test_sensors_are_silent_when_no_message_was_taken_for_a_while(
    age_s: float | None, rate: float, fault: bool
) -> None:
    found = sensors_fault({"message_age_s": age_s}, rate)
    assert bool(found) == fault
    assert not fault or f"no message for {age_s:.0f} s" in found


def test_a_spark_job_that_lives_and_writes_nothing_of_what_landed_has_a_fault() -> None:
    writes = FleetWrites()
    assert not writes.fault(10, 3, 0.0)
    assert not writes.fault(10, 3, 1_000.0), "nothing new has landed"
    assert not writes.fault(11, 3, 1_001.0)
    assert not writes.fault(20, 3, 1_000.0 + UNWRITTEN_S)
    assert "was not written for 90 s" in writes.fault(30, 3, 1_001.0 + UNWRITTEN_S)
    assert not writes.fault(31, 4, 1_100.0)
    assert not writes.fault(31, 4, 9_000.0)


def test_a_spark_job_that_writes_now_and_then_is_well() -> None:
    writes = FleetWrites()
    assert not any(writes.fault(second, second // 60, float(second)) for second in range(1_000))
