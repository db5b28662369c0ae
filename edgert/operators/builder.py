"""Flows in Python: a method for each operator of the registry, on top of the generic `edgert.flow.builder`.

    from edgert.expr import field
    from edgert.operators.builder import agg, stream

    flow = (
        stream("city-air")
        .mqtt_source("city/{source}/sense", codec="senml", name="readings")
        .filter(field("temperature").between(-12.5, 43.1))
        .key_by("source")
        .tumbling_window(60, {"n": agg.count(), "mean_t": agg.mean("temperature")})
        .ship()
        .build()
    )

The methods follow from the operators' specifications: see `parameters_of` for their arguments. A stream kept in a
variable can be read by several operators.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from edgert.expr.build import Term
from edgert.expr.text import field_text, to_text
from edgert.expr.tree import Literal
from edgert.flow import builder
from edgert.flow.spec import REQUIRED, OperatorSpec, Parameter, Registry
from edgert.operators.registry import REGISTRY
from edgert.operators.state.aggregate_calls import FUNCTIONS


class _Aggregates:
    """Aggregates of a window, as a document writes them: `agg.mean("t")` is `mean(t)`."""

    def __getattr__(self, function: str) -> Callable[..., str]:
        if function not in FUNCTIONS:
            raise AttributeError(f"expected an aggregate ({', '.join(FUNCTIONS)}), got {function}")
        return lambda field="": f"{function}({field_text(field) if isinstance(field, str) and field else field})"

    def __dir__(self) -> Iterator[str]:
        return iter(FUNCTIONS)


agg = _Aggregates()


@dataclass(frozen=True, slots=True)
class Stream(builder.Stream):
    """The output of one operator. Each operator type of the registry is a method that adds an operator which reads it;
    a type that has the name of another method here is added by `apply`."""

    def __getattr__(self, type: str) -> Callable[..., Stream]:  # noqa: A002
        spec = _spec(self.draft.registry, type)

        def add(*values: Any, name: str = "", **named: Any) -> Stream:
            others = [value for value in values if isinstance(value, Stream)]
            values = tuple(value for value in values if not isinstance(value, Stream))
            return self.apply(type, *others, name=name, **parameters_of(spec, values, named))

        add.__name__, add.__doc__ = type, spec.doc
        return add

    def __dir__(self) -> Iterator[str]:
        yield from object.__dir__(self)
        yield from self.draft.registry


@dataclass(frozen=True, slots=True)
class FlowBuilder:
    """A flow that has no operator yet, or gets another source. Each source type of the registry is a method."""

    draft: builder.Draft

    def source(self, type: str, *values: Any, name: str = "", **named: Any) -> Stream:  # noqa: A002
        """Adds a source of any registered type."""
        parameters = parameters_of(_spec(self.draft.registry, type), values, named)
        return Stream(self.draft, self.draft.add(type, name, (), parameters))

    def __getattr__(self, type: str) -> Callable[..., Stream]:  # noqa: A002
        if _spec(self.draft.registry, type).role != "source":
            raise AttributeError(f"expected a source, got {type}, which reads from another operator")
        return lambda *values, name="", **named: self.source(type, *values, name=name, **named)


def parameters_of(spec: OperatorSpec, values: tuple[Any, ...], named: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters of an operator, from the arguments of its method.

    Values without a name are for the parameters without a default, in their order, then for the others; a list of
    strings takes all values that follow. Where the only parameter without a default is a table of strings (`map`),
    names that are no parameters are its entries. Where a parameter is an expression, a constant will do.

    Raises TypeError for more values than there are parameters, or for two values of one parameter.
    """
    known = {parameter.name: parameter for parameter in spec.parameters}
    required = [parameter for parameter in spec.parameters if parameter.default is REQUIRED]
    free = iter([*required, *(parameter for parameter in spec.parameters if parameter.default is not REQUIRED)])
    found: dict[str, Any] = {}
    left = list(values)
    while left:
        parameter = next(free, None)
        if parameter is None:
            raise TypeError(f"{spec.type}: expected at most {len(values) - len(left)} values, got {len(values)}")
        many = parameter.kind == "strings" and isinstance(left[0], str)
        found[parameter.name] = left if many else left.pop(0)
        left = [] if many else left
    if twice := found.keys() & named.keys():
        raise TypeError(f"{spec.type}: expected one value of {min(twice)}, got two")
    found |= {key: value for key, value in named.items() if key in known or not _takes_entries(required)}
    entries = {key: value for key, value in named.items() if key not in found}
    if entries or (_takes_entries(required) and not found):
        found[required[0].name] = {**found.get(required[0].name, {}), **entries}
    return {key: _written(value, known.get(key)) for key, value in found.items()}


def _takes_entries(required: list[Parameter]) -> bool:
    return len(required) == 1 and required[0].kind == "string_map"


def _written(value: Any, parameter: Parameter | None) -> Any:
    """The value as a document has it: constants in the place of an expression as text."""
    if parameter is None or not parameter.expression:
        return value
    return {key: _text(item) for key, item in value.items()} if isinstance(value, Mapping) else _text(value)


def _text(value: Term | str | float | bool | None) -> str:
    """An expression's text: a string is taken for an expression, another constant is written as one."""
    if isinstance(value, str):
        return value
    return value.to_document() if isinstance(value, Term) else to_text(Literal(value))


def _spec(registry: Registry, type: str) -> OperatorSpec:  # noqa: A002
    if type.startswith("_") or type not in registry:  # a lookup by Python itself, or a typing error
        raise AttributeError(f"expected an operator type ({', '.join(sorted(registry))}), got {type}")
    return registry[type]


def stream(
    name: str,
    *,
    description: str = "",
    delivery: str = "",
    latency: str = "",
    checkpoint_interval_s: float | None = None,
    on_error: Mapping[str, Any] | None = None,
    outbox: Mapping[str, str] | None = None,
    registry: Registry = REGISTRY,
) -> FlowBuilder:
    """Begin the flow `name`. `delivery`: "exactly-once" (if unsaid) or "at-least-once". `latency`, `on_error` and
    `outbox` as the document has them, for instance `{"action": "dead-letter", "topic": "bad/{operator}"}` and
    `{"full": "stop-acknowledging"}`."""
    checkpoint = {} if checkpoint_interval_s is None else {"interval_s": checkpoint_interval_s}
    tables = (checkpoint, dict(on_error or {}), dict(outbox or {}))
    return FlowBuilder(builder.Draft(name, registry, description, delivery, latency, *tables))
