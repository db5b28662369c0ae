"""A region that begins with a source and goes on to a window: one function per shape of message.

    decode ─ filter ─ map ─ window add        for each message of a learned shape, values in local variables, no row
       └──── rows ──── chain ──── window      for any other, the ordinary way through the same parts

Rows exist to be handed on; where nobody else looks at them, making one, putting it into lists and taking its fields out
again is most of the cost of a small flow (`benchmarks ingest`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from edgert.codecs.shapes import Fusible, Value
from edgert.core.batch import NO_WATERMARK, Batch, RawBatch
from edgert.expr.compile import inline_chain
from edgert.operators.fused import Fused
from edgert.operators.guard import Guard
from edgert.operators.logic import Emission, Logic, Now
from edgert.operators.region import Edge, Region
from edgert.operators.source import Source
from edgert.operators.windows import TumblingWindow


@dataclass(slots=True)
class _Turn:
    """What the function is given for a batch, and what it counts in it."""

    given: tuple[Any, ...] = ()
    messages: int = 0
    lost: int = 0
    late: int = 0
    bad: int = 0
    bad_keys: int = 0
    newest: float = NO_WATERMARK


class Pipeline(Region):
    """The first parts are the source, the chain of stateless operators behind it, if any, and the window."""

    setup: Final = (
        "limit, recent, open_window, generation, dirty = turn.given",
        "newest = NEVER",
        "current = accs = None",
        "lost = late = bad = bad_keys = 0",
    )
    finish: Final = (
        "turn.messages += i - start",
        "turn.lost += lost",
        "turn.late += late",
        "turn.bad += bad",
        "turn.bad_keys += bad_keys",
        "if newest > turn.newest:",
        "    turn.newest = newest",
    )
    misfits: Final = (TypeError, ArithmeticError)
    """What an expression raises for a row that it cannot work on (beside ValueError)."""

    def __init__(self, parts: Sequence[Logic], edges: Sequence[Edge], exits: Sequence[tuple[int, int]] = ()) -> None:
        super().__init__(parts, edges, exits)
        source, chain, window = _heads(parts)
        self._source, self._chain, self._window = source, chain, window
        self._tally = _Turn()
        # a message that went to the window is there: then a batch in which the codec raises cannot be given again
        head = Guard(source, self._head, repeatable=not isinstance(source.codec, Fusible))
        self.guard_by((head, *self.guards[1:]))
        self._fuse()

    def _fuse(self) -> None:
        self._fused = self._chain.generation if self._chain else 0
        if isinstance(self._source.codec, Fusible):
            self._source.codec.fuse(self)
            self._source.mixed = True

    @staticmethod
    def fits(parts: Sequence[Logic], edges: Sequence[Edge], exits: Sequence[tuple[int, int]] = ()) -> bool:
        """Whether a region begins in such a way, and nobody else reads what lies between."""
        kinds = tuple(type(part) for part in parts)
        if kinds[:2] != (Source, TumblingWindow) and kinds[:3] != (Source, Fused, TumblingWindow):
            return False
        window = kinds.index(TumblingWindow)
        between = [Edge(part, 0, part + 1, 0) for part in range(window)]
        return [edge for edge in edges if edge.part < window] == between and all(part >= window for part, _ in exits)

    def process(self, batch: Batch | RawBatch, source: int, now: Now) -> Sequence[Emission]:
        if isinstance(batch, Batch):
            return super().process(batch, source, now)
        if self._chain:
            self._chain.renew()
            if self._chain.generation != self._fused:
                self._fuse()
        steps = self.steps(now)
        head, process = steps[0].guard, steps[0].process
        self.took[0] += len(batch)
        emissions = process(batch, source, now)
        if head.held:
            self.hold(0, source)
        self.take_messages(self._source)
        out: list[Emission] = []
        for _, emitted in emissions:
            self.gave[0] += len(emitted.rows)
            out += self.through(
                {1: [(0, emitted)]}, now, steps
            )  # without rows it still brings the watermark to the window
        return out

    def _head(self, batch: Batch | RawBatch, _: int, now: Now) -> Sequence[Emission]:
        """Decodes; what comes out are the messages that did not go to the window from there."""
        assert isinstance(batch, RawBatch)
        origin = self._source
        looks = origin.begin(now)
        turn = self._tally
        turn.given = (origin.limit(batch.wall), origin.recent, *self._window.adding())
        rows = origin.rows_of(batch)
        if turn.messages:
            self._count(turn, batch.arrival)
        return (Emission(0, Batch(rows, batch.arrival, origin.end(looks, batch.arrival, now))),)

    def _count(self, turn: _Turn, arrival: float) -> None:
        """Takes over what the function has counted."""
        messages, kept = turn.messages, turn.messages - turn.lost
        self._source.observed(turn.newest, arrival)
        self._window.added(turn.late, turn.bad, turn.bad_keys)
        self.gave[0] += messages
        if self._chain:
            self._chain.count_lacking(messages)
            self._chain.count_missed()
            self.took[1] += messages
            self.gave[1] += kept
        self.took[2 if self._chain else 1] += kept
        turn.messages = turn.lost = turn.late = turn.bad = turn.bad_keys = 0
        turn.newest = NO_WATERMARK

    # -- as the codec's tail (`edgert.codecs.shapes.Tail`)

    def body(self, values: Mapping[str, Value]) -> tuple[list[str], dict[str, Any]]:
        """As `Tail`. Notes the time, goes through the chain, adds to the window; or breaks off before the first: where
        it is ahead of time, or there is none (NaN)."""
        lines = ["if not t <= limit:", "    break", "if t > newest:", "    newest = t", "recent[source] = t"]
        constants: dict[str, Any] = {"turn": self._tally, "NEVER": NO_WATERMARK}
        bound = _bind(values)
        lines += bound.lines
        variables: Mapping[str, str] = bound.variables
        if self._chain:
            inlined = inline_chain(self._chain.chain, variables, bound.sure, bound.finite)
            lines += inlined.lines
            variables = inlined.fields
            constants |= inlined.constants
        finite = frozenset(field for field, variable in variables.items() if variable in bound.finite)
        add, more = self._window.inline(variables, finite)
        return lines + add, constants | dict(more)


def _heads(parts: Sequence[Logic]) -> tuple[Source, Fused | None, TumblingWindow]:
    source, second = parts[0], parts[1]
    chain = second if isinstance(second, Fused) else None
    window = parts[2] if chain else second
    assert isinstance(source, Source)
    assert isinstance(window, TumblingWindow)
    return source, chain, window


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
