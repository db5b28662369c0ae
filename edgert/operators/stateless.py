"""filter, map, select and key_by: each row by itself. Chains of them become one compiled function."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from edgert.core.errors import Problem
from edgert.core.results.result_schema import KEY_TYPES
from edgert.expr.compile import CompiledChain, Filter, Map, Select, Step, compile_chain
from edgert.expr.parse import parse
from edgert.expr.tree import Expression, fields
from edgert.flow.graph import Flow, Node
from edgert.flow.spec import FieldUse, Keys, OperatorSpec, Parameter
from edgert.operators.annotate import annotation
from edgert.operators.base.fields import field_name, field_names, new_field
from edgert.operators.models.predict import Predictions

ALWAYS = ("time", "source")
_ON_ERROR = Parameter(
    "on_error",
    "string",
    "What becomes of a row on which an expression fails (wrong type, division by zero): dropped, and counted.",
    default="drop",
    choices=("drop",),
)


def _condition(text: str) -> Expression:
    return parse(text, condition=True)


def _settings(settings: dict[str, Expression]) -> dict[str, Expression]:
    if not settings:
        raise ValueError("expected at least one field = expression, got none")
    for name in settings:
        new_field(name)
    return settings


def _key_types(types: dict[str, str]) -> dict[str, str]:
    for name, kind in types.items():
        if kind not in KEY_TYPES:
            raise ValueError(f"expected one of {', '.join(KEY_TYPES)} for {name}, got {kind!r}")
    return types


def _check_key_types(node: Node, flow: Flow) -> Iterable[Problem]:
    for name in node.parameters["key_types"]:
        if name not in node.parameters["keys"]:
            keys = ", ".join(node.parameters["keys"])
            yield Problem(f"operators.{node.name}.key_types.{name}", f"one of the keys ({keys})", name)


def _filter_fields(node: Node) -> FieldUse:
    return FieldUse(reads=fields(node.parameters["where"]))


def _map_fields(node: Node) -> FieldUse:
    settings: dict[str, Expression] = node.parameters["set"]
    return FieldUse(reads=frozenset().union(*map(fields, settings.values())), writes=frozenset(settings))


def _select_fields(node: Node) -> FieldUse:
    return FieldUse(keeps=frozenset(node.parameters["fields"]))


def _key_fields(node: Node) -> FieldUse:
    return FieldUse(reads=frozenset(node.parameters["keys"]))


def _keys(node: Node) -> Keys:
    types: dict[str, str] = node.parameters["key_types"]
    return tuple((name, types.get(name, "string")) for name in node.parameters["keys"])


SPECS: tuple[OperatorSpec, ...] = (
    OperatorSpec(
        "filter",
        "Keeps the rows for which a condition is true. A row for which it is null, because a field is absent, goes.",
        (
            Parameter("where", "string", "The condition, an expression.", parse=_condition, expression=True),
            _ON_ERROR,
        ),
        stateless=True,
        fields=_filter_fields,
    ),
    OperatorSpec(
        "map",
        "Adds or replaces fields. Every expression sees the row as it came; the result of null is a null field.",
        (
            Parameter("set", "string_map", "Field = expression.", parse_item=parse, parse=_settings, expression=True),
            _ON_ERROR,
        ),
        stateless=True,
        fields=_map_fields,
    ),
    OperatorSpec(
        "select",
        "Keeps only the fields named, where a row has them; `time` and `source` are always kept.",
        (Parameter("fields", "strings", "The fields to keep.", parse_item=field_name, parse=field_names),),
        stateless=True,
        fields=_select_fields,
    ),
    OperatorSpec(
        "key_by",
        "Says by which fields the next window is kept apart. It costs nothing by itself.",
        (
            Parameter("keys", "strings", "The fields that make the key.", parse_item=field_name, parse=field_names),
            Parameter(
                "key_types",
                "string_map",
                "Field = type of a key: string (if unsaid), double, long or boolean; the type of its table column.",
                default={},
                parse=_key_types,
            ),
        ),
        stateless=True,
        fields=_key_fields,
        keys=_keys,
        check=_check_key_types,
    ),
)


def step_of(node: Node, predictions: Predictions) -> Step | None:
    """The step of `node` on rows; None for a marker (key_by)."""
    match node.type:
        case "predict":
            return predictions.step(node)
        case "filter":
            return Filter(node.parameters["where"])
        case "map":
            return Map(node.parameters["set"])
        case "select":
            return Select(node.parameters["fields"])
        case "annotate":
            return annotation(node)
        case "key_by":
            return None
    raise ValueError(f"expected filter, map, select, annotate, predict or key_by, got {node.type}")


def chain_of(
    nodes: Iterable[Node], live: frozenset[str] | None = None, predictions: Predictions | None = None
) -> tuple[CompiledChain, tuple[str, ...]]:
    """The compiled chain of fused `nodes`, and the operator's name for each of its steps (for `Bad.step`).

    `live` as a `PhysicalInstance` has it: the fields that anything behind looks at.
    """
    nodes = tuple(nodes)
    models = predictions or Predictions(nodes)
    pairs: list[tuple[str, Any]] = [(n.name, s) for n in nodes if (s := step_of(n, models)) is not None]
    return compile_chain([step for _, step in pairs], live), tuple(name for name, _ in pairs)
