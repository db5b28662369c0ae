"""Figures of the operators that a board runs of flows which several boards share, as one board tells the others.

The page of each board shows the whole of such a flow. Zeros of its own gateway would be untrue for operators elsewhere.
"""

from __future__ import annotations

import msgspec

from edgert.core.errors import EdgertError, show


class OperatorFigures(msgspec.Struct, frozen=True):
    """Figures of one operator, with the names and meanings that a gateway's status has for them."""

    rows_in: int
    rows_out: int
    rate_in: float
    """Rows per second, over the last ten seconds."""
    queue_rows: int
    queue_bytes: int
    busy_s: float


UnitsOfTopic = tuple[dict[str, str], dict[str, str]]
"""(what a source's topic has captured, field → unit), as devices name units."""


class PageAddress(msgspec.Struct, frozen=True):
    """Where a gateway's page listens."""

    host: str
    port: int


class BoardFigures(msgspec.Struct, frozen=True):
    """All that one board tells."""

    flows: dict[str, dict[str, OperatorFigures]]
    """Flow → operator → figures, of operators that run on this board."""
    units: dict[str, list[UnitsOfTopic]] = {}
    """Flow → units of the sources on this board: the board that ships the results has no messages."""
    page: PageAddress | None = None
    """None where the gateway serves no page."""


def figures_untrusted(plain: object) -> BoardFigures:
    """The figures in the answer of another board. Raises `EdgertError`."""
    try:
        return msgspec.convert(plain, BoardFigures)
    except msgspec.ValidationError as error:
        raise EdgertError(f"expected the figures of a board, got {show(plain)}: {error}") from error
