"""A source, the stateless operators behind it and the window behind these as one instance, one function per message.

    decode ─ filter ─ map ─ window add        for each message of a learned shape, values in local variables, no row
       └──── rows ──── chain ──── window      for any other, the ordinary way through the same parts

Rows exist to be handed on; where nobody else looks at them, making one, putting it into lists and taking its fields out
again is most of the cost of a small flow (`benchmarks ingest`). The parts keep their state, counters and names: a
checkpoint made without fusion is restored with it, and the other way round.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from edgert.codecs.shapes import Fusible, Value
from edgert.core.batch import NO_WATERMARK, Batch, RawBatch
from edgert.expr.compile import inline_chain
from edgert.operators.fused import Fused
from edgert.operators.logic import Emission, Logic, Now
from edgert.operators.source import Source
from edgert.operators.windows import TumblingWindow


class Pipeline(Logic):
    """Input 0 takes raw batches. Input k takes rows for part k: those that a checkpoint found in a queue there."""

    setup: Final = (
        "limit, recent, open_window, generation, dirty = begin()",
        "newest = NEVER",
        "current = accs = None",
        "lost = late = bad = 0",
    )
    finish: Final = ("end(i - start, newest, lost, late, bad)",)
    misfits: Final = (TypeError, ArithmeticError)
    """What an expression raises for a row that it cannot work on (beside ValueError)."""

    def __init__(self, source: Source, chain: Fused | None, window: TumblingWindow) -> None:
        super().__init__()
        self.drops = source.drops
        self._source, self._chain, self._window = source, chain, window
        self.parts: tuple[Logic, ...] = (source, chain, window) if chain else (source, window)
        self.gave: list[int] = [0] * len(self.parts)
        """Rows that each part gave to the next, or out."""
        self._limit = self._heard = 0.0
        if isinstance(source.codec, Fusible):
            source.codec.fuse(self)
            source.mixed = True

    def process(self, batch: Batch | RawBatch, source: int, now: Now) -> Sequence[Emission]:
        if isinstance(batch, Batch):
            return self._rows(batch, source, now)
        origin = self._source
        looks = origin.begin(now)
        self._limit, self._heard = origin.limit(batch.wall), now.monotonic
        rows = origin.rows_of(batch, now)
        if origin.messages:
            self.messages += origin.messages
            origin.messages = []
        self.gave[0] += len(rows)
        return self._rows(Batch(rows, batch.arrival, origin.end(looks, now)), 1, now)

    def _rows(self, batch: Batch, part: int, now: Now) -> Sequence[Emission]:
        """The ordinary way from `part` on. Without rows it still brings the watermark to the window."""
        if self._chain and part == 1 and batch.rows:
            batch = replace(batch, rows=self._chain.apply(batch.rows))
            self.gave[1] += len(batch)
        return self._count(self._window.process(batch, 0, now))

    def _count(self, emissions: Sequence[Emission]) -> Sequence[Emission]:
        self.gave[-1] += sum(len(emission.batch) for emission in emissions)
        return emissions

    def flush(self, now: Now) -> Sequence[Emission]:
        return self._count(self._window.flush(now))

    # -- as the codec's tail (`edgert.codecs.shapes.Tail`)

    def body(self, values: Mapping[str, Value]) -> tuple[list[str], dict[str, Any]]:
        """As `Tail`. Notes the time, goes through the chain, adds to the window; or breaks off before the first."""
        lines = ["if t > limit:", "    break", "if t > newest:", "    newest = t", "recent[source] = t"]
        constants: dict[str, Any] = {"begin": self._begin, "end": self._end, "NEVER": NO_WATERMARK}
        bound = _bind(values)
        lines += bound.lines
        variables: Mapping[str, str] = bound.variables
        if self._chain:
            inlined = inline_chain(self._chain.steps, variables, bound.sure)
            lines += inlined.lines
            variables = inlined.fields
            constants |= inlined.constants
        finite = frozenset(field for field, variable in variables.items() if variable in bound.finite)
        add, more = self._window.inline(variables, finite)
        return lines + add, constants | dict(more)

    def _begin(self) -> tuple[Any, ...]:
        return self._limit, self._source.recent, *self._window.adding()

    def _end(self, messages: int, newest: float, lost: int, late: int, bad: int) -> None:
        if not messages:
            return
        self._source.observed(newest, self._heard)
        self._window.added(late, bad)
        gave = self.gave
        gave[0] += messages
        if self._chain:
            gave[1] += messages - lost


@dataclass(frozen=True, slots=True)
class _Bound:
    lines: list[str]
    variables: Mapping[str, str]
    sure: frozenset[str]
    finite: frozenset[str]


def _bind(values: Mapping[str, Value]) -> _Bound:
    """Every value as a local variable, since chain and window name it more than once."""
    lines = []
    variables = {}
    for number, (field, value) in enumerate(values.items()):
        variables[field] = value.code
        if not value.code.isidentifier():
            variables[field] = f"x{number}"
            lines.append(f"x{number} = {value.code}")
    sure = frozenset(variables[field] for field, value in values.items() if value.sure)
    return _Bound(lines, variables, sure, frozenset(variables[f] for f, value in values.items() if value.finite))
