"""Puts results together that came in pieces. One result of a gateway at a time: a gateway sends the pieces in a row."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from edgert.core.packing import MAX_BYTES
from edgert.core.results.pieces import Piece

MOST_BYTES: Final = 64 << 20
"""Most bytes of all results that are not whole yet. Beyond, the oldest one goes: its gateway sends it again."""
_OVERHEAD: Final = 200
"""Bytes of memory that a piece costs beside its data."""


@dataclass(slots=True)
class _Unfinished:
    about: tuple[str, tuple[int, int, int], int]
    """Flow, number, and number of pieces."""
    data: list[bytes] = field(default_factory=list)
    bytes: int = 0


class Reassembly:
    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self.unfinished: dict[str, _Unfinished] = {}
        """Unfinished messages by gateway, the one that began last at the end."""
        self._bytes = 0
        self.broken = 0
        """Results given up, since a piece was missing or there were too many bytes."""

    def add(self, piece: Piece) -> bytes | None:
        """The result's payload once its last piece has come. A piece that came before is passed over, one that does
        not follow ends the result: the gateway sends all of it again when it hears no acknowledgement."""
        about = (piece.flow, piece.of, piece.pieces)
        found = self.unfinished.get(piece.gateway)
        if found is None or found.about != about:
            self._give_up(piece.gateway)
            if piece.at:
                return None
            found = self.unfinished[piece.gateway] = _Unfinished(about)
        if piece.at < len(found.data):
            return None
        if piece.at > len(found.data) or found.bytes + len(piece.data) > MAX_BYTES:
            self._give_up(piece.gateway)
            return None
        found.data.append(piece.data)
        found.bytes += len(piece.data) + _OVERHEAD
        self._bytes += len(piece.data) + _OVERHEAD
        if len(found.data) == piece.pieces:
            self._forget(piece.gateway)
            return b"".join(found.data)
        while self._bytes > self._most_bytes:
            self._give_up(next(iter(self.unfinished)))
        return None

    def _give_up(self, gateway: str) -> None:
        if gateway in self.unfinished:
            self.broken += 1
            self._forget(gateway)

    def _forget(self, gateway: str) -> None:
        self._bytes -= self.unfinished.pop(gateway).bytes
