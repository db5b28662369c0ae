"""Readiness of the gateway, from its status."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from edgert.core.text.conditions import texts


def reasons(status: Mapping[str, Any], level: str = "bad") -> list[str]:
    """Why the gateway is not ready; empty when it is. With another `level` (`warning`): the parts that are so."""
    return texts(status["health"]["parts"], level)


def answer(status: Mapping[str, Any]) -> tuple[str, bool]:
    """The text of `/healthz`, and whether the gateway is ready."""
    why, doubts = reasons(status), reasons(status, "warning")
    lines = ["not ready" if why else "ready", *(f"- {line}" for line in why), *(f"- warning: {d}" for d in doubts)]
    return "\n".join(lines) + "\n", not why
