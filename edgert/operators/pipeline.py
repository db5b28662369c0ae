"""A region that begins with a source, compiled: one function per shape of message, in which no row exists.

    decode ─┬─ predict ─┬─ publish        for each message of a learned shape, values in local variables
            ├─ map ─────┴─ join           as far as operators have lines (`edgert.operators.inline`);
            └─ window add                 rows are made for those that have none
       └──── rows ──── parts              for any other message, the ordinary way through the same parts

Rows exist to be handed on; where nobody else looks at them, making one, putting it into lists and taking its fields out
again is most of the cost of a small flow (`benchmarks ingest`, `benchmarks riotbench`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from edgert.codecs.shapes import Body, Fusible, Value
from edgert.core.batch import NO_WATERMARK, Batch, RawBatch, Row
from edgert.operators.fused import Fused
from edgert.operators.guard import Guard
from edgert.operators.inline import Fields
from edgert.operators.logic import Emission, Logic, Now
from edgert.operators.region import SAMPLED_S, Edge, Region, Step, Waiting
from edgert.operators.source import Source
from edgert.operators.tree import Tree

APART_S: Final = 10 * SAMPLED_S
"""About so often a turn goes the ordinary way, in which its parts can be timed: it costs twice as much."""


class Pipeline(Region):
    """All messages of a batch behind one that became a row become rows: none overtakes another."""

    misfits: Final = (TypeError, ArithmeticError)
    """What an expression raises for a row that it cannot work on (beside ValueError)."""

    def __init__(
        self, parts: Sequence[Logic], edges: Sequence[Edge], exits: Sequence[tuple[int, int]] = (), inputs: int = 1
    ) -> None:
        super().__init__(parts, edges, exits, inputs)
        source = parts[0]
        assert isinstance(source, Source)
        self._source = source
        self.sampled_s = APART_S
        self._tree = Tree(self.parts, edges, frozenset(part for part, _ in exits))
        models = [entry.logic for entry in self._tree.entries if isinstance(entry.logic, Fused)]
        self._models = [chain for chain in models if chain.predictions.nodes]
        self._generations: list[int] = []
        self._given: tuple[bool, float, dict[str, float]] = (True, 0.0, {})
        """Whether all of this batch is to become rows, else `Source.limit` and `Source.recent`."""
        self._arrival = 0.0
        self._came = 0
        """Messages of this batch that went by the lines."""
        self._rows: dict[int, list[Row]] = {part: [] for part in self._tree.gives}
        """By part: what its lines have given to who takes rows."""
        self._known: dict[tuple[str, ...], dict[str, tuple[Any, ...]]] = {}
        """What follows from topics, by what that is."""
        # a message that went by the lines is there: then a batch in which the codec raises cannot be given again
        head = Guard(source, self._head, repeatable=not isinstance(source.codec, Fusible))
        self.guard_by((head, *self.guards[1:]))
        self._outward = {part: self.ordinary[part]._replace(to={0: to}) for part, to in self._tree.outward.items()}
        self._renew()
        self._fuse()

    @staticmethod
    def fits(parts: Sequence[Logic], edges: Sequence[Edge]) -> bool:
        """Whether a region begins with a source, and goes on with a part that has lines."""
        return isinstance(parts[0], Source) and bool(Tree(parts, edges).entries)

    def process(self, batch: Batch | RawBatch, source: int, now: Now) -> Sequence[Emission]:
        if isinstance(batch, Batch):
            return super().process(batch, source, now)
        if self._models and self._renew():
            self._fuse()
        steps = self.steps(now)
        # what is timed by parts has to go through them, and nothing overtakes what is held
        by_rows = steps is not self.ordinary or bool(self.held)
        self._given = by_rows, self._source.limit(batch.wall), {}
        self._arrival = batch.arrival
        head, process = steps[0].guard, steps[0].process
        self.took[0] += len(batch)
        emissions = process(batch, source, now)
        if head.held:
            self.hold(0, source)
        self.take_messages(self._source)
        for entry in self._tree.ends:
            if entry.logic.messages:
                self.take_messages(entry.logic)
        return [emission for _, rest in emissions for emission in self._go_on(rest, now, steps)]

    def _renew(self) -> bool:
        """Takes models that came; whether there were any."""
        for chain in self._models:
            chain.renew()
        before, self._generations = self._generations, [chain.generation for chain in self._models]
        return before != self._generations

    def _fuse(self) -> None:
        if isinstance(self._source.codec, Fusible):
            self._source.codec.fuse(self)

    def _head(self, batch: Batch | RawBatch, _: int, now: Now) -> Sequence[Emission]:
        """Decodes; what comes out are the messages that became rows."""
        assert isinstance(batch, RawBatch)
        origin = self._source
        looks = origin.begin(now)
        self._given = (*self._given[:2], origin.recent)
        before = origin.devices.watermark
        rows = origin.rows_of(batch)
        watermark = origin.end(looks, batch.arrival, now)
        came, self._came = self._came, 0
        if not rows and not came and watermark == before:
            return ()
        return (Emission(0, Batch(rows, batch.arrival, watermark)),)

    def _go_on(self, rest: Batch, now: Now, steps: Sequence[Step]) -> list[Emission]:
        """The ordinary way: for rows that lines have given or completed, for the `rest` of the messages, and for time,
        behind all of them, where it matters. Each part gives first what its lines have given."""
        out: list[Emission] = []
        given = Batch([], rest.arrival, NO_WATERMARK if rest.rows else rest.watermark)
        timely = given.watermark != NO_WATERMARK
        waiting: dict[int, Waiting] = {
            part: [(source, given)]
            for part, logic, _, source in self._tree.ends
            if logic.completed or (timely and part in self._tree.timely)
        }
        self._give(0, given, waiting, out)
        if rest.rows:
            self.gave[0] += len(rest.rows)
            self.pass_on(self.ordinary[0], (Emission(0, rest),), waiting, out)
        for part in self._tree.gives:
            if part:
                if waiting:
                    out += self.through(waiting, now, steps[:part])
                self._give(part, given, waiting, out)
        return out + self.through(waiting, now, steps) if waiting else out

    def _give(self, part: int, given: Batch, waiting: dict[int, Waiting], out: list[Emission]) -> None:
        """What lines have given, with arrival and watermark of `given`."""
        rows = self._rows.get(part)
        if rows or (self._tree.gives.get(part) and given.watermark != NO_WATERMARK):
            self._rows[part] = []
            batch = Batch(rows or [], given.arrival, given.watermark)
            self.pass_on(self._outward[part], (Emission(0, batch),), waiting, out)

    # -- as the codec's tail (`edgert.codecs.shapes.Tail`)

    def body(self, values: Mapping[str, Value]) -> Body:
        """As `Tail`. A message is refused that comes behind one that was, or has no time (NaN)."""
        row, bind = _bind(values)
        text = self._tree.text(row, self.took, self.gave, self._rows)
        setup = ["by_rows, limit, recent = given()", "if by_rows or rows:", "    return ~start"]
        setup += ["newest = NEVER", "ahead = 0", *text.setup]
        refused = "not t <= limit" if self._source.drops_ahead else "t != t"
        check = [f"if {refused}:", "    break", *bind, *text.check]
        effect = ["seen = t", "if t > limit:", "    seen = wall", "    ahead += 1"]
        effect += ["if seen > newest:", "    newest = seen", "recent[source] = seen", *text.effect]
        constants: dict[str, Any] = {"given": lambda: self._given, "taken": self._taken, "NEVER": NO_WATERMARK}
        known = self._known.setdefault(tuple(text.of_topic), {})
        finish = [*text.finish, "taken(n_0, newest, ahead)"]
        return Body([*check, *effect], constants | text.constants, setup, finish, text.of_topic, known)

    def _taken(self, messages: int, newest: float, ahead: int) -> None:
        self._came += messages
        if messages:
            self._source.observed(newest, self._arrival, ahead)


def _bind(values: Mapping[str, Value]) -> tuple[Fields, list[str]]:
    """Every value as a local variable, since lines name it more than once."""
    lines = []
    variables = {}
    for number, (field, value) in enumerate(values.items()):
        variables[field] = value.code
        if not value.code.isidentifier():
            variables[field] = f"x{number}"
            lines.append(f"x{number} = {value.code}")
    sure = frozenset(variables[field] for field, value in values.items() if value.sure)
    finite = frozenset(variables[field] for field, value in values.items() if value.finite)
    captured = {variables[field]: value.captured for field, value in values.items() if value.captured}
    return Fields(variables, sure, finite, captured=captured), lines
