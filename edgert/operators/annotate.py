"""`annotate`: adds fields from a table in the document; a step of a chain."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from edgert.core.errors import DocumentError, Problem, show
from edgert.expr.compile import Lookup
from edgert.flow.graph import Node
from edgert.flow.spec import FieldUse, OperatorSpec, Parameter
from edgert.operators.base.fields import field_name, new_field

MOST_FIELDS: Final = 256
MOST_VALUES: Final = 1_000_000
"""Keys times fields: a small document with other fields for each key would take hundreds of megabytes."""


@dataclass(frozen=True, slots=True)
class KeyTable:
    """The fields known of each key."""

    fields: tuple[str, ...]
    rows: Mapping[str, tuple[Any, ...]]
    """A value, or null, for each of `fields`."""


def table_of(plain: Mapping[str, Any]) -> KeyTable:
    """Key → field → value. Raises `DocumentError` with every fault, each with its path in the table."""
    problems = []
    fields: dict[str, None] = {}
    if not plain:
        problems.append(Problem("", "at least one key with its fields, as { key = { field = value } }", "none"))
    for key, row in plain.items():
        if not isinstance(row, Mapping) or not row:
            problems.append(Problem(str(key), "a table of fields and values", show(row)))
            continue
        for field, value in row.items():
            try:
                fields[new_field(field)] = None
            except ValueError as error:
                problems.append(Problem(f"{key}.{field}", *str(error).removeprefix("expected ").split(", got ", 1)))
            if not isinstance(value, str | bool | int | float) or (isinstance(value, float) and math.isinf(value)):
                problems.append(Problem(f"{key}.{field}", "a string, a number, true or false", show(value)))
            elif value != value:
                problems.append(Problem(f"{key}.{field}", "a number", "nan"))
    values = len(plain) * len(fields)
    for what, count, most in (("fields in all", len(fields), MOST_FIELDS), ("values", values, MOST_VALUES)):
        if count > most:
            expected = f"at most {most:,} {what}, where each key has a value, or null, of each field"
            problems.append(Problem("", expected, f"{count:,}"))
    if problems:
        raise DocumentError("table", problems)
    return KeyTable(tuple(fields), {key: tuple(map(row.get, fields)) for key, row in plain.items()})


def annotation(node: Node) -> Lookup:
    """The step of `node` on rows."""
    table: KeyTable = node.parameters["table"]
    return Lookup(node.parameters["field"], table.fields, table.rows, node.parameters["missing"] == "drop")


def _fields(node: Node) -> FieldUse:
    table: KeyTable = node.parameters["table"]
    return FieldUse(frozenset((node.parameters["field"],)), frozenset(table.fields))


SPECS = (
    OperatorSpec(
        type="annotate",
        doc="Adds the fields that a table in the document has for the value (a string) of a field.",
        fields=_fields,
        stateless=True,
        parameters=(
            Parameter(
                "table",
                "table",
                'Value of the field = its fields: `{ "sensor-1" = { room = "hall", floor = 2 } }`. A field that only '
                "others have is null.",
                parse=table_of,
            ),
            Parameter("field", "string", "The field that is looked up.", "source", parse=field_name),
            Parameter(
                "missing",
                "string",
                "A row of which the table says nothing: its fields are null, or it is dropped, and counted.",
                "null",
                choices=("null", "drop"),
            ),
        ),
    ),
)
