"""`join_observations`: rows of one key and time that carry different fields become one row again.

a 12:00 temperature 21 ─┐
a 12:00 humidity 40    ─┼─▶ a 12:00 temperature 21 humidity 40     when the last of the wanted fields came,
a 12:00 dust 380       ─┘           dust 380                       or the watermark has passed by the time-out
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from heapq import heapify, heappop, heappush
from operator import itemgetter
from sys import getsizeof
from typing import Any, Final

from edgert.core.batch import NO_WATERMARK, Batch, RawBatch, Row, great_bytes
from edgert.core.errors import Problem
from edgert.core.text.long_text import SHORT
from edgert.flow.graph import Flow, Node
from edgert.flow.spec import ANY, FieldUse, OperatorSpec, Parameter
from edgert.operators.base.fields import field_name, field_names, hashable, key_reader, new_field
from edgert.operators.base.logic import Build, Emission, Logic, Now
from edgert.operators.state.bounded_keys import MEMORY_BYTES, BoundedKeys
from edgert.operators.state.wrong_clock import TAKEN_BACK, is_taken_back

At = tuple[float, Any]
"""Event time and key."""
_SLACK: Final = 64
OPEN_BYTES: Final = 240
"""Bytes of an observation beside key and fields, as measured: its place in the heap, and that of one that left."""
FIELD_BYTES: Final = 80
"""Bytes per field, as measured; long text and lists add to that."""
_TEXT_BYTES: Final = getsizeof("x" * SHORT)
"""Size of a text of the key, which is also a field of the row: it is counted with the key."""
_LEFT_BYTES: Final = 8 << 20
"""So much more than most took may observations that are no longer open, before their keys are let go."""


class JoinObservations(Logic):
    """State: the observations that wait for fields, each as the row that it has become so far, and the watermarks."""

    def __init__(
        self,
        on: Sequence[str],
        fields: Sequence[str],
        timeout_s: float = 10.0,
        incomplete: str = "null",
        max_open: int = 10_000,
        inputs: int = 1,
    ) -> None:
        super().__init__()
        self._least = len({"time", "source", *fields})
        """Fields that each has."""
        self.bounded: BoundedKeys[Row] = BoundedKeys(OPEN_BYTES + FIELD_BYTES * self._least, most_keys=max_open)
        self.memory = self.bounded.memory
        self.open: dict[At, Row] = self.bounded.kept
        self.watermark = NO_WATERMARK
        self._watermarks = [NO_WATERMARK] * max(1, inputs)
        self._saved_watermarks = list(self._watermarks)
        self._key_of = key_reader(on)
        self._fields, self._values = frozenset(fields), itemgetter(*fields)
        self._nothing = dict.fromkeys(fields)
        self._timeout_s = timeout_s
        self._drops_incomplete = incomplete == "drop"
        self.by_time: list[tuple[float, int, Any]] = []
        """A heap of (time, number, key) of those that are open, and of some that no longer are."""
        self._left_bytes = 0
        """Bytes by which observations that left took more than most: their keys, which may be long, are still in the
        heap."""
        self._number = 0
        self._dirty: dict[At, None] = {}
        self._gone: list[At] = []
        self._told: set[At] = set()
        """Observations that the state before the next delta holds."""

    def process(self, batch: Batch | RawBatch, source: int, now: Now) -> Sequence[Emission]:
        assert isinstance(batch, Batch)
        if is_taken_back(self._watermarks[source], batch.watermark):
            self._watermarks[source] = batch.watermark
            self.watermark = min(self._watermarks)
            self.drops[TAKEN_BACK] += 1
        out = self._gathered(batch.rows) if batch.rows else []
        before = self.watermark
        if batch.watermark > self._watermarks[source]:
            self._watermarks[source] = batch.watermark
            self.watermark = max(before, min(self._watermarks))
        self._close(self.watermark - self._timeout_s, out)
        if not out and self.watermark == before:
            return ()
        size = batch.size * len(out) // len(batch.rows) if batch.rows else 0
        # an observation that waits leaves with its own time, so nothing is promised of that
        return (Emission(0, Batch(out, batch.arrival, self.watermark - self._timeout_s, size)),)

    def _gathered(self, rows: Sequence[Row]) -> list[Row]:
        opened, key_of, values, nothing, wanted = self.open, self._key_of, self._values, self._nothing, self._fields
        bounded, heavy, least = self.bounded, self.bounded.heavy, self._least
        out: list[Row] = []
        repeated = 0
        for row in rows:
            at = (row["time"], key_of(row))
            kept = opened.get(at)
            if kept is None:
                kept = {**nothing, **row}
                if None not in values(kept):
                    out.append(kept)
                    continue
                opened[at] = kept
                self._wait(at)
                if len(kept) > least:
                    bounded.beyond_bytes += FIELD_BYTES * (len(kept) - least)
            else:
                before = len(kept)
                for name, value in row.items():
                    if value is not None:
                        repeated += name in wanted and kept[name] is not None
                        kept[name] = value
                if len(kept) > before:
                    bounded.beyond_bytes += FIELD_BYTES * (len(kept) - before)
                if None not in values(kept):
                    out.append(self._taken(at))
                    continue
            if heavy or great_bytes(row.values()):  # else it weighs no more than before
                bounded.weighs(at, max(0, great_bytes(kept.values()) - _TEXT_BYTES))
            self._dirty[at] = None
        if repeated:
            self.drops["repeated (values)"] += repeated
        while many := bounded.too_many():
            self.drops["too many open (observations)"] += len(many)
            for at in many:
                self._give_up(at, out)
        return out

    def _wait(self, at: At) -> None:
        heap = self.by_time
        if len(heap) > 2 * len(self.open) + _SLACK or self._left_bytes > _LEFT_BYTES:
            self._left_bytes = 0
            heap[:] = [entry for entry in heap if (entry[0], entry[2]) in self.open]
            heapify(heap)
        self._number += 1
        heappush(heap, (at[0], self._number, at[1]))

    def _taken(self, at: At) -> Row:
        self._dirty.pop(at, None)
        if at in self._told:
            self._gone.append(at)
            self._told.discard(at)
        if self.bounded.heavy:
            self._left_bytes += self.bounded.heavy.get(at, 0)
        row = self.bounded.forget(at)
        if len(row) > self._least:
            self.bounded.beyond_bytes -= FIELD_BYTES * (len(row) - self._least)
        return row

    def _close(self, until: float, out: list[Row]) -> None:
        heap = self.by_time
        while heap and heap[0][0] <= until:
            time, _, key = heappop(heap)
            if (time, key) in self.open:
                self._give_up((time, key), out)

    def _give_up(self, at: At, out: list[Row]) -> None:
        """An observation that will not be complete any more."""
        row = self._taken(at)
        if self._drops_incomplete:
            self.drops["incomplete (observations)"] += 1
        else:
            self.drops["absent (values)"] += self._values(row).count(None)
            out.append(row)

    def flush(self, now: Now) -> Sequence[Emission]:
        out: list[Row] = []
        for at in list(self.open):
            self._give_up(at, out)
        return (Emission(0, Batch(out, now.monotonic, self.watermark)),) if out else ()

    # -- checkpoints

    def delta(self) -> Any | None:
        if not self._dirty and not self._gone and self._saved_watermarks == self._watermarks:
            return None
        dirty, gone = self._dirty, self._gone
        self._dirty, self._gone = {}, []
        self._told.update(dirty)
        self._saved_watermarks = list(self._watermarks)
        return {"gone": gone, "open": [[*at, dict(self.open[at])] for at in dirty], **self._times()}

    def snapshot(self) -> Any | None:
        return {"gone": [], "open": [[*at, dict(row)] for at, row in self.open.items()], **self._times()}

    def _times(self) -> dict[str, Any]:
        return {"marks": list(self._watermarks), "watermark": self.watermark}

    def restore(self, state: Any) -> None:
        for time, key in state["gone"]:
            at = (time, hashable(key))
            self._told.discard(at)
            if at in self.open:
                self._taken(at)
        for time, key, row in state["open"]:
            at = (time, hashable(key))
            before = self._least
            if at in self.open:
                before = len(self.open[at])
            else:
                self._wait(at)
            kept = self.open[at] = {**self._nothing, **row}
            self.bounded.beyond_bytes += FIELD_BYTES * (len(kept) - before)
            self.bounded.weighs(at, max(0, great_bytes(kept.values()) - _TEXT_BYTES))
            self._told.add(at)
        if stored := state.get("marks"):  # what was written before they were kept has none
            self._watermarks = [*stored, *self._watermarks[len(stored) :]][: len(self._watermarks)]
            self._saved_watermarks = list(self._watermarks)
            self.watermark = state["watermark"]


def _wanted(names: Sequence[str]) -> tuple[str, ...]:
    if len(field_names(names)) < 2:
        raise ValueError(f"expected at least two fields, got {', '.join(names)}")
    return tuple(names)


def _check(node: Node, flow: Flow) -> Iterable[Problem]:
    for name in node.parameters["fields"]:
        if name in node.parameters["on"]:
            yield Problem(f"operators.{node.name}.fields", "fields that are not in `on`", name)


def _make(build: Build) -> JoinObservations:
    p = build.node.parameters
    return JoinObservations(p["on"], p["fields"], p["timeout_s"], p["incomplete"], p["max_open"], build.inputs)


SPECS = (
    OperatorSpec(
        type="join_observations",
        doc="Makes one row of the rows that have the same key and event time and carry different fields, from one "
        "input or several. It leaves when the last of the wanted fields came; of a field that came twice the newer "
        "value counts, and that is counted.",
        many_inputs=True,
        check=_check,
        fields=lambda node: FieldUse(frozenset((*node.parameters["on"], *node.parameters["fields"]))),
        keyed=False,
        logic=_make,
        divides_by=lambda node, keys: tuple((name, ANY) for name in node.parameters["on"]),
        parameters=(
            Parameter(
                "fields",
                "strings",
                "The fields that make an observation complete.",
                parse_item=new_field,
                parse=_wanted,
            ),
            Parameter(
                "on",
                "strings",
                "The fields that must be equal, beside the time.",
                ["source"],
                parse_item=field_name,
                parse=field_names,
            ),
            Parameter(
                "timeout_s",
                "number",
                "How long an observation waits for fields, in event time.",
                10.0,
                "s",
                minimum=0.0,
                maximum=31_622_400,
            ),
            Parameter(
                "incomplete",
                "string",
                "What becomes of it then: its absent fields are null, or it is dropped. Either is counted.",
                "null",
                choices=("null", "drop"),
            ),
            Parameter(
                "max_open",
                "integer",
                "Observations that wait, at most. Memory may bound them earlier, as no more wait than "
                f"{MEMORY_BYTES >> 20} MB hold: some 80,000 with two fields beside time and source, fewer where rows "
                "are wide or have long text. Beyond either those that have waited longest are incomplete, at least "
                "a hundredth at once, and counted.",
                10_000,
                minimum=1,
                maximum=1_000_000,
            ),
        ),
    ),
)
