"""A board in QEMU in place of a real one, so that the checks can be tried: those of its software hold there, too."""

from __future__ import annotations

import shutil
import socket
import tempfile
from pathlib import Path
from typing import Final

from hardware.shell import NoBoard, Shell
from images.check import memory
from images.programs import BuildError
from images.qemu.fleet import Fleet
from images.qemu.machine import BootError, Machine

BOARD_ID: Final = "probe-board"
UP: Final = "systemctl is-system-running --wait"
"""Ends when all services have started, or failed."""


def start(board: str, images: Path) -> tuple[Shell, tuple[str, int]]:
    """Starts a copy of the card in `images`; returns a shell on it, and the address of its broker. Raises
    `NoBoard`."""
    folder = Path(tempfile.mkdtemp(prefix="edgert-hardware-", dir=memory()))
    line = socket.socket(socket.AF_UNIX)
    try:
        machine = Machine(board, images, folder, Fleet(folder / "fleet", BOARD_ID).provisioning())
    except (BootError, BuildError) as error:
        shutil.rmtree(folder)
        raise NoBoard(str(error)) from None

    def close() -> None:
        line.close()
        machine.cut()
        shutil.rmtree(folder)

    try:
        machine.start()
        machine.wait(lambda status: status["ingest"]["subscribed"], "the gateway")
        machine.ask(UP)
        line.connect(str(folder / "shell"))
        shell = Shell(line.fileno(), line.fileno(), lambda: "QEMU has ended", close)
        shell.greet()
    except (BootError, NoBoard, OSError) as error:
        close()
        raise NoBoard(str(error)) from None
    except BaseException:
        close()
        raise
    return shell, (machine.host, machine.broker)
