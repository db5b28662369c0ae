"""One field's value as the whole payload: what many displays and switches expect. For writing only."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from edgert.core.batch import Row

_encode = msgspec.json.Encoder().encode


class FieldAlone:
    """A string as it is (UTF-8), any other value as JSON."""

    def __init__(self, field: str) -> None:
        self._field = field

    def encode(self, rows: Sequence[Row]) -> list[bytes]:
        """One payload per row. Raises ValueError if one has no value in the field."""
        return list(map(self.encode_row, rows))

    def encode_row(self, row: Row) -> bytes:
        """The same for one row."""
        value = row.get(self._field)
        if value is None:
            raise ValueError(f"expected a value in {self._field!r}, got null")
        return value.encode() if type(value) is str else _encode(value)
