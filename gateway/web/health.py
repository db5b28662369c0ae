"""Whether the gateway is ready, told from its status."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gateway.status.conditions import Level, conditions


def reasons(status: Mapping[str, Any], level: Level = "bad") -> list[str]:
    """Why the gateway is not ready; empty when it is. With another `level`: the parts that are so."""
    return [str(condition) for condition in conditions(status) if condition.level == level]
