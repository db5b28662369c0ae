"""The boot state: written by the builder, read and written by boot loaders and RAUC."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from images.layout import GRUB_STATE, SECTOR, STATE_SIZE, U_BOOT_STATE, grub_state, slots_untrusted, u_boot_state

NAMES = st.from_regex(r"[A-Z_]{1,12}", fullmatch=True)
VALUES = st.from_regex(r"[A-Za-z0-9 ]{0,12}", fullmatch=True)
VARIABLES = st.dictionaries(NAMES, VALUES, max_size=10)


@given(VARIABLES)
def test_what_is_written_is_read(variables: dict[str, str]) -> None:
    assert slots_untrusted(grub_state(variables)) == variables
    assert slots_untrusted(u_boot_state(variables)) == variables
    assert (len(grub_state(variables)), len(u_boot_state(variables))) == (STATE_SIZE, SECTOR)


@given(st.binary(max_size=2 * SECTOR))
def test_any_bytes_are_answered(content: bytes) -> None:
    slots_untrusted(content)


@given(st.integers(0, SECTOR * 8 - 1))
def test_a_bit_that_has_changed_damages_the_state_of_u_boot(bit: int) -> None:
    state = bytearray(u_boot_state(U_BOOT_STATE))
    state[bit // 8] ^= 1 << bit % 8
    assert slots_untrusted(bytes(state)) == {}


def test_too_many_variables() -> None:
    many = {f"NAME_{number}": "x" * 20 for number in range(60)}
    for write in (grub_state, u_boot_state):
        with pytest.raises(ValueError, match="expected at most"):
            write(many)


@pytest.mark.skipif(shutil.which("grub-editenv") is None, reason="needs grub-editenv (scripts/setup image)")
def test_grubs_tool_reads_and_changes_the_state(tmp_path: Path) -> None:
    block = tmp_path / "grubenv"
    block.write_bytes(grub_state(GRUB_STATE))
    subprocess.run(["grub-editenv", block, "set", "B_OK=1", "ORDER=B A"], check=True)
    assert slots_untrusted(block.read_bytes()) == {**GRUB_STATE, "B_OK": "1", "ORDER": "B A"}


@pytest.mark.skipif(shutil.which("mkenvimage") is None, reason="needs mkenvimage (scripts/setup image)")
def test_u_boots_tool_makes_the_same_state(tmp_path: Path) -> None:
    text, block = tmp_path / "text", tmp_path / "block"
    text.write_text("".join(f"{name}={value}\n" for name, value in U_BOOT_STATE.items()))
    subprocess.run(["mkenvimage", "-p", "0", "-s", str(SECTOR), "-o", block, text], check=True)
    assert block.read_bytes() == u_boot_state(U_BOOT_STATE)
