"""Devices of several sources, each counted once."""

from __future__ import annotations

from gateway.status.devices import of_all, together


def counts(lately: int, silent: int = 0, *named: tuple[str, int]) -> dict[str, object]:
    return {"lately": lately, "silent": silent, "named": [list(one) for one in named]}


def test_copies_of_a_source_hear_different_devices() -> None:
    found = together([counts(3, 1, ("a", 1000)), counts(2, 2, ("b", 950), ("c", 2000))])
    assert found == {"lately": 5, "silent": 3, "named": [["b", 950], ["a", 1000], ["c", 2000]]}
    assert together([]) is None


def test_sources_with_one_filter_or_a_wider_one_hear_the_same_devices() -> None:
    found = of_all([("city/+", counts(5)), ("city/+", counts(4)), ("city/hall", counts(1)), ("farm/#", counts(7))])
    assert found is not None
    assert found["lately"] == 12


def test_a_wider_filter_whose_flow_is_new_hides_no_device_of_a_narrower_one() -> None:
    found = of_all([("#", counts(1)), ("city/+", counts(5)), ("city/hall", counts(2))])
    assert found is not None
    assert found["lately"] == 5
