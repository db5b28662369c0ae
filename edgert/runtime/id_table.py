"""What the last message under each packet id was: by this a redelivery is told from a new message (design, MQTT in)."""

from __future__ import annotations

from array import array
from collections.abc import Iterable

from edgert.core.compression import expanded_untrusted

IDS = 65_536
NOT, SENT, EARLIER = 0, 1, 2
"""EARLIER: known from before a restart, so it may have been sent if all flows that take it had committed it then."""
PAGE_IDS = 256
"""Ids per page: a commit writes only pages that changed, to spare the card."""
PAGE_BYTES = 16 * PAGE_IDS
"""Of a page that is not compressed."""


class IdTable:
    """64-bit hash and arrival index per packet id, in packed arrays (1 MB). Index 0: no message seen."""

    def __init__(self) -> None:
        self.hashes = array("Q", bytes(8 * IDS))
        self.indices = array("Q", bytes(8 * IDS))
        self.sent = bytearray(IDS)
        """Whether the PUBACK of that message was sent: NOT, or it was, or may have been (SENT), or EARLIER."""
        self.dirty: set[int] = set()

    def set(self, packet_id: int, digest: int, index: int) -> None:
        self.hashes[packet_id] = digest
        self.indices[packet_id] = index
        self.sent[packet_id] = NOT
        self.dirty.add(packet_id >> 8)

    def known(self) -> Iterable[tuple[int, int]]:
        """(packet id, arrival index) of every entry."""
        for page in range(IDS // PAGE_IDS):  # most have none: a look at each id would cost a small board 100 ms
            first = page * PAGE_IDS
            indices = self.indices[first : first + PAGE_IDS]
            if any(indices):
                yield from ((first + i, x) for i, x in enumerate(indices) if x)

    def clear(self) -> None:
        """Forgets all: the broker has no session, so no redelivery can come."""
        self.hashes = array("Q", bytes(8 * IDS))
        self.indices = array("Q", bytes(8 * IDS))
        self.sent = bytearray(IDS)
        self.dirty = set(range(IDS // PAGE_IDS))

    def take_dirty(self) -> dict[int, bytes]:
        """Pages changed since the last call, by number (an all-zero page is given as empty bytes)."""
        pages = {page: self._page(page) for page in sorted(self.dirty)}
        self.dirty.clear()
        return pages

    def give_back(self, pages: Iterable[int]) -> None:
        """A commit of these pages failed: they are dirty again."""
        self.dirty.update(pages)

    def _page(self, page: int) -> bytes:
        ids = slice(page * PAGE_IDS, (page + 1) * PAGE_IDS)
        indices = self.indices[ids]
        return self.hashes[ids].tobytes() + indices.tobytes() if any(indices) else b""

    def load(self, pages: Iterable[tuple[int, bytes]]) -> None:
        """Fills the table from pages as `take_dirty` gave them, compressed or not. Raises `ValueError` for a page of
        another size, `PayloadError` for one that cannot be expanded."""
        for page, raw in pages:
            if raw:
                if len(raw) != PAGE_BYTES:
                    raw = expanded_untrusted(raw)
                if len(raw) != PAGE_BYTES or not 0 <= page < IDS // PAGE_IDS:
                    raise ValueError(f"expected a page of {PAGE_BYTES} bytes, got page {page} of {len(raw)}")
                ids = slice(page * PAGE_IDS, (page + 1) * PAGE_IDS)
                self.hashes[ids] = array("Q", raw[: 8 * PAGE_IDS])
                self.indices[ids] = array("Q", raw[8 * PAGE_IDS :])
