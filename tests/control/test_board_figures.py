"""Figures that one board tells another's page."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import msgspec
from hypothesis import given

from edgert.control.board_figures import BoardFigures, OperatorFigures, PageAddress, figures_untrusted
from edgert.core.errors import EdgertError
from tests.fuzz.nearly import nearly

OPERATOR = OperatorFigures(rows_in=7, rows_out=5, rate_in=1.5, queue_rows=1, queue_bytes=90, busy_s=0.25)
FIGURES = BoardFigures(
    flows={"air": {"window": OPERATOR}}, units={"air": [({"source": "s1"}, {"t": "Cel"})]}, page=PageAddress("::", 8080)
)
PLAIN: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(FIGURES))


def test_figures_survive_the_way() -> None:
    assert figures_untrusted(PLAIN) == FIGURES
    assert figures_untrusted({"flows": {}}) == BoardFigures({})


@given(nearly(PLAIN))
def test_figures_that_are_none_are_refused_with_the_field(told: Any) -> None:
    with suppress(EdgertError):
        assert isinstance(figures_untrusted(told), BoardFigures)
