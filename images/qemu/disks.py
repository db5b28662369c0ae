"""A PC in QEMU starts from each kind of disk, by a BIOS and by UEFI."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from images.layout import FAT_OFFSET, slots_untrusted
from images.qemu.machine import ANSWER_S, DISKS, FIRMWARES, BootError, Machine, plugged
from images.qemu.steps import say

PC: Final = "amd64"
"""The board whose card starts by these firmwares."""
LOOK: Final = "readlink -f /sys/class/block/$(basename $(readlink -f /dev/edgert/disk)); ls -d /sys/firmware/efi"
PATHS: Final = {"virtio": "/virtio", "sata": "/ata", "nvme": "/nvme", "usb": "/usb"}
"""Parts of the names that the kernel gives the disks."""


def play(machine: Machine, counted: Callable[[], None]) -> None:
    """After each start the flow counts, and the slot's attempts are given back. The last one is that of the other
    scenes. Raises `BootError`."""
    others = machine.arguments[len(plugged(machine.card, "virtio")) :]
    for firmware in FIRMWARES:
        for disk in DISKS:
            machine.ask("sync")
            machine.cut()
            machine.arguments = [*plugged(machine.card, disk, firmware), *others]
            began, before = time.monotonic(), len(machine.starts())
            machine.start()
            counted()
            took = time.monotonic() - began
            _expect(machine, disk, firmware, before)
            say(f"starts by {firmware} from {disk}: it counts {took:.0f} s after power on, and its slot is good")


def _expect(machine: Machine, disk: str, firmware: str, before: int) -> None:
    started = machine.starts()[before:]
    if len(started) != 1:
        raise BootError(f"expected one start by {firmware} from {disk}, got {started}")
    place = machine.ask(LOOK)[1]
    if PATHS[disk] not in place or ("/sys/firmware/efi\n" in place) != (firmware == "uefi"):
        raise BootError(f"expected a start by {firmware} from {disk}, got {place}")
    ends = time.monotonic() + ANSWER_S
    while (state := slots_untrusted(_grubenv(machine.card))).get(f"{started[0]}_TRY") != "0":
        if time.monotonic() > ends:
            raise BootError(f"waited {ANSWER_S:.0f} s for slot {started[0]} to be good, got {state}")
        time.sleep(1.0)


def _grubenv(card: Path) -> bytes:
    """GRUB's boot state, on the FAT partition."""
    command = ["mtype", "-i", f"{card}@@{FAT_OFFSET}", "::grubenv"]
    return subprocess.run(command, capture_output=True, check=True).stdout
