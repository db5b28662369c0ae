"""A name for a board that was told none: the same at each start and with another card, and no other board's."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

SERIAL: Final = re.compile(r"[0-9a-f]{8,}")
MAC: Final = re.compile(r"([0-9a-f]{2}:){5}[0-9a-f]{2}")
LETTERS: Final = 8
"""Digits used of a Raspberry Pi's serial number (16 hexadecimal digits): the last 8 differ from board to board."""


def own_name(system: Path = Path("/sys")) -> str:
    """`edgert-` with the board's serial number, or else with the lowest address of its network devices.

    Empty if neither is known. `system` is where sysfs is.
    """
    serial = _serial(system) or _address(system)
    return f"edgert-{serial}" if serial else ""


def _serial(system: Path) -> str:
    try:
        told = (system / "firmware/devicetree/base/serial-number").read_text(errors="replace")
    except OSError:
        return ""
    found = SERIAL.fullmatch(told.strip("\0\n ").lower())
    return found[0][-LETTERS:] if found and set(found[0]) != {"0"} else ""


def _address(system: Path) -> str:
    addresses = set()
    for device in (system / "class/net").glob("*"):
        if not (device / "device").exists():  # loopback, bridges
            continue
        address = (device / "address").read_text(errors="replace").strip().lower()
        if MAC.fullmatch(address) and set(address) - {":"} != {"0"}:
            addresses.add(address)
    return min(addresses, default="").replace(":", "")
