"""How an operator describes itself. Document, builder, checks and docs all follow from this description."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from edgert.core.errors import Problem
from edgert.flow.graph import Flow, Node

REQUIRED: Final = object()
ParameterKind = Literal["string", "integer", "number", "boolean", "strings", "string_map", "table"]
"""`strings` is a list of strings; `string_map` a table whose values are strings; `table` one of any form, which `parse`
must check (it may raise `DocumentError`, whose paths are those within the table)."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of an operator: its type, default, bounds and documentation."""

    name: str
    kind: ParameterKind
    doc: str
    default: Any = REQUIRED
    unit: str = ""
    choices: tuple[str, ...] = ()
    minimum: float | None = None
    maximum: float | None = None
    parse: Callable[[Any], Any] | None = None
    """Turns the plain value into what the logic uses; raises `ValueError` saying `expected ..., got ...`."""
    parse_entry: Callable[[str, str], Any] | None = None
    """For `string_map`: gets key and value of each entry, before `parse`."""
    parse_item: Callable[[str], Any] | None = None
    """For `strings` and `string_map`: the same for each item, before `parse` (so a fault is shown at its item)."""
    expression: bool = False
    """True if the text, or each of a `string_map`, is an expression."""


@dataclass(frozen=True, slots=True)
class FieldUse:
    """The fields of a row that an operator uses. `time` and `source` are always there and need not be named."""

    reads: frozenset[str] | None = frozenset()
    """Fields that the operator looks at; None: all that arrive."""
    writes: frozenset[str] | None = frozenset()
    """Fields that it adds or replaces; None: not known beforehand."""
    keeps: frozenset[str] | None = None
    """Fields that pass through, if they arrive; None: all of them, the empty set: none (a window makes new rows)."""
    names: frozenset[str] = frozenset()
    """Fields that it looks at by name, beside all that arrive."""


ALL_FIELDS: Final = FieldUse(reads=None, writes=None)
Keys = tuple[tuple[str, str], ...]
"""(field, type) pairs; the types are string, double, long and boolean. `ANY` stands where rows are divided by values as
they are, and those that Python calls equal (1, 1.0 and true) go together."""
ANY: Final = "any"
INSTANCES: Final = Parameter(
    "instances",
    "integer",
    "Copies that share the work: by key where an operator keeps state, a source by topic.",
    1,
    minimum=1,
    maximum=64,
)
SLOT: Final = Parameter(
    "slot",
    "integer",
    "The slot in which it runs (the first of its copies; the others follow by turns), where a gateway has so many; -1: "
    "where `pool.placement` says. It is fused only with operators that say the same.",
    -1,
    minimum=-1,
    maximum=63,
)
COMMON: Final = (INSTANCES, SLOT)
"""Parameters of every operator but a marker, beside its own."""


@dataclass(frozen=True, slots=True)
class OperatorSpec:
    """The declaration of one operator type: the parameters and inputs that a document may give it."""

    type: str
    doc: str
    parameters: tuple[Parameter, ...] = ()
    role: Literal["source", "inner", "sink"] = "inner"
    many_inputs: bool = False
    stateless: bool = False
    """Works row by row without memory: chains of such operators are fused into one instance."""
    fields: Callable[[Node], FieldUse] = field(default=lambda node: ALL_FIELDS)
    """The fields used, from parsed parameters; decides what the decoder builds. Unsaid means all."""
    fields_beside: Callable[[Node], FieldUse] | None = None
    """The fields used of every input but the first, if these have rows of another kind; unsaid means the same."""
    logic: Callable[[Any], Any] | None = None
    """Makes the logic of one instance from an `edgert.operators.base.logic.Build`; stateless ones are compiled."""
    keyed: bool = True
    """True if a stateful operator keeps state per key, as declared by a marker above it."""
    divides_by: Callable[[Node, Keys], Keys | None] | None = None
    """The fields by which rows may be divided among copies of an operator, given the key that a marker declares. Rows
    that are alike in these fields meet in one copy. None: any row may go to any copy, as with stateless operators,
    which are not asked. An operator without this function has one copy. A source is divided by the device that a
    topic names if the function gives that, else by topic."""
    ordered: bool = True
    """True if the order of rows of one key matters to the operator; not asked of stateless ones."""
    reads_port: int = 0
    """The output port of its inputs that the operator reads (a window has two: results, and contributions for
    `ship`)."""
    keys: Callable[[Node], Keys] | None = None
    """Given by a marker only: it tells the next stateful operator its key and costs nothing at run time."""
    check: Callable[[Node, Flow], Iterable[Problem]] = field(default=lambda node, flow: ())
    """Rules that need the whole graph (for instance: `ship` needs a window upstream)."""

    @property
    def ours(self) -> bool:
        """True for an operator of this library; these wait for nothing but the processor."""
        return self.logic is None or self.logic.__module__.startswith("edgert.")

    def uses(self, node: Node) -> Iterator[tuple[str, FieldUse]]:
        """Every input of `node`, and the fields used of its rows."""
        for number, name in enumerate(node.inputs):
            yield name, (self.fields_beside if number and self.fields_beside else self.fields)(node)


Registry = Mapping[str, OperatorSpec]
