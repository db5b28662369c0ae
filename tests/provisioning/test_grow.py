"""The data partition reaches to the end of the card, and no other is touched."""

from __future__ import annotations

import struct
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from provisioning.grow import SECTOR, WORTH_SECTORS, grown, partition_of

GIB = 2**30 // SECTOR
CARD = ((0x0C, 2_048, 196_608), (0x83, 198_656, 800_000), (0x83, 1_000_000, 524_288))


def record(*partitions: tuple[int, int, int]) -> bytes:
    entries = b"".join(struct.pack("<4xB3xII", kind, start, size) for kind, start, size in partitions)
    return b"\xeb" * 446 + entries.ljust(64, b"\0") + b"\x55\xaa"


def test_last_partition_reaches_to_the_end() -> None:
    larger, size = grown(record(*CARD), 3, 1_000_000, 16 * GIB) or (b"", 0)
    assert size == 16 * GIB - 1_000_000
    assert larger == record(*CARD[:2], (0x83, 1_000_000, size))
    assert grown(larger, 3, 1_000_000, 16 * GIB) is None  # the next start


def test_what_is_not_the_last_or_not_so_stays() -> None:
    assert grown(record(*CARD), 2, 198_656, 16 * GIB) is None
    assert grown(record(*CARD), 3, 999_999, 16 * GIB) is None  # not the table that the kernel read
    assert grown(record(*CARD), 5, 1_000_000, 16 * GIB) is None
    assert grown(record(*CARD)[:-2] + b"\0\0", 3, 1_000_000, 16 * GIB) is None
    assert grown(b"", 3, 1_000_000, 16 * GIB) is None
    assert grown(record(*CARD), 3, 1_000_000, 1_524_288 + WORTH_SECTORS - 1) is None


def test_larger_than_the_record_can_say() -> None:
    _, size = grown(record(*CARD), 3, 1_000_000, 5_000 * GIB) or (b"", 0)
    assert size == 2**32 - 1


@given(st.binary(min_size=510, max_size=510), st.integers(0, 6), st.integers(0, 2**32), st.integers(0, 2**40))
def test_any_table_changes_in_one_size_only(before: bytes, number: int, start: int, disk: int) -> None:
    table = before + b"\x55\xaa"
    larger = grown(table, number, start, disk)
    if larger is not None:
        at = 446 + 16 * (number - 1) + 12
        assert larger[0][:at] + larger[0][at + 4 :] == table[:at] + table[at + 4 :]
        assert struct.unpack_from("<I", larger[0], at)[0] == larger[1] > struct.unpack_from("<I", table, at)[0]


def test_a_folder_on_no_partition(tmp_path: Path) -> None:
    assert partition_of(tmp_path, tmp_path) is None
