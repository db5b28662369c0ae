"""Fields that a flow names and that no payload of its source ever had but as null: most often a word spelled wrong.

A decoder builds only the fields that are used, and fused code builds no rows, so a payload now and then is decoded once
more, with all its fields. A payload that holds the text of a missing name is always decoded; so a rare field is found.
"""

from __future__ import annotations

import re
from typing import Final

from edgert.codecs.base import Captures, Codec
from edgert.core.batch import RawBatch, Row
from edgert.core.errors import PayloadError

LOOK_S: Final = 1.0
"""A payload is decoded at most this often without a reason of its own."""
ENOUGH_S: Final = 20.0
"""A field counts as never seen after so long since the first row,"""
ENOUGH_LOOKS: Final = 10
"""and after so many decoded payloads."""
MOST_SEEN: Final = 64
"""Names that are kept of those seen."""
MOST_HITS: Final = 64
"""Payloads that hold the text of a missing name and not the field, until that text is looked for no more."""


class UnseenFields:
    """Fields that a source has not seen yet. `missing` shrinks as fields are seen, until it is empty."""

    def __init__(self, named: frozenset[str], codec: Codec | None, captures: Captures) -> None:
        """`named`: fields that the flow reads by name from this source's rows. `codec` builds all fields."""
        self.missing = dict.fromkeys(sorted(named)) if codec else {}
        self.seen: dict[str, None] = {}
        self.came: dict[str, None] = {}
        """Fields of `missing` that a payload had, with null or, in JSON, a value that cannot be used."""
        self._codec, self._captures = codec, captures
        self._needles = {name: name.rpartition(".")[2].encode() for name in self.missing}
        self._began: float | None = None
        self._next_look = float("-inf")
        self._looks = self._hits = 0

    def look(self, batch: RawBatch) -> None:
        """Takes note of a batch of messages."""
        if not self.missing or not batch.payloads:
            return
        if batch.arrival >= self._next_look:
            self._next_look = batch.arrival + LOOK_S
            self._decode(batch, self._looks % len(batch.payloads))
        if self._hits < MOST_HITS:
            for name in tuple(self.missing):
                needle = self._needles[name]
                hit = next((at for at, payload in enumerate(batch.payloads) if needle in payload), None)
                if hit is not None:
                    self._hits += 1
                    self._decode(batch, hit)
                    if name in self.missing and re.search(rb'"%b"\s*:' % re.escape(needle), batch.payloads[hit]):
                        self.came[name] = None

    def _decode(self, batch: RawBatch, at: int) -> None:
        assert self._codec is not None
        rows: list[Row] = []
        topic = batch.topics[at]
        try:
            self._codec.decode_untrusted(batch.payloads[at], self._captures(topic), batch.wall, rows, topic)
        except PayloadError:
            return
        self._looks += 1
        if self._began is None and rows:
            self._began = batch.arrival
        for row in rows:
            for name, value in row.items():
                if value is not None:
                    self.missing.pop(name, None)
                    self.came.pop(name, None)
                elif name in self.missing:
                    self.came[name] = None
                if len(self.seen) < MOST_SEEN:
                    self.seen[name] = None

    def never_seen(self, now: float) -> list[str]:
        """The missing fields; none before there was enough to judge by. `now` is in seconds, as arrivals are."""
        if self._began is None or now - self._began < ENOUGH_S or self._looks < ENOUGH_LOOKS:
            return []
        return list(self.missing)
