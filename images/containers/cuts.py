"""Power cuts at random moments of a board in a container: of a start, and amid messages.

The central side and the way of counting are those of the test in QEMU; updates, which need slots, are left to that.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Final

from images.containers.board import BRIDGE, Board, mounted
from images.programs import run
from images.qemu.central import Central
from images.qemu.cuts import Cuts
from images.qemu.fleet import COMMON, Fleet
from images.qemu.machine import Machine
from images.qemu.steps import BOARD_ID, counts, first_start, say, tell

HERE: Final = "10.77.1.1"
ADDRESS: Final = "10.77.1.11"
ANY: Final = "0.0.0.0"
NETWORK: Final = f'[network]\naddress = "{ADDRESS}/24"\n'


class Contained(Machine):
    """A board in a container, as the steps of the test in QEMU know a board."""

    has_slots = False
    host, broker, page = ADDRESS, 1883, 8080

    def __init__(self, board: Board, folder: Path) -> None:
        self._board, self._folder, self.log = board, folder, board.log
        self._boot = folder / "boot"
        self._boot.mkdir()

    def provision(self, text: str) -> None:
        (self._boot / "edgert.toml").write_text(text)
        self._board.provision(self._boot)

    def left(self) -> list[str]:
        return [path.name for path in self._boot.iterdir()]

    def start(self) -> None:
        self._board.start()

    def cut(self) -> None:
        self._board.cut()

    @property
    def running(self) -> bool:
        return self._board.running

    def tail(self) -> str:
        return self._board.ask("journalctl", "--no-pager", "-n", "30")[1]


def try_cuts(images: Path, folder: Path, moments: Sequence[float], within_s: float) -> None:
    """`moments` are from 0 to 1, `within_s` is the latest moment of a cut amid a start. Raises `BootError`."""
    run("ip", "addr", "add", f"{HERE}/24", "dev", BRIDGE)
    fleet = Fleet(folder / "fleet", BOARD_ID, COMMON + NETWORK)
    with ExitStack() as stack:
        root = mounted(images, folder, stack)
        machine = Contained(Board(BOARD_ID, ADDRESS, root, images / "data.ext4", folder), folder)
        machine.provision(fleet.provisioning())
        stack.callback(machine.cut)
        central = stack.enter_context(Central(folder / "central", fleet, HERE, ANY))
        machine.start()
        first_start(machine)
        tell(machine, central)
        Cuts(machine, central, None, partial(counts, machine, central), say).play(moments, within_s)
