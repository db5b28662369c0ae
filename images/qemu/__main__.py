"""Boots an image in QEMU and shows that it works: `python3 -m images.qemu BOARD`.

A sensor outside publishes to the board's broker, a flow that was deployed over MQTT counts, and its results come out.
The board takes updates, refuses those with a wrong signature, and goes back from broken ones. Its power is cut, and its
data are broken. At the end it is reset.
Emulated, a boot takes some 20 to 90 s. Traffic goes to ports of loopback that QEMU forwards.
"""

from __future__ import annotations

import argparse
import random
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import zstandard

from images.check import memory
from images.qemu import data, disks, reset
from images.qemu.central import Central
from images.qemu.cuts import Cuts
from images.qemu.fleet import Fleet
from images.qemu.machine import BootError, Machine
from images.qemu.outside import Outside
from images.qemu.steps import BOARD_ID, counts, first_start, say, tell
from images.qemu.updates import FLEET_SCENES, Updates
from images.qemu.updates import SCENES as UPDATE_SCENES

ROOT: Final = Path(__file__).resolve().parents[2]
SCENES: Final = ("power", "disks", *UPDATE_SCENES, "central", *FLEET_SCENES, "cuts", "data", "reset")
CUTS: Final = 2
CUT_WITHIN_S: Final = 60.0
"""Longer than a boot on an idle machine."""


def try_board(
    board: str, images: Path, scenes: Sequence[str], cuts: Cutting, keep: Path | None, *, own_clock: bool
) -> None:
    """Plays `scenes` in the order of `SCENES`, after a first start that provisions the board. Raises `BootError`.

    `keep` is a folder in which the board stays; with a board in it the run goes on with that one."""
    with ExitStack() as stack:
        made = tempfile.TemporaryDirectory(prefix="edgert-boot-", dir=memory())
        folder = keep or Path(stack.enter_context(made))
        folder.mkdir(exist_ok=True)
        known = (folder / "card.img").exists()
        fleet = Fleet(folder / "fleet", BOARD_ID)
        machine = Machine(board, images, folder, fleet.provisioning(), own_clock=own_clock)
        stack.callback(machine.cut)
        central = stack.enter_context(Central(folder / "central", fleet))
        counted = partial(counts, machine, central)
        machine.start()
        if known:
            counted()
        else:
            first_start(machine)
        if "power" in scenes and central.told is None:
            _power_cut(machine)
        if "disks" in scenes and board == disks.PC:
            disks.play(machine, counted)
        updates = stack.enter_context(Updates(board, images, folder, machine, fleet, counted, say))
        updates.play(scenes)
        if {"central", "cuts", *FLEET_SCENES} & set(scenes) and central.told is None:
            tell(machine, central)
        updates.play_with_fleet(scenes, central)
        if "cuts" in scenes:
            Cuts(machine, central, updates, counted, say).play(cuts.moments, cuts.within_s)
        if "data" in scenes:
            data.play(machine, fleet, counted)
        if "reset" in scenes:
            reset.play(machine, fleet)
    say(sizes(images))


@dataclass(frozen=True, slots=True)
class Cutting:
    """Random power cuts."""

    moments: Sequence[float]
    """Each from 0 to 1: a part of the time in which it may come."""
    within_s: float
    """The longest time after a start."""


def _power_cut(machine: Machine) -> None:
    time.sleep(3.0)
    machine.cut()
    machine.start()
    again = Outside(machine)
    say(f"after a power cut CONNACK after {again.connect():.0f} s")
    again.wait(lambda: bool(again.online()), "the gateway after the power cut")
    again.wait(lambda: any("/@results/" in t for t, _ in again.seen), "results that were not acknowledged")
    say("results that nobody had acknowledged are sent again")
    again.client.loop_stop()


def sizes(images: Path) -> str:
    """Size of an image (MB), and size compressed as one would offer it for download."""
    card = images / "card.img"
    used = card.stat().st_blocks * 512
    whole, packed = card.stat().st_size, _packed(card)
    return f"card.img: {whole / 1e6:.0f} MB, {used / 1e6:.0f} MB of them not empty, {packed / 1e6:.0f} MB with zstd"


def _packed(path: Path) -> int:
    """Bytes of a file after zstd, level 9."""
    packer, size = zstandard.ZstdCompressor(level=9, threads=-1).compressobj(), 0
    with path.open("rb") as file:
        while block := file.read(1 << 22):
            size += len(packer.compress(block))
    return size + len(packer.flush())


def _scenes(text: str) -> tuple[str, ...]:
    names = tuple(text.split(","))
    if unknown := [name for name in names if name not in SCENES]:
        raise argparse.ArgumentTypeError(f"expected some of {','.join(SCENES)}, got {','.join(unknown)}")
    return names


def main(argv: Sequence[str] | None = None) -> int:
    """Tries one image; returns the exit status."""
    parser = argparse.ArgumentParser("images.qemu", description="Boots an image in QEMU and shows that it works.")
    parser.add_argument("board")
    parser.add_argument("--images", type=Path, help="folder of the image (build/images/BOARD)")
    parser.add_argument(
        "--scenes", type=_scenes, default=SCENES, metavar="NAME,...",
        help=f"what to play after the first start, of {','.join(SCENES)} (default: all)",
    )  # fmt: skip
    parser.add_argument("--cuts", type=int, default=CUTS, help=f"power cuts at random moments (default: {CUTS})")
    parser.add_argument(
        "--within", type=float, default=CUT_WITHIN_S, metavar="S",
        help=f"those amid a start come at most so long after it (default: {CUT_WITHIN_S:.0f})",
    )  # fmt: skip
    parser.add_argument("--seed", type=int, default=1, help="of the random moments (default: 1)")
    parser.add_argument(
        "--keep", type=Path, metavar="FOLDER",
        help="the board stays in this folder, and a later run goes on with it (default: a new board each time)",
    )  # fmt: skip
    parser.add_argument(
        "--own-clock", action="store_true",
        help="the board's clock goes by its instructions: on a busy machine its services keep their time limits",
    )  # fmt: skip
    args = parser.parse_args(argv)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that board and broker end, too
    chance = random.Random(args.seed)
    cuts = Cutting([chance.random() for _ in range(args.cuts)], args.within)
    images = args.images or ROOT / "build" / "images" / args.board
    began = time.monotonic()
    try:
        say(f"{args.board}, seed {args.seed}")
        try_board(
            args.board,
            images.absolute(),
            args.scenes,
            cuts,
            args.keep and args.keep.absolute(),
            own_clock=args.own_clock,
        )
    except BootError as error:
        print(f"boot: {error}", file=sys.stderr)
        return 1
    say(f"all of it took {time.monotonic() - began:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
