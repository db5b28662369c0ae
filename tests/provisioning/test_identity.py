"""The name of a board that was told none."""

from __future__ import annotations

from pathlib import Path

import pytest

from provisioning.identity import own_name


def interface(system: Path, name: str, address: str, *, hardware: bool = True) -> None:
    folder = system / "class/net" / name
    folder.mkdir(parents=True)
    (folder / "address").write_text(f"{address}\n")
    if hardware:
        (folder / "device").mkdir()


def serial(system: Path, text: str) -> None:
    path = system / "firmware/devicetree/base/serial-number"
    path.parent.mkdir(parents=True)
    path.write_text(text)


def test_serial_number_of_a_raspberry_pi(tmp_path: Path) -> None:
    serial(tmp_path, "10000000a1B2c3d4\0")
    interface(tmp_path, "eth0", "dc:a6:32:01:02:03")
    assert own_name(tmp_path) == "edgert-a1b2c3d4"


def test_lowest_address_of_the_hardware(tmp_path: Path) -> None:
    interface(tmp_path, "lo", "00:00:00:00:00:00", hardware=False)
    interface(tmp_path, "br0", "02:00:00:00:00:01", hardware=False)
    interface(tmp_path, "eth1", "dc:a6:32:01:02:04")
    interface(tmp_path, "eth0", "DC:A6:32:01:02:03")
    assert own_name(tmp_path) == "edgert-dca632010203"


@pytest.mark.parametrize("told", ["", "unknown", "0000000000000000", "12 34", "\xff\xfe"])
def test_a_serial_number_that_is_none_is_passed_over(tmp_path: Path, told: str) -> None:
    serial(tmp_path, told)
    interface(tmp_path, "eth0", "dc:a6:32:01:02:03")
    assert own_name(tmp_path) == "edgert-dca632010203"


def test_nothing_known(tmp_path: Path) -> None:
    interface(tmp_path, "eth0", "00:00:00:00:00:00")
    assert own_name(tmp_path) == ""
