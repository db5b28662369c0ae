"""Events of a session for its application."""

from __future__ import annotations

from dataclasses import dataclass, field

from edgert.mqtt.packets.packets import Oversized, Properties, Publishes


@dataclass(frozen=True, slots=True)
class Connected:
    session_present: bool
    protocol: str
    """'5' or '3.1.1'."""
    connection: int
    """Number of this connection, counted from 1. Acknowledgements owed to an earlier one have died with it."""
    client_id: str
    """Ours, or the one that the broker assigned."""
    server_receive_maximum: int
    properties: Properties = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Messages:
    """Publishes in arrival order; at most one event per call to `receive_untrusted` unless something came between."""

    messages: Publishes


@dataclass(frozen=True, slots=True)
class Subscribed:
    """Every SUBACK of one `subscribe` has come."""

    token: int
    results: tuple[tuple[str, int], ...]
    """(filter, reason) in order: granted QoS, or >= 0x80 = refused (`packets.reason_text` has the words)."""

    @property
    def refused(self) -> tuple[tuple[str, int], ...]:
        return tuple((text, reason) for text, reason in self.results if reason >= 0x80)


@dataclass(frozen=True, slots=True)
class Unsubscribed:
    token: int
    filters: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Published:
    """The broker took (reason < 0x80) or refused a QoS 1 message of ours."""

    packet_id: int
    reason: int = 0


@dataclass(frozen=True, slots=True)
class Released:
    """PUBREL has come: a QoS 2 message does not come again. `Session.complete` lets the broker use its id anew."""

    packet_id: int


@dataclass(frozen=True, slots=True)
class Refused:
    """The broker refused the connection."""

    reason: int
    text: str
    retry: bool = False
    """Connect again at once: another version of the protocol will be tried."""


@dataclass(frozen=True, slots=True)
class Closed:
    """The connection is over; the socket is to be closed once the output is written."""

    text: str
    reason: int = 0
    """Version 5 reason code, if the broker gave one or the fault was its."""
    retry: bool = False


MqttEvent = Connected | Messages | Oversized | Subscribed | Unsubscribed | Published | Released | Refused | Closed
