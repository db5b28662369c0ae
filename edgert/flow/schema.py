"""The contents of a registry, for people and for editors: the table of an operator in the docs, and the JSON Schema."""

from __future__ import annotations

from typing import Any

from edgert.core.ids import FLOW_NAME, TABLE_NAME
from edgert.flow.check import MAX_OPERATORS
from edgert.flow.options import delivery, full_outbox, latency
from edgert.flow.options.on_error import ACTIONS
from edgert.flow.parameters import described
from edgert.flow.spec import COMMON, INSTANCES, REQUIRED, SLOT, OperatorSpec, Parameter, Registry

_TYPES = {"string": "string", "integer": "integer", "number": "number", "boolean": "boolean", "table": "object"}


def json_schema(registry: Registry) -> dict[str, Any]:
    """JSON Schema (2020-12) of a flow document; what needs the graph or an expression is checked by `load` only."""
    name = {"type": "string", "pattern": f"^{TABLE_NAME.pattern}$"}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "edgert flow",
        "type": "object",
        "required": ["name", "operators"],
        "additionalProperties": False,
        "properties": {
            "name": name | {"pattern": f"^{FLOW_NAME.pattern}$"},
            "description": {"type": "string", "maxLength": 1000},
            "delivery": {"enum": list(delivery.DELIVERIES), "default": delivery.DEFAULT},
            "latency": {"type": "string", "pattern": latency.PATTERN},
            "checkpoint": {
                "type": "object",
                "additionalProperties": False,
                "properties": {"interval_s": {"type": "number", "minimum": 0.1, "maximum": 3600, "default": 5.0}},
            },
            "outbox": {
                "type": "object",
                "additionalProperties": False,
                "properties": {"full": {"enum": list(full_outbox.WHEN_FULL), "default": full_outbox.DEFAULT}},
            },
            "on_error": {
                "type": "object",
                "additionalProperties": False,
                "properties": {
                    "action": {"enum": list(ACTIONS), "default": "drop"},
                    "topic": {"type": "string"},
                    "tries": {"type": "integer", "minimum": 1, "maximum": 100, "default": 3},
                    "backoff_s": {"type": "number", "minimum": 0.01, "maximum": 60, "default": 0.1},
                },
            },
            "operators": {
                "type": "object",
                "minProperties": 1,
                "maxProperties": MAX_OPERATORS,
                "propertyNames": name,
                "additionalProperties": {"oneOf": [_operator(spec) for spec in registry.values()]},
            },
        },
    }


def _operator(spec: OperatorSpec) -> dict[str, Any]:
    properties: dict[str, Any] = {"type": {"const": spec.type}}
    required = ["type"]
    if spec.role != "source":
        key = "inputs" if spec.many_inputs else "input"
        one = {"type": "string"}
        properties[key] = {"type": "array", "items": one, "minItems": 1} if spec.many_inputs else one
        required.append(key)
    for parameter in spec.parameters:
        properties[parameter.name] = _parameter(parameter)
        if parameter.default is REQUIRED:
            required.append(parameter.name)
    if spec.keys is None and (spec.stateless or spec.divides_by is not None):
        properties[INSTANCES.name] = _parameter(INSTANCES)
    if spec.keys is None:
        properties[SLOT.name] = _parameter(SLOT)
    return {
        "type": "object",
        "description": spec.doc,
        "required": required,
        "additionalProperties": False,
        "properties": properties,
    }


def _parameter(parameter: Parameter) -> dict[str, Any]:
    schema: dict[str, Any] = {"description": parameter.doc + (f" ({parameter.unit})" if parameter.unit else "")}
    if parameter.kind == "strings":
        schema |= {"type": "array", "items": {"type": "string"}}
    elif parameter.kind == "string_map":
        schema |= {"type": "object", "additionalProperties": {"type": "string"}}
    else:
        schema["type"] = _TYPES[parameter.kind]
    if parameter.choices:
        schema["enum"] = list(parameter.choices)
    if parameter.minimum is not None:
        schema["minimum"] = parameter.minimum
    if parameter.maximum is not None:
        schema["maximum"] = parameter.maximum
    if parameter.default is not REQUIRED:
        schema["default"] = parameter.default
    return schema


def operators_markdown(registry: Registry) -> str:
    """A section per operator type with the table of its parameters, for the docs."""
    lines = [f"- `{p.name}` ({described(p)}, `{p.default}` if unsaid): {p.doc}" for p in COMMON]
    common = "\n".join(["Beside its own parameters every operator but `key_by` takes:", "", *lines, ""])
    return "\n".join([common, *(_section(spec) for spec in registry.values())])


def _section(spec: OperatorSpec) -> str:
    role = {"source": "source", "inner": "", "sink": "sink"}[spec.role]
    lines = [f"### `{spec.type}`{f' ({role})' if role else ''}", "", spec.doc, ""]
    if spec.parameters:
        lines += ["| parameter | takes | default | meaning |", "|---|---|---|---|"]
        if spec.many_inputs:
            lines.append("| `inputs` | a list of names of operators | required | The operators whose rows it takes. |")
        lines += [f"| `{p.name}` | {_cell(described(p))} | {_default(p)} | {_cell(p.doc)} |" for p in spec.parameters]
    else:
        lines.append("No parameters.")
    return "\n".join(lines) + "\n"


def _default(parameter: Parameter) -> str:
    if parameter.default is REQUIRED:
        return "required"
    value = parameter.default
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if value in ("", {}, [], ()):
        return "none"
    return f"`{value}`"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
