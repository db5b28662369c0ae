"""Disks that are full, and a write-ahead log whose end was torn."""

from __future__ import annotations

import resource
import signal
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Literal, Self

from tests.faults.fault import DOWN, STARTING, Fault, seconds

if TYPE_CHECKING:
    from tests.faults.path import WholePath

ROOM: int = 16 * 1024
"""Left beside the log of the process, which must still be written."""
HEADER, FRAME_HEADER = 32, 24


@dataclass(frozen=True, slots=True)
class DiskFull(Fault):
    """The process may write no file beyond a small size (RLIMIT_FSIZE: needs no root, and leaves nothing behind). As
    on a full disk a write comes back short or fails; the error is EFBIG instead of ENOSPC. Not while it starts: it then
    says so and ends, for systemd to start it again."""

    who: Literal["gateway", "collector"]
    name = "disk full"

    @classmethod
    def draw(cls, draw: Random) -> Self:
        return cls(seconds(draw, 0.5, 4.0), draw.choice(("gateway", "collector")))

    def inject(self, path: WholePath) -> str:
        program = path.program(self.who)
        if program.running and not program.handles(signal.SIGTERM):
            return STARTING
        log = program.log
        limit = ROOM + (log.stat().st_size if log.exists() else 0)
        return f"no file beyond {limit:,} bytes" if _limit(path, self.who, limit) else DOWN

    def heal(self, path: WholePath) -> None:
        _limit(path, self.who, resource.RLIM_INFINITY)


def _limit(path: WholePath, who: Literal["gateway", "collector"], limit: int) -> bool:
    process = path.program(who).process
    if process is None or process.poll() is not None:
        return False
    _, hard = resource.prlimit(process.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (limit if hard == resource.RLIM_INFINITY else hard, hard))
    return True


@dataclass(frozen=True, slots=True)
class TornWrite(Fault):
    """The gateway is killed, and what stands in its write-ahead log behind the last commit is torn: what was synced is
    whole, as a disk that keeps its word leaves it."""

    seed: int
    name = "torn write"

    @classmethod
    def draw(cls, draw: Random) -> Self:
        return cls(seconds(draw, 0.1, 1.0), draw.getrandbits(32))

    def inject(self, path: WholePath) -> str:
        if not path.end("gateway"):
            return DOWN
        return tear(path.database.with_name(path.database.name + "-wal"), Random(self.seed))

    def heal(self, path: WholePath) -> None:
        path.begin("gateway")


def tear(wal: Path, draw: Random) -> str:
    """Replaces what stands behind the last commit by a torn frame: a true header, then a page that is cut off, zero or
    random. Says what was done."""
    raw = wal.read_bytes() if wal.exists() else b""
    end = committed_bytes(raw)
    if not end:
        return "killed; its log is empty, so nothing was torn"
    page_size = int.from_bytes(raw[8:12], "big")
    # page 1 as a commit of a database of 1,000 pages: harmful, if its checksum were not looked at
    header = b"\0\0\0\1" + (1_000).to_bytes(4, "big") + raw[16:24] + draw.randbytes(8)
    page = draw.choice((draw.randbytes(page_size), bytes(page_size), draw.randbytes(draw.randrange(page_size))))
    wal.write_bytes(raw[:end] + header + page)
    return f"killed; its log torn at {end:,} of {len(raw):,} bytes, {len(page):,} bytes of a page follow"


def committed_bytes(raw: bytes) -> int:
    """Up to where a write-ahead log of SQLite holds whole transactions (https://sqlite.org/fileformat2.html, 4)."""
    if len(raw) < HEADER:
        return 0
    order: Literal["big", "little"] = "big" if raw[3] & 1 else "little"
    page_size = int.from_bytes(raw[8:12], "big")
    sums = _checksum(raw[:24], (0, 0), order)
    if _stored(raw, 24) != sums:
        return 0
    end, at = HEADER, HEADER
    while at + FRAME_HEADER + page_size <= len(raw):
        body = at + FRAME_HEADER
        sums = _checksum(raw[at : at + 8] + raw[body : body + page_size], sums, order)
        if raw[at + 8 : at + 16] != raw[16:24] or _stored(raw, at + 16) != sums:
            break
        at = body + page_size
        if int.from_bytes(raw[body - 20 : body - 16], "big"):
            end = at
    return end


def _stored(raw: bytes, at: int) -> tuple[int, int]:
    return int.from_bytes(raw[at : at + 4], "big"), int.from_bytes(raw[at + 4 : at + 8], "big")


def _checksum(data: bytes, sums: tuple[int, int], order: Literal["big", "little"]) -> tuple[int, int]:
    first, second = sums
    for at in range(0, len(data), 8):
        first = (first + int.from_bytes(data[at : at + 4], order) + second) & 0xFFFFFFFF
        second = (second + int.from_bytes(data[at + 4 : at + 8], order) + first) & 0xFFFFFFFF
    return first, second
