"""The conditions of a gateway's parts as people read them: one fault is said once, however many flows wait for it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

NO_INPUT: Final = "no input"
RESULTS_WAIT: Final = "results wait"
_WAITS: Final = {NO_INPUT: "wait for the sensors' broker", RESULTS_WAIT: "wait until their results are acknowledged"}
"""States of a flow that has no fault of its own."""


def texts(parts: Iterable[Mapping[str, str]], level: str) -> list[str]:
    """The texts of the parts at a level. Flows that wait for the same part, if they are several, share one text."""
    found: list[str] = []
    waiting: dict[str, list[Mapping[str, str]]] = {}
    for part in parts:
        if part["level"] != level:
            continue
        if part["part"] == "flow" and part["state"] in _WAITS:
            waiting.setdefault(part["state"], []).append(part)
        else:
            found.append(part["text"])
    for state, flows in waiting.items():
        names = ", ".join(flow["name"] for flow in flows)
        found.append(flows[0]["text"] if len(flows) == 1 else f"{len(flows)} flows {_WAITS[state]}: {names}")
    return found
