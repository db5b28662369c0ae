"""Which parts of a region are lines of one function behind its source, and the text of that function."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from edgert.codecs.shapes import OfTopic, row_display
from edgert.core.batch import Row
from edgert.operators.base.inline import Fields, Inlinable, Lines, alone, indented, time_use
from edgert.operators.base.logic import Logic, foreign
from edgert.operators.fusion.region import Edge

DEEPEST: Final = 16
"""Parts one behind the other: Python bounds how deep lines may be indented."""
LONGEST: Final = 20_000
"""Characters of the whole, about: to compile so many takes 20 ms, on a board some ten times that, for each shape."""


class InlinePart(NamedTuple):
    """A part with lines, and where its rows come from."""

    part: int
    logic: Inlinable
    above: int
    """The part that gives them."""
    source: int
    """The input by which they come."""


class Tree:
    """A part may have rows by lines from the first of those that feed it, in the order of parts; what the others give
    comes later, as it would without. `leaving`: parts of which something leaves the region."""

    def __init__(self, parts: Sequence[Logic], edges: Sequence[Edge], leaving: frozenset[int] = frozenset()) -> None:
        self._parts = parts
        self.entries: list[InlinePart] = []
        """In the order of parts."""
        self._depth = {0: 0}
        """Part whose lines give rows → how deep these lines are indented."""
        self._length = 0
        to: list[list[Edge]] = [[] for _ in parts]
        self._behind: list[list[Edge]] = [[] for _ in parts]
        for edge in edges:
            to[edge.to].append(edge)
            self._behind[edge.part].append(edge)
        for part in range(1, len(parts)):
            self._enter(part, to[part])
        self._matters_behind = [False] * len(parts)
        """By part: whether a watermark that it gives without rows matters to anybody."""
        for part in reversed(range(len(parts))):  # each after all that it feeds
            self._matters_behind[part] = part in leaving or any(
                self._matters(e.to, e.input) for e in self._behind[part]
            )
        by_lines = {(entry.above, entry.part) for entry in self.entries}
        self.outward = {
            part: [(edge.to, edge.input) for edge in self._behind[part] if (part, edge.to) not in by_lines]
            for part in self._depth
        }
        """By part whose lines give rows: who takes them as rows."""
        self.gives = {p: self._matters_behind[p] for p, to in self.outward.items() if to or p in leaving}
        """Those that give rows, and whether time matters to who takes them."""
        self.ends = [entry for entry in self.entries if not entry.logic.at_once]
        self.timely = {entry.part for entry in self.ends if self._matters(entry.part, entry.source)}
        """Parts of `ends` to which time matters."""

    def _enter(self, part: int, ways: Sequence[Edge]) -> None:
        logic = self._parts[part]
        first = min(ways, key=lambda edge: edge.part, default=None)
        if first is None or first.part not in self._depth or first.port or self._depth[first.part] >= DEEPEST:
            return
        once = sum(edge.part == first.part for edge in ways) == 1
        if not once or not isinstance(logic, Inlinable) or foreign(logic):
            return
        length = self._length + logic.text_length
        if length <= LONGEST and logic.inlines(first.input):
            self._length = length
            self.entries.append(InlinePart(part, logic, first.part, first.input))
            if logic.at_once:
                self._depth[part] = self._depth[first.part] + 1

    def _matters(self, part: int, source: int) -> bool:
        """True if a watermark without rows matters there or behind it."""
        use = time_use(self._parts[part], source)
        return use == "heeds" or (use == "passes" and self._matters_behind[part])

    def text(self, row: Fields, took: list[int], gave: list[int], rows: Mapping[int, list[Row]]) -> Text:
        """Code for the source's `row`. Parts count what they `took` and `gave`; `rows` is where they give."""
        return _Writer(self, row, took, gave, rows).text

    def below(self, part: int) -> Iterator[InlinePart]:
        """Those that have their rows from it."""
        return (entry for entry in self.entries if entry.above == part)


class Text:
    """The parts of the function."""

    def __init__(self) -> None:
        self.check: list[str] = []
        self.effect: list[str] = []
        self.setup: list[str] = []
        self.finish: list[str] = []
        self.constants: dict[str, Any] = {}
        self.of_topic: dict[str, OfTopic] = {}


class _Writer:
    def __init__(
        self, tree: Tree, row: Fields, took: list[int], gave: list[int], rows: Mapping[int, list[Row]]
    ) -> None:
        self._tree, self._rows = tree, rows
        self.text = text = Text()
        text.constants |= {"took": took, "gave": gave}
        text.finish.append("gave[0] += done")
        text.check, text.effect = self._behind(0, row)

    def _behind(self, part: int, row: Fields) -> tuple[list[str], list[str]]:
        """Check and effect of all that follows a part for each row that it gives."""
        check: list[str] = []
        effect: list[str] = []
        if part in self._tree.gives:
            shown, names = row_display(row.variables)
            give = Lines(
                effect=[f"give({shown})"], setup=[f"give = rows[{part}].append"], constants=names | {"rows": self._rows}
            )
            effect += self._keep(alone(give, row, f"_to_{part}"))
        for entry in self._tree.below(part):
            own = alone(entry.logic.inline(row, entry.source), row, f"_{entry.part}")
            self._keep(own)
            self._count(entry, own)
            more = self._behind(entry.part, own.row) if own.row else ([], [])
            if own.lets_go:
                goes = f"goes{entry.part}"
                check += [
                    f"{goes} = False",
                    "while True:",
                    *indented([*own.check, f"{goes} = True", "break"]),
                ]
                check += [f"if {goes}:", *indented(more[0])] if more[0] else []
                effect += [f"if {goes}:", *indented([*own.effect, *more[1], "pass"])]
                effect += ["else:", *indented([*own.gone, f"lost{entry.part} += 1"])]
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

    def _count(self, entry: InlinePart, own: Lines) -> None:
        """`done`, `gave1`, `gave2`, ...: how many rows parts have given. No name of an operator ends like that."""
        part, text = entry.part, self.text
        came, given = f"gave{entry.above}" if entry.above else "done", f"gave{part}"
        text.finish += [f"took[{part}] += {came}", f"{given} = {came}"]
        if own.lets_go:
            text.setup.append(f"lost{part} = 0")
            text.finish.append(f"{given} -= lost{part}")
        if entry.logic.at_once:
            text.finish.append(f"gave[{part}] += {given}")
        if own.count:
            text.constants[f"count{part}"] = own.count
            text.finish.append(f"count{part}({came})")
