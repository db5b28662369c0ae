"""The status as the page gets it: of flows that are folded there no more than their line shows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

LINE: Final = frozenset((
    "name", "version", "state", "description", "delivery", "rows_shipped", "rows_repeated", "gap", "dropped", "recent",
    "devices", "malformed", "condition",
))  # fmt: skip
SOURCE_LINE: Final = ("name", "type", "gateway", "rate_in", "rows_out")


@dataclass(frozen=True, slots=True)
class PageView:
    """Makes the JSON of a status."""

    whole: frozenset[str]
    """Flows that come with their operators and results."""

    def __call__(self, status: Mapping[str, Any]) -> bytes:
        flows = [flow if flow["name"] in self.whole else in_one_line(flow) for flow in status["flows"]]
        return msgspec.json.encode({**status, "flows": flows})


def in_one_line(flow: Mapping[str, Any]) -> dict[str, Any]:
    """A flow of a status without what only its open card shows."""
    sources = [operator for operator in flow["operators"] if operator["type"].endswith("source")]
    return {
        **{name: value for name, value in flow.items() if name in LINE},
        "operators": [{name: source[name] for name in SOURCE_LINE} for source in sources],
    }
