"""Puts the boot loader of a board's vendor on a card: `python3 -m images.vendor odroid-c4 --boot-loader FILE`.

The ROM of an Amlogic processor reads a boot loader from the second sector of a card on. It takes only one that the
vendor's tools have packed, with parts of the vendor that nobody else may hand on: so no image has it, and the board's
owner adds it.

offset     size     content
0          440 B    what the packed file has for it, if it is one for cards (u-boot.bin.sd.bin)
440        72 B     the disk's name and the partition table: they stay
512        < 3 MiB  the packed boot loader; then comes the boot state (images/layout.py)

A GPT would have its header in the second sector, so the cards have a master boot record.
"""

from __future__ import annotations

import argparse
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO, Final

from images.layout import BOOT_CODE, SECTOR, STATE_OFFSET, slots_untrusted
from images.programs import BuildError

ROOT: Final = Path(__file__).resolve().parents[1]
BOARDS: Final = Path(__file__).with_name("boards")
MAGIC: Final = b"@AML"
MAGIC_AT: Final = 16
"""Behind 16 random bytes, at the beginning of a packed boot loader."""


def parts(packed: bytes) -> tuple[bytes, bytes]:
    """Returns the bytes for the first sector (may be none), and those from the second one on. Raises `BuildError`."""
    for start in (0, SECTOR):
        if packed[start + MAGIC_AT :].startswith(MAGIC):
            return packed[: min(start, BOOT_CODE)], packed[start:]
    raise BuildError(
        "expected a boot loader that the vendor's tools have packed (u-boot.bin.sd.bin or u-boot.bin), with @AML at"
        " byte 16 or 528: the board takes no other"
    )


def write(card: BinaryIO, packed: bytes) -> None:
    """Puts a packed boot loader on a card; the rest of it stays. Raises `BuildError`."""
    boot_code, loader = parts(packed)
    room = STATE_OFFSET - SECTOR
    if len(loader) > room:
        raise BuildError(f"expected a boot loader of at most {room} bytes, got {len(loader)}")
    card.seek(STATE_OFFSET)
    if not slots_untrusted(card.read(SECTOR)):
        raise BuildError("expected the card of an image, with the boot state of U-Boot on it")
    card.seek(0)
    card.write(boot_code)
    card.seek(SECTOR)
    card.write(loader)


def main(argv: Sequence[str] | None = None) -> int:
    """Writes to one card; returns the exit status."""
    boards = sorted(p.stem for p in BOARDS.glob("*.toml") if "vendor" in tomllib.loads(p.read_text())["card"])
    parser = argparse.ArgumentParser("images.vendor", description="Puts a vendor's packed boot loader on a card.")
    parser.add_argument("board", choices=boards)
    parser.add_argument("--boot-loader", type=Path, required=True, metavar="FILE", help="see docs/board.md")
    parser.add_argument("--card", type=Path, help="an image, or the device of a card (build/images/BOARD/card.img)")
    args = parser.parse_args(argv)
    path: Path = args.card or ROOT / "build" / "images" / args.board / "card.img"
    try:
        with path.open("rb+") as card:
            write(card, args.boot_loader.read_bytes())
    except (BuildError, OSError) as error:
        print(f"vendor: {error}", file=sys.stderr)
        return 1
    print(f"vendor: the boot loader is on {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
