"""Which shapes a stream of packs has: learned from what the tolerant way has decoded, tried before it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from edgert.codecs.base import Captures
from edgert.codecs.senml_pack import Pack
from edgert.codecs.senml_shape import Run, Shape, compile_shape, shape_of
from edgert.core.batch import Row

SIGHTINGS: Final = 3
"""Packs of a shape before it is worth a function of its own (compiling takes about a millisecond)."""
ACTIVE: Final = 4
"""Shapes that are tried on a message, the last that fitted first: each that does not fit costs about a microsecond."""
COMPILED: Final = 32
"""Functions that are ever made by one codec, so that a publisher who changes shape all the time costs no memory."""
SEEN: Final = 256
PATIENCE: Final = 64
"""Misses beyond the hits after which the active shapes rest: the stream has none, or others."""


class Shapes:
    """The shapes of one codec's messages."""

    def __init__(self, fields: frozenset[str] | None) -> None:
        self._fields = fields
        self._seen: dict[Shape, int] = {}
        self._compiled: dict[Shape, Run] = {}
        self._active: list[Run] = []
        self._misses = 0

    def run(
        self,
        topics: Sequence[str],
        payloads: Sequence[bytes],
        captures: Captures,
        wall: float,
        rows: list[Row],
        start: int,
        stop: int,
    ) -> int:
        """As `Run`, with whichever shape fits. The message at the index returned (if below `stop`) fits none."""
        index = start
        fitted = True
        while fitted and index < stop:
            fitted = False
            for place, shape in enumerate(self._active):
                reached = shape(topics, payloads, captures, wall, rows, index, stop)
                if reached > index:
                    index, fitted = reached, True
                    if place:
                        self._active.insert(0, self._active.pop(place))
                    break
        self._misses = max(0, self._misses - (index - start))
        if index < stop and self._active:
            self._misses += 1
            if self._misses > PATIENCE:
                self._active.clear()
                self._misses = 0
        return index

    def learn(self, pack: Pack, captures: Mapping[str, str]) -> None:
        """Note the shape of a `pack` that gave one row and no fault; what was seen often enough becomes active."""
        shape = shape_of(pack)
        if shape is None:
            return
        if len(self._seen) >= SEEN:
            self._seen.clear()
        sightings = self._seen[shape] = self._seen.get(shape, 0) + 1
        if sightings < SIGHTINGS:
            return
        del self._seen[shape]
        function = self._compiled.get(shape)
        if function is None:
            if len(self._compiled) >= COMPILED:
                return
            function = self._compiled[shape] = compile_shape(shape, self._fields, frozenset(captures))
        if function not in self._active:
            self._active = [function, *self._active[: ACTIVE - 1]]
