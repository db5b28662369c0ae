"""Readiness of the gateway, from its status."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def reasons(status: Mapping[str, Any], level: str = "bad") -> list[str]:
    """Why the gateway is not ready; empty when it is. With another `level` (`warning`): the parts that are so."""
    return [part["text"] for part in status["health"]["parts"] if part["level"] == level]
