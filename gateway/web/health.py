"""Whether the gateway is ready, told from its status."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def reasons(status: Mapping[str, Any]) -> list[str]:
    """Why the gateway is not ready; empty when it is.

    A central side that is away is no reason: results wait in the outbox, and a restart would help nobody.
    """
    found = []
    ingest = status.get("ingest", {})
    if not ingest.get("connected"):
        detail = ingest.get("error") or "no connection yet"
        found.append(f"sensors' broker {ingest.get('broker') or '(none)'}: {detail}")
    checkpoint_error = status.get("checkpoint", {}).get("error")
    if checkpoint_error:
        found.append(f"checkpoint: {checkpoint_error}")
    return found
