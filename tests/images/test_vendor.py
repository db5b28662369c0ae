"""A vendor's boot loader on a card: it is all there, and nothing else of the card has changed."""

from __future__ import annotations

import io
import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from images.layout import BOOT_CODE, FAT_OFFSET, SECTOR, STATE_OFFSET, U_BOOT_STATE, u_boot_state
from images.programs import BuildError
from images.vendor import main, parts, write

ROOM = STATE_OFFSET - SECTOR
CHANCE = random.Random(1)
REST = CHANCE.randbytes(FAT_OFFSET + 4 * SECTOR)


def card() -> bytearray:
    """Random bytes, with a boot state among them."""
    content = bytearray(REST)
    content[STATE_OFFSET : STATE_OFFSET + SECTOR] = u_boot_state(U_BOOT_STATE)
    return content


def packed(size: int) -> bytes:
    """A boot loader as the vendor's tools write it."""
    return CHANCE.randbytes(16) + b"@AML" + CHANCE.randbytes(size - 20)


@given(st.integers(20, ROOM), st.booleans())
def test_the_rest_of_a_card_stays(size: int, for_cards: bool) -> None:
    first, loader = CHANCE.randbytes(SECTOR) if for_cards else b"", packed(size)
    expected = card()
    expected[: min(BOOT_CODE, len(first))] = first[:BOOT_CODE]
    expected[SECTOR : SECTOR + size] = loader
    disk = io.BytesIO(card())
    write(disk, first + loader)
    assert disk.getvalue() == expected


def test_a_boot_loader_that_would_reach_the_boot_state_is_refused() -> None:
    disk = io.BytesIO(card())
    with pytest.raises(BuildError, match=rf"at most {ROOM} bytes, got {ROOM + 1}"):
        write(disk, packed(ROOM + 1))
    assert disk.getvalue() == card()


@pytest.mark.parametrize("content", [b"", b"@AML", bytes(100_000), bytes(15) + b"@AML" + bytes(1000)])
def test_what_is_not_packed_is_refused(content: bytes) -> None:
    with pytest.raises(BuildError, match="vendor's tools have packed"):
        parts(content)


def test_a_disk_that_is_not_of_an_image_is_refused() -> None:
    disk = io.BytesIO(REST)
    with pytest.raises(BuildError, match="expected the card of an image"):
        write(disk, packed(1000))
    assert disk.getvalue() == REST


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    image, loader = tmp_path / "card.img", tmp_path / "u-boot.bin.sd.bin"
    image.write_bytes(card())
    loader.write_bytes(bytes(SECTOR) + packed(5000))
    arguments = ["odroid-n2", "--boot-loader", str(loader), "--card", str(image)]
    assert main(arguments) == 0
    assert image.read_bytes()[SECTOR : SECTOR + 5000] == loader.read_bytes()[SECTOR:]
    loader.write_bytes(bytes(5000))
    assert main(arguments) == 1
    assert "vendor's tools have packed" in capsys.readouterr().err
