"""The pressure of the CPU, as the kernel tells it, and as it does not."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.drivers.procfs import ProcFs, pressure_untrusted

FULL = "full avg10=0.00 avg60=0.00 avg300=0.00 total=0\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"some avg10=68.94 avg60=66.03 avg300=71.59 total=20587251531\n{FULL}", 0.6894),
        ("some avg10=0.00 avg60=0.00 avg300=0.00 total=0\n", 0.0),  # older kernels have no `full` of the CPU
        ("some avg10=100.00 avg60=0.00 avg300=0.00 total=0\n", 1.0),
        ("some avg10=900.00 avg60=0.00 avg300=0.00 total=0\n", 1.0),
        (FULL, None),
        ("", None),
        ("some avg10=nan avg60=0.00 avg300=0.00 total=0\n", None),
        ("some avg10=-1.00 avg60=0.00 avg300=0.00 total=0\n", None),
        ("some avg10=1e9 avg60=0.00 avg300=0.00 total=0\n", None),
        ("some avg10=١.٠ avg60=0.00 avg300=0.00 total=0\n", None),
    ],
)
def test_pressure_is_a_part_of_the_time_or_not_known(text: str, expected: float | None) -> None:
    assert pressure_untrusted(text) == (None if expected is None else pytest.approx(expected))


@given(st.one_of(st.text(), st.from_regex(r"some avg10=\S{0,12} ?")))
def test_any_text_gives_a_part_or_nothing(text: str) -> None:
    found = pressure_untrusted(text)
    assert found is None or 0.0 <= found <= 1.0


def test_a_kernel_without_pressure_tells_none(tmp_path: Path) -> None:
    assert ProcFs(tmp_path).pressure() is None
    (tmp_path / "pressure").mkdir()
    (tmp_path / "pressure" / "cpu").write_text("some avg10=12.50 avg60=0.00 avg300=0.00 total=9\n")
    assert ProcFs(tmp_path).pressure() == 0.125
