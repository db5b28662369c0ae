"""Sections of the status page that take more than one part of the gateway, or are too long for it."""

from __future__ import annotations

from typing import Any

from edgert.core.settings import Central
from edgert.mqtt.control_plane import ControlConnection
from gateway.ingest.ingest import Ingest
from gateway.uplink.uplink import Uplink


def ingest_section(ingest: Ingest) -> dict[str, Any]:
    """The ingest's part of the status page."""
    client, inbox = ingest.client.status, ingest.inbox
    return {
        "connected": client.connected,
        "broker": str(ingest.client.address),
        "protocol": client.protocol,
        "messages": inbox.counters.messages,
        "bytes": inbox.counters.bytes,
        "unacknowledged": len(inbox.owed),
        "reconnects": client.reconnects,
        "sessions_lost": ingest.sessions_lost,
        "redelivered": inbox.counters.redelivered,
        "ambiguous": inbox.counters.ambiguous,
        "perhaps_repeated": inbox.counters.perhaps_repeated,
        "broker_dropped": ingest.drops.dropped,
        "broker_drops_unseen": ingest.drops.unseen,
        "window": ingest.window.met,
        "window_checkpoints": ingest.window.asked,
        "refused": dict(ingest.grants.refused),
        "paused_s": round(ingest.paused_s, 1),
        "error": ingest.grants.error or client.error,
    }


def ingest_drops(ingest: Ingest) -> dict[tuple[str, str, str], int]:
    """Messages that came to no flow, by ("", "", reason)."""
    counters = ingest.inbox.counters
    return {
        ("", "", "no flow takes it"): counters.unrouted,
        ("", "", "larger than max_packet_bytes"): ingest.oversized,
        ("", "", "redelivery, ambiguous"): counters.ambiguous,
        ("", "", "retained, not asked for"): counters.retained_ignored,
        ("", "", "by the sensors' broker, of any client"): ingest.drops.dropped or 0,
        ("", "", "no count on sensors.drops_topic"): ingest.drops.bad,
    }


def central_section(settings: Central, uplink: Uplink, link: ControlConnection | None) -> dict[str, Any]:
    """The uplink's part, and its connection's."""
    return {
        "enabled": settings.enabled,
        "connected": bool(link and link.connected),
        "broker": f"{settings.host}:{settings.port}",
        **uplink.section(),
        "error": uplink.status.error or (link.error if link else ""),
    }
