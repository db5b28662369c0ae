"""Whether the gateway is ready, told from its status."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

PAUSED_S = 30.0
"""Reading stops for a moment whenever messages come faster than checkpoints are made; for so long it is a fault."""


def reasons(status: Mapping[str, Any]) -> list[str]:
    """Why the gateway is not ready; empty when it is.

    A central side that is away is no reason: results wait in the outbox, and a restart would help nobody.
    """
    found = []
    ingest = status.get("ingest", {})
    if not ingest.get("connected"):
        detail = ingest.get("error") or "no connection yet"
        found.append(f"sensors' broker {ingest.get('broker') or '(none)'}: {detail}")
    found += [f"subscription to {f} refused: {why}" for f, why in ingest.get("refused", {}).items()]
    if (paused_s := ingest.get("paused_s", 0.0)) >= PAUSED_S:
        found.append(f"nothing is read for {paused_s:.0f} s: what came before is not committed")
    if failed := ingest.get("failed"):
        found.append(failed)
    checkpoint_error = status.get("checkpoint", {}).get("error")
    if checkpoint_error:
        found.append(f"checkpoint: {checkpoint_error}")
    found += [f"flow {flow['name']}: {why}" for flow in status.get("flows", ()) if (why := flow.get("late"))]
    stopped = (flow for flow in status.get("flows", ()) if flow["state"] == "failed")
    return found + [f"flow {flow['name']} is stopped: {flow['description']}" for flow in stopped]
