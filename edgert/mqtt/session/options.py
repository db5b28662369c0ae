"""Options of a session: the client that it speaks for."""

from __future__ import annotations

from dataclasses import dataclass, field

from edgert.mqtt.packets import encode
from edgert.mqtt.packets.decode import DEFAULT_MAX_PACKET_BYTES
from edgert.mqtt.packets.packets import MAX_PACKET_ID, V5, Properties, Will


@dataclass(frozen=True, slots=True)
class SessionOptions:
    client_id: str
    protocol: str = "auto"
    """'5', '3.1.1', or 'auto': 5, and 3.1.1 where the broker does not know 5."""
    clean_start: bool = False
    session_expiry_s: int = 0xFFFF_FFFF
    """How long the broker keeps the session after the connection (version 5; the greatest value: for ever).
    0 ends it with the connection, which in 3.1.1 is asked for by a clean session."""
    keep_alive_s: int = 30
    """0 = no pings: a broker that vanishes is then found out by TCP alone."""
    ping_timeout_s: float = 10.0
    connect_timeout_s: float = 10.0
    username: str | None = None
    password: bytes | None = field(default=None, repr=False)
    will: Will | None = None
    receive_maximum: int = MAX_PACKET_ID
    max_packet_bytes: int = DEFAULT_MAX_PACKET_BYTES
    user_properties: tuple[tuple[str, str], ...] = ()
    max_outgoing_messages: int = 10_000
    max_outgoing_bytes: int = 4 << 20
    max_in_flight: int = 1_000
    """QoS 1 messages of ours under way, at most; the broker's receive maximum if that is less."""

    def __post_init__(self) -> None:
        if self.protocol not in ("auto", "5", "3.1.1"):
            raise ValueError(f"expected protocol auto, 5 or 3.1.1, got {self.protocol}")
        if self.password is not None and self.username is None:
            raise ValueError("expected a user name with the password, got none")
        if not 1 <= self.receive_maximum <= MAX_PACKET_ID:
            raise ValueError(f"expected a receive maximum of 1..65535, got {self.receive_maximum}")
        if not 0 <= self.keep_alive_s <= 65_535:
            raise ValueError(f"expected a keep-alive of 0..65535 s, got {self.keep_alive_s}")
        if not self.client_id and not self.clean_start and self.session_expiry_s:
            raise ValueError("expected a client id for a session that the broker keeps, got none")


def connect_packet(options: SessionOptions, level: int) -> bytes:
    """CONNECT in the version of `level`; ValueError for what it cannot carry."""
    properties: Properties = {}
    if level == V5:
        # No Maximum Packet Size: the broker would drop what is larger without a word, see `Decoder`.
        properties["session_expiry_interval"] = options.session_expiry_s
        properties["receive_maximum"] = options.receive_maximum
        if options.user_properties:
            properties["user_property"] = list(options.user_properties)
    return encode.connect(
        level,
        options.client_id,
        clean=options.clean_start or (level != V5 and options.session_expiry_s == 0),
        keep_alive_s=options.keep_alive_s,
        username=options.username,
        password=options.password,
        will=options.will,
        properties=properties,
    )
