"""The last message under each packet id; it tells a redelivery from a new message (docs/internals/delivery.md)."""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from contextlib import suppress

from edgert.core.compression import expanded_untrusted
from edgert.core.errors import PayloadError

IDS = 65_536
NOT, SENT, EARLIER, DOUBTFUL = 0, 1, 2, 3
"""EARLIER: known from before a restart, so it may have been sent if all flows that take it had committed it then.
DOUBTFUL: from before a fallback, so the id may even have been used again since."""
PAGE_IDS = 256
"""Ids per page: a commit writes only pages that changed, to spare the card."""
PAGE_BYTES = 16 * PAGE_IDS
"""Bytes of an uncompressed page."""


class IdTable:
    """64-bit hash and arrival index per packet id, in packed arrays (1 MB). Index 0: no message seen."""

    def __init__(self) -> None:
        self.hashes = array("Q", bytes(8 * IDS))
        self.indices = array("Q", bytes(8 * IDS))
        self.sent = bytearray(IDS)
        """State of the PUBACK of each message: NOT sent; sent, or maybe sent (SENT); EARLIER or DOUBTFUL."""
        self.dirty: set[int] = set()
        self.lost: set[int] = set()
        """Pages that could not be read: what stood in them cannot be told from what is new."""
        self.emptied = False
        """Something stood here when the broker had no session. If it was another broker, the one before may come back
        with its session, and deliver again what stood here then."""

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
        """Forgets all: the broker has no session, so no redelivery can come from it."""
        self.hashes = array("Q", bytes(8 * IDS))
        self.indices = array("Q", bytes(8 * IDS))
        self.sent = bytearray(IDS)
        self.dirty = set(range(IDS // PAGE_IDS))
        self.lost.clear()

    def lose_all(self) -> None:
        """The database that held it is gone."""
        self.lost = set(range(IDS // PAGE_IDS))

    def is_lost(self, packet_id: int) -> bool:
        """True if a redelivery that differs from the entry under this packet id may belong to a lost entry of the
        table."""
        return self.emptied or (bool(self.lost) and packet_id >> 8 in self.lost and not self.indices[packet_id])

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
        """Fills the table from pages as `take_dirty` gave them, compressed or not. One that is damaged is lost."""
        for page, raw in pages:
            if not raw or not 0 <= page < IDS // PAGE_IDS:
                continue
            with suppress(PayloadError):
                raw = raw if len(raw) == PAGE_BYTES else expanded_untrusted(raw)
            if len(raw) != PAGE_BYTES:
                self.lost.add(page)
                self.dirty.add(page)
                continue
            ids = slice(page * PAGE_IDS, (page + 1) * PAGE_IDS)
            self.hashes[ids] = array("Q", raw[: 8 * PAGE_IDS])
            self.indices[ids] = array("Q", raw[8 * PAGE_IDS :])
