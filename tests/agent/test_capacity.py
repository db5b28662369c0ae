"""The bandwidth of a board."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.capacity import UNKNOWN_MBIT, BoardCapacity, bandwidth_mbit, runnable


def cards(folder: Path, **speeds: str | None) -> Path:
    """As of /sys/class/net; None: a card whose speed cannot be read, as of Wi-Fi."""
    for name, speed in speeds.items():
        (folder / name).mkdir()
        if name != "bridge":
            (folder / name / "device").mkdir()
        if speed is not None:
            (folder / name / "speed").write_text(speed)
    return folder


@pytest.mark.parametrize(
    ("speeds", "expected"),
    [
        ({"eth0": "1000\n", "eth1": "100\n", "wlan0": None}, 1000.0),
        ({"eth0": "10\n", "bridge": "10000\n"}, 10.0),
        ({"eth0": "-1\n", "wlan0": None}, UNKNOWN_MBIT),
        ({"eth0": "\n"}, UNKNOWN_MBIT),
        ({}, UNKNOWN_MBIT),
    ],
)
def test_bandwidth_is_that_of_the_fastest_card_with_a_link(
    speeds: dict[str, str | None], expected: float, tmp_path: Path
) -> None:
    assert bandwidth_mbit(cards(tmp_path, **speeds)) == expected


@pytest.mark.parametrize(
    ("load", "pressure", "expected"),
    [(0.5, None, 0.5), (0.5, 0.0, 0.5), (0.5, 0.6, 3.0), (3.5, 0.6, 3.5), (0.0, 1.0, 5.0)],
)
def test_what_waits_for_a_core_is_runnable_sooner_than_the_load_average_says(
    load: float, pressure: float | None, expected: float
) -> None:
    assert runnable(load, pressure, 4.0) == pytest.approx(expected)


def test_the_settings_go_before_the_card(tmp_path: Path) -> None:
    assert BoardCapacity(tmp_path, 2.5).look()["bandwidth_mbit"] == 2.5
