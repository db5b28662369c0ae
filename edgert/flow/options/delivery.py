"""`delivery` of a flow: whether its results wait for the checkpoint that covers them, or leave ahead of it."""

from __future__ import annotations

from typing import Any, Final, Literal

from edgert.core.errors import Problem, show

Delivery = Literal["exactly-once", "at-least-once"]
DELIVERIES: Final[tuple[Delivery, ...]] = ("exactly-once", "at-least-once")
DEFAULT: Final[Delivery] = "exactly-once"


def parse(given: Any) -> tuple[Delivery, list[Problem]]:
    """The guarantee that a document asks for, and what is wrong with it."""
    for choice in DELIVERIES:
        if given == choice:
            return choice, []
    return DEFAULT, [Problem("delivery", f"one of {', '.join(DELIVERIES)}", show(given))]
