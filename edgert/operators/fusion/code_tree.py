"""Which stages of a region are lines of one function behind its source, and the text of that function."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from edgert.codecs.shapes import OfTopic, row_display
from edgert.core.batch import Row
from edgert.operators.base.inline import Fields, Inlinable, Lines, alone, indented, time_use
from edgert.operators.base.logic import Logic, foreign
from edgert.operators.fusion.region import StageEdge

DEEPEST: Final = 16
"""Stages one behind the other: Python bounds how deep lines may be indented."""
LONGEST: Final = 20_000
"""Characters of the whole, about: to compile so many takes 20 ms, on a board some ten times that, for each shape."""


class InlineStage(NamedTuple):
    """A stage with lines, and where its rows come from."""

    stage: int
    logic: Inlinable
    above: int
    """The stage that gives them."""
    source: int
    """The input by which they come."""


class CodeTree:
    """A stage may have rows by lines from the first of those that feed it, in the order of stages; what the others give
    comes later, as it would without. `leaving`: stages of which something leaves the region."""

    def __init__(
        self, stages: Sequence[Logic], edges: Sequence[StageEdge], leaving: frozenset[int] = frozenset()
    ) -> None:
        self._stages = stages
        self.entries: list[InlineStage] = []
        """In the order of stages."""
        self._depth = {0: 0}
        """Part whose lines give rows → how deep these lines are indented."""
        self._length = 0
        to: list[list[StageEdge]] = [[] for _ in stages]
        self._behind: list[list[StageEdge]] = [[] for _ in stages]
        for edge in edges:
            to[edge.to].append(edge)
            self._behind[edge.stage].append(edge)
        for stage in range(1, len(stages)):
            self._enter(stage, to[stage])
        self._matters_behind = [False] * len(stages)
        """True by stage if a watermark that the stage gives without rows matters to anybody."""
        for stage in reversed(range(len(stages))):  # each after all that it feeds
            self._matters_behind[stage] = stage in leaving or any(
                self._matters(e.to, e.input) for e in self._behind[stage]
            )
        by_lines = {(entry.above, entry.stage) for entry in self.entries}
        self.outward = {
            stage: [(edge.to, edge.input) for edge in self._behind[stage] if (stage, edge.to) not in by_lines]
            for stage in self._depth
        }
        """Takers of rows, by stage whose lines give rows."""
        self.gives = {p: self._matters_behind[p] for p, to in self.outward.items() if to or p in leaving}
        """Stages that give rows; True if time matters to their takers."""
        self.ends = [entry for entry in self.entries if not entry.logic.at_once]
        self.timely = {entry.stage for entry in self.ends if self._matters(entry.stage, entry.source)}
        """Stages of `ends` to which time matters."""

    def _enter(self, stage: int, ways: Sequence[StageEdge]) -> None:
        logic = self._stages[stage]
        first = min(ways, key=lambda edge: edge.stage, default=None)
        if first is None or first.stage not in self._depth or first.port or self._depth[first.stage] >= DEEPEST:
            return
        once = sum(edge.stage == first.stage for edge in ways) == 1
        if not once or not isinstance(logic, Inlinable) or foreign(logic):
            return
        length = self._length + logic.text_length
        if length <= LONGEST and logic.inlines(first.input):
            self._length = length
            self.entries.append(InlineStage(stage, logic, first.stage, first.input))
            if logic.at_once:
                self._depth[stage] = self._depth[first.stage] + 1

    def _matters(self, stage: int, source: int) -> bool:
        """True if a watermark without rows matters there or behind it."""
        use = time_use(self._stages[stage], source)
        return use == "heeds" or (use == "passes" and self._matters_behind[stage])

    def text(self, row: Fields, took: list[int], gave: list[int], rows: Mapping[int, list[Row]]) -> Text:
        """Code for the source's `row`. Stages count what they `took` and `gave`; `rows` is where they give."""
        return _TreeWriter(self, row, took, gave, rows).text

    def below(self, stage: int) -> Iterator[InlineStage]:
        """Stages that have their rows from `stage`."""
        return (entry for entry in self.entries if entry.above == stage)


class Text:
    """The parts of the function."""

    def __init__(self) -> None:
        self.check: list[str] = []
        self.effect: list[str] = []
        self.setup: list[str] = []
        self.finish: list[str] = []
        self.constants: dict[str, Any] = {}
        self.of_topic: dict[str, OfTopic] = {}


class _TreeWriter:
    def __init__(
        self, tree: CodeTree, row: Fields, took: list[int], gave: list[int], rows: Mapping[int, list[Row]]
    ) -> None:
        self._tree, self._rows = tree, rows
        self.text = text = Text()
        text.constants |= {"took": took, "gave": gave}
        text.finish.append("gave[0] += done")
        text.check, text.effect = self._behind(0, row)

    def _behind(self, stage: int, row: Fields) -> tuple[list[str], list[str]]:
        """Check and effect of all that follows a stage for each row that it gives."""
        check: list[str] = []
        effect: list[str] = []
        if stage in self._tree.gives:
            shown, names = row_display(row.variables)
            give = Lines(
                effect=[f"give({shown})"],
                setup=[f"give = rows[{stage}].append"],
                constants=names | {"rows": self._rows},
            )
            effect += self._keep(alone(give, row, f"_to_{stage}"))
        for entry in self._tree.below(stage):
            own = alone(entry.logic.inline(row, entry.source), row, f"_{entry.stage}")
            self._keep(own)
            self._count(entry, own)
            more = self._behind(entry.stage, own.row) if own.row else ([], [])
            if own.lets_go:
                goes = f"goes{entry.stage}"
                check += [
                    f"{goes} = False",
                    "while True:",
                    *indented([*own.check, f"{goes} = True", "break"]),
                ]
                check += [f"if {goes}:", *indented(more[0])] if more[0] else []
                effect += [f"if {goes}:", *indented([*own.effect, *more[1], "pass"])]
                effect += ["else:", *indented([*own.gone, f"lost{entry.stage} += 1"])]
            else:
                check += [*own.check, *more[0]]
                effect += [*own.effect, *more[1]]
        return check, effect

    def _keep(self, own: Lines) -> Sequence[str]:
        """Takes over what stands outside of the loop; returns the effect."""
        self.text.setup += own.setup
        self.text.finish += own.finish
        self.text.constants |= own.constants
        self.text.of_topic |= own.of_topic
        return own.effect

    def _count(self, entry: InlineStage, own: Lines) -> None:
        """`done`, `gave1`, `gave2`, ...: how many rows stages have given. No name of an operator ends like that."""
        stage, text = entry.stage, self.text
        came, given = f"gave{entry.above}" if entry.above else "done", f"gave{stage}"
        text.finish += [f"took[{stage}] += {came}", f"{given} = {came}"]
        if own.lets_go:
            text.setup.append(f"lost{stage} = 0")
            text.finish.append(f"{given} -= lost{stage}")
        if entry.logic.at_once:
            text.finish.append(f"gave[{stage}] += {given}")
        if own.count:
            text.constants[f"count{stage}"] = own.count
            text.finish.append(f"count{stage}({came})")
