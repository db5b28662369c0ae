"""Limits and checks that settings of several programs share."""

from __future__ import annotations

from typing import Final

from edgert.core.ids import GATEWAY_NAME

PORT: Final = 65535


def gateway_name(text: str) -> str | None:
    """A check of a gateway's name, which becomes one level of a topic."""
    fits = not text or GATEWAY_NAME.fullmatch(text)
    return None if fits else "1 to 63 letters, digits, '_', '.' or '-', a letter or digit first"


def fleet_name(text: str) -> str | None:
    """A check of a name that has to be given."""
    return "a name, not nothing" if not text else gateway_name(text)
