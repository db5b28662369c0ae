"""Flows in Python, without knowing any operator: a graph of handles that becomes a plain document.

`edgert.operators.builder` adds a method per operator of ours; `Stream.apply` takes any type of a registry. What is
built is the same document as TOML or JSON would give, and passes the same check.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, Self, runtime_checkable

from edgert.flow.document import from_plain
from edgert.flow.graph import Flow
from edgert.flow.spec import Registry


@runtime_checkable
class Documented(Protocol):
    """A value that knows how a document writes it (an expression, for instance)."""

    def to_document(self) -> Any: ...


@dataclass(slots=True)
class Draft:
    """A flow under construction: operators in the order in which they were made."""

    name: str
    registry: Registry
    description: str = ""
    delivery: str = ""
    latency: str = ""
    checkpoint: dict[str, float] = field(default_factory=dict)
    on_error: dict[str, Any] = field(default_factory=dict)
    outbox: dict[str, str] = field(default_factory=dict)
    operators: dict[str, dict[str, Any]] = field(default_factory=dict)

    def add(self, type: str, name: str, inputs: tuple[str, ...], parameters: Mapping[str, Any]) -> str:  # noqa: A002
        """Add an operator and return its name; without one it gets the type's, numbered (`filter`, `filter-2`)."""
        name = name or self.free_name(type)
        if name in self.operators:
            raise ValueError(f"expected an operator name that is not taken, got {name!r} again")
        table: dict[str, Any] = {"type": type}
        spec = self.registry.get(type)
        if spec is not None and spec.many_inputs:
            table["inputs"] = list(inputs)
        elif inputs:
            table["input"] = inputs[0]
        table.update({key: plain(value) for key, value in parameters.items()})
        self.operators[name] = table
        return name

    def free_name(self, type: str) -> str:  # noqa: A002
        """`type` as an operator name, with the least number that is free."""
        base = type.replace("_", "-")
        number = 1
        while (name := base if number == 1 else f"{base}-{number}") in self.operators:
            number += 1
        return name

    def document(self) -> dict[str, Any]:
        """The plain document."""
        document: dict[str, Any] = {"name": self.name}
        if self.description:
            document["description"] = self.description
        if self.delivery:
            document["delivery"] = self.delivery
        if self.latency:
            document["latency"] = self.latency
        if self.checkpoint:
            document["checkpoint"] = dict(self.checkpoint)
        if self.outbox:
            document["outbox"] = dict(self.outbox)
        if self.on_error:
            document["on_error"] = plain(self.on_error)
        return {**document, "operators": {name: dict(table) for name, table in self.operators.items()}}


@dataclass(frozen=True, slots=True)
class Stream:
    """The output of one operator. Methods add an operator that reads it; keep it in a variable to branch."""

    draft: Draft
    name: str

    def apply(self, type: str, *others: Stream, name: str = "", **parameters: Any) -> Self:  # noqa: A002
        """Add an operator of any registered type that reads this stream (and `others`, if it takes many)."""
        inputs = (self.name, *(other.name for other in others))
        return self._next(self.draft.add(type, name, inputs, parameters))

    def instances(self, copies: int) -> Self:
        """Ask for so many instances of this operator."""
        self.draft.operators[self.name]["instances"] = copies
        return self

    def slot(self, number: int) -> Self:
        """Ask for a slot for this operator."""
        self.draft.operators[self.name]["slot"] = number
        return self

    def _next(self, name: str) -> Self:
        return type(self)(self.draft, name)

    def document(self) -> dict[str, Any]:
        """The plain document of the whole flow."""
        return self.draft.document()

    def build(self) -> Flow:
        """The checked flow. Raises DocumentError with every fault, as a document would."""
        return from_plain(self.document(), self.draft.registry, what=f"flow {self.draft.name}")


def plain(value: Any) -> Any:
    """`value` as a document holds it: JSON types; tuples become lists, expressions their text."""
    if isinstance(value, Documented):
        return value.to_document()
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value
