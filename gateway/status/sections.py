"""The status page put together: sections of the gateway's parts, and those that take more than one part."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from edgert.core.settings.gateway import Central, GatewaySettings
from edgert.core.text.counted import counted
from edgert.mqtt.clients.control_plane import ControlConnection
from edgert.store.database import Database
from edgert.store.outbox.batch_repair import DAMAGED, TEXT
from gateway.checkpoint.checkpointer import Checkpointer
from gateway.flows.flows import Flows
from gateway.hosts.host import Host
from gateway.ingest.ingest import Ingest
from gateway.status.own_certificate import OwnCertificate
from gateway.status.status import Status
from gateway.uplink.uplink import Uplink

LOST_IDS = (
    "{} of 256 pages of the id table are damaged: what the sensors' broker delivers again under their packet ids is "
    "taken as new, and counted as perhaps_repeated"
)

if TYPE_CHECKING:
    from gateway.links.flow_links import FlowLinks  # which costs memory, so only where it is wanted


def status_of(
    settings: GatewaySettings,
    gateway: str,
    ingest: Ingest,
    uplink: Uplink,
    checkpointer: Checkpointer,
    flows: Flows,
    host: Host,
    links: FlowLinks | None,
    control_drops: Mapping[str, int],
    link: Callable[[], ControlConnection | None],
    web: Callable[[], dict[str, str]],
) -> Status:
    """Asks each part for its section. `control_drops`: messages of the control plane, by reason; `link` and `web` give
    the connection to central and the section of the page, which are made later."""
    sections = {
        "ingest": lambda: ingest_section(ingest),
        "central": lambda: central_section(settings.central, uplink, link()),
        "checkpoint": checkpointer.section,
        "database": lambda: database_section(uplink.database, flows, ingest),
        "slots": host.figures.slots,
        "links": links.status if links else lambda: None,
        "certificate": OwnCertificate(settings).section,
        "web": web,
    }
    drops = (
        lambda: ingest_drops(ingest),
        lambda: {("", "", reason): messages for reason, messages in control_drops.items()},
        lambda: control_connection_drops(link()),
        checkpointer.dropped,
        links.dropped if links else dict,
    )
    return Status(gateway, settings.gateway.fleet, sections, drops, flows, host, ingest.clock)


def database_section(database: Database, flows: Flows, ingest: Ingest) -> dict[str, Any]:
    """The data that is lost by damage since the start, or was when the start looked, in words."""
    pages, shed = len(ingest.inbox.table.lost), database.shed.items()
    rows = sum(rows for (_, reason), rows in shed if reason == DAMAGED)
    ids = LOST_IDS.format(pages) if pages and not (database.lost or flows.losses.begun_anew) else ""
    outbox = f"{TEXT}: {counted(rows, 'row')} lost" if rows else ""
    return {
        "path": str(database.path),
        "lost": "; ".join(filter(None, (database.lost, flows.losses.begun_anew, ids, outbox))),
    }


def ingest_section(ingest: Ingest) -> dict[str, Any]:
    """The ingest's part of the status page."""
    client, inbox = ingest.client.status, ingest.inbox
    return {
        "connected": client.connected,
        "subscribed": ingest.subscriber.hears,
        "broker": str(ingest.client.address),
        "protocol": client.protocol,
        "messages": inbox.counters.messages,
        "bytes": inbox.counters.bytes,
        "unacknowledged": len(inbox.owed),
        "reconnects": client.reconnects,
        "sessions_lost": ingest.sessions_lost,
        "unknown_sessions": ingest.known_session.unknown,
        "redelivered": inbox.counters.redelivered,
        "ambiguous": inbox.counters.ambiguous,
        "perhaps_repeated": inbox.counters.perhaps_repeated,
        "without_dup": inbox.counters.without_dup,
        "untaken": inbox.counters.untaken,
        "failed": ingest.failed,
        "broker_dropped": ingest.drops.dropped,
        "broker_drops_unseen": ingest.drops.unseen,
        "window": ingest.read_limits.window.met,
        "window_checkpoints": ingest.read_limits.window.asked,
        "refused": dict(ingest.subscriber.grants.refused),
        "refused_topics": ingest.publishing.refused(),
        "paused_s": round(ingest.read_limits.paused_s, 1),
        "error": ingest.subscriber.grants.error or client.error,
    }


def ingest_drops(ingest: Ingest) -> dict[tuple[str, str, str], int]:
    """Messages that came to no flow, by ("", "", reason)."""
    counters = ingest.inbox.counters
    return {
        ("", "", "no flow takes it"): counters.unrouted,
        ("", "", "larger than max_packet_bytes"): ingest.oversized,
        ("", "", "redelivery, ambiguous"): counters.ambiguous,
        ("", "", "could not be taken in, QoS 0"): counters.untaken_qos_0,
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
        "too_large": link.limits.too_large if link else 0,
        "hung_up": link.limits.hung_up if link else 0,
        "error": uplink.status.error or (link.error if link else ""),
    }


def control_connection_drops(link: ControlConnection | None) -> dict[tuple[str, str, str], int]:
    """Messages of the central broker that came to no part of the gateway, by ("", "", reason)."""
    if link is None:
        return {}
    return {
        ("", "", "control message that is too large"): link.oversized,
        ("", "", "control message that could not be handled"): link.unhandled,
    }


def not_connected(ingest: Ingest, link: ControlConnection | None) -> list[str]:
    """Brokers that there is no connection to, with the reason where it is known."""
    away, sensors = [], ingest.client
    if not sensors.status.connected:
        away.append(f"the sensors' broker ({sensors.status.error or sensors.address})")
    if link is not None and not link.connected:
        away.append(f"the central broker ({link.error or link.address})")
    return away
