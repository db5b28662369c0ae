"""How an operator describes itself. Document, builder, checks and docs all follow from this description."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from edgert.core.errors import Problem
from edgert.flow.graph import Flow, Node

REQUIRED: Final = object()
Kind = Literal["string", "integer", "number", "boolean", "strings", "string_map"]
"""`strings` is a list of strings; `string_map` a table whose values are strings."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of an operator: its type, default, bounds and documentation."""

    name: str
    kind: Kind
    doc: str
    default: Any = REQUIRED
    unit: str = ""
    choices: tuple[str, ...] = ()
    minimum: float | None = None
    maximum: float | None = None
    parse: Callable[[Any], Any] | None = None
    """Turns the plain value into what the logic uses; raises `ValueError` saying `expected ...`."""


@dataclass(frozen=True, slots=True)
class OperatorSpec:
    """What a document may say about one operator type."""

    type: str
    doc: str
    parameters: tuple[Parameter, ...] = ()
    role: Literal["source", "inner", "sink"] = "inner"
    many_inputs: bool = False
    check: Callable[[Node, Flow], Iterable[Problem]] = field(default=lambda node, flow: ())
    """Rules that need the whole graph (for instance: `ship` needs a window upstream)."""


Registry = Mapping[str, OperatorSpec]
