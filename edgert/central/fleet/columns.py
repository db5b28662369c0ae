"""The columns of a fleet table, as the fleet job writes them and as they are merged on reading."""

from __future__ import annotations

from edgert.core.results.result_schema import WINDOW_COLUMNS, Schema, final_columns


def window_columns(schema: Schema) -> list[str]:
    """The columns that tell the rows of a fleet table apart."""
    return ["day", *WINDOW_COLUMNS, *(name for name, _ in schema.keys)]


def fleet_columns(schema: Schema) -> list[tuple[str, str]]:
    """(name, Delta's type) of the columns of a fleet table."""
    return [
        ("window_start", "timestamp"),
        ("window_end", "timestamp"),
        *schema.keys,
        *final_columns(schema),
        ("gateways", "integer"),
        ("day", "date"),
    ]
