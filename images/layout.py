"""The disk of a board, and the boot state in it: which slot starts, and how many attempts it has.

offset     size     content
0          3 MiB    master boot record; behind it GRUB on a PC, the vendor's boot loader on an Odroid
3 MiB      512 B    boot state of U-Boot; that of GRUB is a file of the FAT partition
3 MiB+1 K  512 B    number of starts in a row without data (images/initramfs.py)
4 MiB      FAT_MIB  partition 1, FAT, labelled EDGERT: what the boot loader reads, the provisioning file
           SLOT_MIB partition 2: slot A, an ext4 file system with a kernel in /boot
           SLOT_MIB partition 3: slot B, empty at first
           the rest partition 4: /var, which all slots use; grown at the first start
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Mapping
from typing import Final

MIB: Final = 1 << 20
SECTOR: Final = 512
BOOT_CODE: Final = 440
"""Bytes of a master boot record before the disk's name and its table."""
STATE_OFFSET: Final = 3 * MIB
FAULTS_OFFSET: Final = STATE_OFFSET + 1024
STATE_SIZE: Final = 1024
"""Size of GRUB's block. That of U-Boot is one sector, which a card writes whole or not at all."""
FAT_OFFSET: Final = 4 * MIB
FAT_MIB: Final = 96
SLOT_MIB: Final = 640
DATA_MIB: Final = 256
ATTEMPTS: Final = 3
GRUB_HEAD: Final = b"# GRUB Environment Block\n"
GRUB_STATE: Final = {"ORDER": "A B", "A_OK": "1", "A_TRY": "0", "B_OK": "0", "B_TRY": "0"}
"""The variables as RAUC's backend for GRUB names them; `TRY` counts attempts."""
U_BOOT_STATE: Final = {"BOOT_ORDER": "A B", "BOOT_A_LEFT": str(ATTEMPTS), "BOOT_B_LEFT": "0"}
"""The variables as RAUC's backend for U-Boot names them."""


def grub_state(variables: Mapping[str, str]) -> bytes:
    """GRUB's environment block: lines, then `#` up to the block's size."""
    lines = GRUB_HEAD + "".join(f"{name}={value}\n" for name, value in variables.items()).encode()
    if len(lines) > STATE_SIZE:
        raise ValueError(f"expected at most {STATE_SIZE} bytes of variables, got {len(lines)}")
    return lines.ljust(STATE_SIZE, b"#")


def u_boot_state(variables: Mapping[str, str], size: int = SECTOR) -> bytes:
    """U-Boot's environment (not redundant): a checksum, then `name=value`, each ended by a zero byte."""
    lines = b"".join(f"{name}={value}".encode() + b"\0" for name, value in variables.items()) + b"\0"
    if len(lines) > size - 4:
        raise ValueError(f"expected at most {size - 4} bytes of variables, got {len(lines)}")
    content = lines.ljust(size - 4, b"\0")
    return struct.pack("<I", zlib.crc32(content)) + content


def slots_untrusted(state: bytes) -> dict[str, str]:
    """The variables of a boot state, of either kind; empty for one that is damaged."""
    if state.startswith(GRUB_HEAD):
        lines = state[:STATE_SIZE].rstrip(b"#").decode("ascii", "replace").splitlines()
    elif len(state) >= SECTOR and struct.unpack_from("<I", state)[0] == zlib.crc32(state[4:SECTOR]):
        lines = state[4:SECTOR].split(b"\0\0")[0].decode("ascii", "replace").split("\0")
    else:
        return {}
    pairs = (line.partition("=") for line in lines if "=" in line and not line.startswith("#"))
    return {name: value for name, _, value in pairs}
