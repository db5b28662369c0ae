"""Broken data of a board in QEMU: a superblock, which a backup mends, then the whole partition, which is made anew."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Final

from images.layout import DATA_MIB, FAT_MIB, FAT_OFFSET, MIB, SLOT_MIB
from images.qemu.fleet import Fleet
from images.qemu.machine import ANSWER_S, BootError, Machine
from images.qemu.steps import first_start, say

DATA_OFFSET: Final = FAT_OFFSET + (FAT_MIB + 2 * SLOT_MIB) * MIB
BLOCK: Final = 4096
SAID: Final = "the data partition cannot be repaired, and is made anew"
HISTORY: Final = "/opt/edgert/bin/edgert board status"


def play(machine: Machine, fleet: Fleet, counted: Callable[[], None]) -> None:
    """Raises `BootError`."""
    damage(machine, BLOCK)
    began, before = time.monotonic(), len(machine.starts())
    machine.start()
    counted()
    if len(machine.starts()) != before + 1:
        raise BootError(f"expected one start, got {machine.starts()[before:]}")
    say(f"a broken superblock is mended: it counts {time.monotonic() - began:.0f} s later")
    damage(machine, DATA_MIB * MIB)
    machine.provision(fleet.provisioning())
    began, before = time.monotonic(), len(machine.starts())
    machine.start()
    while len(machine.starts()) < before + 3:
        if time.monotonic() - began > ANSWER_S:
            raise BootError(f"waited {ANSWER_S:.0f} s for the third start\n{machine.tail()}")
        time.sleep(1.0)
    first_start(machine)
    status, history = machine.ask(HISTORY)
    if status or "data lost" not in history or SAID not in machine.console():
        raise BootError(f"expected the loss in the history and on the console, got: {history}\n{machine.tail()}")
    say(f"data beyond repair are made anew at the third start: {time.monotonic() - began:.0f} s; {history.strip()}")


def damage(machine: Machine, size: int) -> None:
    """Overwrites the first bytes of the data partition of a board that is switched off for it."""
    machine.ask("sync")
    machine.cut()
    with machine.card.open("r+b") as card:
        card.seek(DATA_OFFSET)
        for _ in range(0, size, BLOCK):
            card.write(os.urandom(BLOCK))
