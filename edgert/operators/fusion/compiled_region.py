"""A region that begins with a source, compiled: one function per shape of message, in which no row exists.

    decode ─┬─ predict ─┬─ publish        for each message of a learned shape, values in local variables
            ├─ map ─────┴─ join           as far as operators have lines (`edgert.operators.base.inline`);
            └─ window add                 rows are made for those that have none
       └──── rows ──── stages              for any other message, the ordinary way through the same stages

Rows exist to be handed on; where nobody else looks at them, making one, putting it into lists and taking its fields out
again is most of the cost of a small flow (`benchmarks ingest`, `benchmarks riotbench`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from edgert.codecs.shapes import Body, Fusible, Getter, fuses
from edgert.core.batch import NO_WATERMARK, Batch, RawBatch, Row
from edgert.operators.base.error_boundary import ErrorBoundary
from edgert.operators.base.inline import Fields
from edgert.operators.base.logic import Emission, Logic, Now
from edgert.operators.fusion.chain import Chain
from edgert.operators.fusion.code_tree import CodeTree
from edgert.operators.fusion.region import SAMPLED_S, Region, StageEdge, StageInput, StageStep
from edgert.operators.sources.source import Source

APART_S: Final = 10 * SAMPLED_S
"""About so often a turn goes the ordinary way, in which its stages can be timed: it costs twice as much."""


class CompiledRegion(Region):
    """All messages of a batch behind one that became a row become rows: none overtakes another."""

    misfits: Final = (TypeError, ArithmeticError)
    """Exceptions of an expression for a row that it cannot work on (beside ValueError)."""

    def __init__(
        self,
        stages: Sequence[Logic],
        edges: Sequence[StageEdge],
        exits: Sequence[tuple[int, int]] = (),
        inputs: int = 1,
    ) -> None:
        super().__init__(stages, edges, exits, inputs)
        source = stages[0]
        assert isinstance(source, Source)
        self._source = source
        self.sampled_s = APART_S
        self._edges, self._leaving = edges, frozenset(stage for stage, _ in exits)
        self._models = [stage for stage in stages if isinstance(stage, Chain) and stage.predictions.nodes]
        self._generations: list[int] = []
        self._given: tuple[bool, float, dict[str, float]] = (True, 0.0, {})
        """True if all of this batch is to become rows, else `Source.limit` and `Source.recent`."""
        self._arrival = 0.0
        self._came = 0
        """Messages of this batch that went by the lines."""
        self._rows: dict[int, list[Row]] = {}
        """Rows by stage that its lines have given to takers of rows."""
        self._known: dict[tuple[str, ...], dict[str, tuple[Any, ...]]] = {}
        """Values that follow from topics, by their kind."""
        # a message that went by the lines is there: then a batch in which the codec raises cannot be given again
        head = ErrorBoundary(source, self._head, repeatable=not fuses(source.codec))
        self.set_boundaries((head, *self.boundaries[1:]))
        self._renew()
        self._plan()

    @staticmethod
    def fits(stages: Sequence[Logic], edges: Sequence[StageEdge]) -> bool:
        """True if a region begins with a source, and goes on with a stage that has lines."""
        return isinstance(stages[0], Source) and bool(CodeTree(stages, edges).entries)

    def process(self, batch: Batch | RawBatch, source: int, now: Now) -> Sequence[Emission]:
        if isinstance(batch, Batch):
            return super().process(batch, source, now)
        if self._models and self._renew():
            self._plan()
        steps = self.steps(now)
        head, process = steps[0].boundary, steps[0].process
        # what is timed by stages has to go through them, and nothing overtakes what is held or comes one by one
        by_rows = steps is not self.ordinary or head.careful or bool(self.held)
        self._given = by_rows, self._source.limit(batch.wall), {}
        self._arrival = batch.arrival
        self.took[0] += len(batch)
        emissions = process(batch, source, now)
        if head.held:
            self.hold(0, source)
        self.take_messages(self._source)
        for entry in self.tree.ends:
            if entry.logic.messages:
                self.take_messages(entry.logic)
        return [emission for _, rest in emissions for emission in self._go_on(rest, now, steps)]

    def _renew(self) -> bool:
        """Takes models that came; whether there were any."""
        for chain in self._models:
            chain.renew()
        before, self._generations = self._generations, [chain.generation for chain in self._models]
        return before != self._generations

    def _plan(self) -> None:
        """Lines for the models that there are now: a large one may have none."""
        tree = self.tree = CodeTree(self.stages, self._edges, self._leaving)
        self._order = (0, *(stage for stage in tree.gives if stage))
        """The source, and the other stages that give rows."""
        self._rows = {stage: [] for stage in tree.gives}
        codec = self._source.codec
        if fuses(codec):
            assert isinstance(codec, Fusible)
            codec.fuse(self)

    def _head(self, batch: Batch | RawBatch, _: int, now: Now) -> Sequence[Emission]:
        """Decodes; what comes out are the messages that became rows."""
        assert isinstance(batch, RawBatch)
        origin = self._source
        looks = origin.begin(now, batch.wall)
        # lines of a window would hold rows against a watermark that was taken back: by rows it comes before them
        self._given = (self._given[0] or origin.took_back, self._given[1], origin.recent)
        before = origin.devices.watermark
        rows = origin.rows_of(batch)
        watermark = origin.end(looks, batch.arrival, batch.wall, now)
        came, self._came = self._came, 0
        if not rows and not came and watermark == before:
            return ()
        return (Emission(0, Batch(rows, batch.arrival, watermark)),)

    def _go_on(self, rest: Batch, now: Now, steps: Sequence[StageStep]) -> list[Emission]:
        """The ordinary way: for rows that lines have given or completed, for the `rest` of the messages, and for time,
        behind all of them, where it matters."""
        out: list[Emission] = []
        waiting: dict[int, StageInput] = {}
        given = Batch([], rest.arrival)
        """With the watermark, unless that comes with the rest."""
        if rest.rows:
            self.gave[0] += len(rest.rows)
        else:
            given.watermark = rest.watermark
            timely = self.tree.timely if rest.watermark != NO_WATERMARK else ()
            waiting = {p: [(at, given)] for p, logic, _, at in self.tree.ends if logic.completed or p in timely}
        for stage in self._order:
            after: dict[int, StageInput] = {}
            gone: list[Emission] = []
            if not stage and rest.rows:
                self.pass_on(self.ordinary[0], (Emission(0, rest),), after, gone)
            elif stage and waiting:
                out += self.through(waiting, now, steps[:stage])
                if stage in waiting:
                    after[stage] = waiting.pop(stage)
                    gone += self.through(after, now, steps[: stage + 1])
            self._give(stage, given, after, gone)
            for to, batches in after.items():
                waiting.setdefault(to, []).extend(batches)
            out += gone
        if waiting:
            out += self.through(waiting, now, steps)
        if rest.rows:  # what it has not reached
            waiting = {p: [(at, given)] for p, logic, _, at in self.tree.ends if logic.completed}
            out += self.through(waiting, now, steps)
        return out

    def _give(self, stage: int, given: Batch, after: dict[int, StageInput], gone: list[Emission]) -> None:
        """Puts the rows that lines of `stage` have given in front of those that it gives in the ordinary way, `after`
        and `gone`, in the same batches: whoever takes them must not see them come apart. Else with what is `given`."""
        rows = self._rows.get(stage)
        if rows is None or not (rows or (given.watermark != NO_WATERMARK and self.tree.gives[stage])):
            return
        self._rows[stage] = []
        alone = Batch(rows, given.arrival, given.watermark)
        for to, at in self.tree.outward[stage]:
            batches = after.setdefault(to, [])
            index = next((n for n, (source, _) in enumerate(batches) if source == at), None)
            if index is None:
                batches.append((at, alone))
            else:
                batches[index] = (at, _joined(rows, batches[index][1]))
        if (leaves := self.ordinary[stage].exit.get(0)) is not None:
            index = next((n for n, emission in enumerate(gone) if emission.port == leaves), None)
            if index is None:
                gone.append(Emission(leaves, alone))
            else:
                gone[index] = Emission(leaves, _joined(rows, gone[index].batch))

    # -- as the codec's tail (`edgert.codecs.shapes.Tail`)

    def body(self, values: Mapping[str, Getter]) -> Body:
        """Implements `Tail`. A message is refused that comes behind one that was, or has no time (NaN)."""
        row, bind = _bind(values)
        text = self.tree.text(row, self.took, self.gave, self._rows)
        times = self._source.event_times
        setup = ["by_rows, limit, recent = given()", "newest = NEVER", "ahead = early = untimed = 0", *text.setup]
        refused = "not t <= limit" if self._source.drops_ahead else "t != t"
        check = [*times.check(), f"if {refused}:", "    break", *bind, *text.check]
        if self._source.heeded:
            effect = ["seen = t", "if t > limit:", "    seen = wall", "    ahead += 1"]
            effect += ["if seen > newest:", "    newest = seen", "recent[source] = seen", *text.effect]
        else:
            effect = ["if t > limit:", "    ahead += 1", *text.effect]
        constants: dict[str, Any] = {"given": lambda: self._given, "taken": self._taken, "NEVER": NO_WATERMARK}
        constants |= times.constants
        known = self._known.setdefault(tuple(text.of_topic), {})
        finish = [*text.finish, "taken(done, newest, ahead, early, untimed)"]
        every = constants | text.constants
        return Body([*check, *times.effect(), *effect], every, setup, "by_rows or rows", finish, text.of_topic, known)

    def _taken(self, messages: int, newest: float, ahead: int, early: int, untimed: int) -> None:
        self._came += messages
        self._source.event_times.count(early, untimed, self._source.drops)
        if messages:
            self._source.observed(newest, self._arrival, ahead)


def _joined(rows: list[Row], batch: Batch | RawBatch) -> Batch:
    assert isinstance(batch, Batch)
    return Batch(rows + batch.rows, batch.arrival, batch.watermark)


def _bind(values: Mapping[str, Getter]) -> tuple[Fields, list[str]]:
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
