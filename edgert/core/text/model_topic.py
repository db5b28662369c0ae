"""Where a model is published: to one gateway, or to all of a fleet."""

from __future__ import annotations

from typing import Final

from edgert.core.errors import show

MAX_NAME: Final = 255


def model_name(name: str) -> str:
    """`name`, if a message on `models/<name>` can reach who names it. Raises ValueError ("expected ..., got ...")."""
    if not 1 <= len(name) <= MAX_NAME or not name.isprintable() or any(c in name for c in "/+#"):
        expected = f"a name that can be one level of a topic (1 to {MAX_NAME} printable characters without /, + and #)"
        raise ValueError(f"expected {expected}, got {show(name)}")
    return name


def model_topic(fleet: str, name: str, gateway: str = "") -> str:
    """Where the model `name` stands (retained) for one gateway; without a gateway: for all of the fleet.

    "+" as name gives the filter of all.
    """
    return f"edgert/v1/{fleet}/{gateway}/models/{name}" if gateway else f"edgert/v1/{fleet}/@models/{name}"
