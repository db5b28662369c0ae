"""Sentences for reason codes of the broker, for the person who runs the gateway."""

from __future__ import annotations

from typing import Final

from edgert.mqtt.packets.packets import reason_text

TAKEN_OVER: Final = 0x8E
_HINTS: Final = {
    0x81: "the broker could not read a packet of ours; a topic with characters that it does not take?",
    4: "are username and password_file (its first line is the password) set, and as the broker has them?",
    5: "are username and password_file set, and right? Do the broker's access rules let this user in?",
    0x85: "the broker does not take the id {client_id}",
    0x86: "are username and password_file (its first line is the password) set, and as the broker has them?",
    0x87: "are username and password_file set, and right? Do the broker's access rules allow this user to connect, and "
    "what it publishes and subscribes to?",
    0x8E: "another client uses the id {client_id}: two gateways with one identity?",
    0x90: "the broker does not take a topic that we published to",
    0x93: "more messages were in flight than the broker bears",
    0x95: "a message is above the broker's limit (Mosquitto: max_packet_size)",
    0x96: "the broker limits how many messages a client may send",
    0x97: "the broker's quota for this client is used up",
    0x9F: "the broker limits how often a client may connect",
}


def sentence(code: int, client_id: str, told: str = "") -> str:
    """The standard's words for a reason code, the broker's own (`told`), and what to look at where we know."""
    hint = _HINTS.get(code)
    return reason_text(code) + (f": {told}" if told else "") + (f"; {hint.format(client_id=client_id)}" if hint else "")
