"""Types between application and client: address and callbacks, status."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from edgert.mqtt.packets.packets import Oversized, Publishes
from edgert.mqtt.session.events import Connected, Subscribed, Unsubscribed


@dataclass(frozen=True, slots=True)
class Tls:
    """Server certificate and name are always checked. Empty `ca_file`: the system's authorities. The files are read at
    each connect, so that renewed ones are picked up."""

    ca_file: str = ""
    cert_file: str = ""
    key_file: str = ""


@dataclass(frozen=True, slots=True)
class BrokerAddress:
    host: str
    port: int = 1883
    tls: Tls | None = None

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


@dataclass(slots=True)
class Handlers:
    """The application's callbacks, called in the event loop. One that raises is logged and counted, no more."""

    on_connected: Callable[[Connected], None] | None = None
    on_messages: Callable[[Publishes], None] | None = None
    """One call per read (more only if another packet stands between); the list is the callee's to keep."""
    on_oversized: Callable[[Oversized], None] | None = None
    on_disconnected: Callable[[str], None] | None = None
    """Called once for each `on_connected`."""
    on_subscribed: Callable[[Subscribed], None] | None = None
    on_unsubscribed: Callable[[Unsubscribed], None] | None = None
    on_published: Callable[[int, int], None] | None = None
    """(packet id, reason); a reason >= 0x80 is a refusal."""
    on_released: Callable[[int], None] | None = None


@dataclass(slots=True)
class ClientStatus:
    connected: bool = False
    protocol: str = ""
    """'5' or '3.1.1' while connected."""
    connections: int = 0
    reconnects: int = 0
    error: str = ""
    """Why there is no connection, or why a callback failed last; empty after a successful connect."""
    messages: int = 0
    bytes: int = 0
    reads: int = 0
    oversized: int = 0
    callback_errors: int = 0
