"""Message authentication codes (MACs) of results and acknowledgements: who holds no key of a gateway forges neither.

    message = 0xC1 · number of MACs (1 byte, 1 to 8) · MACs (32 bytes each) · payload
    MAC     = HMAC-SHA256(key of the gateway, topic · 0x00 · payload)         (RFC 2104, FIPS 180-4)
    key     = HMAC-SHA256(central key, "edgert/v1 gateway" · 0x00 · fleet · 0x00 · gateway)

The topic names fleet, gateway, flow and direction (`@results` or `@acks`), so the MAC of one message fits no other.
A gateway has its own key alone, and a stolen board speaks for no other board. The collector has the central key, of
which it makes the keys of all gateways. While the central key changes it has several: it takes a result with a MAC by
any of them, and puts a MAC by each of them on an acknowledgement.

No payload begins with 0xC1 without MACs: MessagePack never uses this byte, and a zstd frame begins with another.
"""

from __future__ import annotations

import hmac
from collections.abc import Sequence
from typing import Final

from edgert.core.errors import PayloadError
from edgert.core.text.key_lines import MAX_KEYS

MARK: Final = 0xC1
MAC_BYTES: Final = 32
MOST_MACS: Final = MAX_KEYS
OVERHEAD: Final = 2 + MAC_BYTES
"""Bytes that one MAC adds to a payload."""


def gateway_key(central: bytes, fleet: str, gateway: str) -> bytes:
    """The key of one gateway, 32 bytes. `central`: the central key."""
    return hmac.digest(central, f"edgert/v1 gateway\0{fleet}\0{gateway}".encode(), "sha256")


def with_macs(payload: bytes, topic: str, keys: Sequence[bytes]) -> bytes:
    """The payload with a MAC by each of 1 to `MOST_MACS` keys, as it is sent on `topic`."""
    return bytes((MARK, len(keys))) + b"".join(_mac(payload, topic, key) for key in keys) + payload


def split_untrusted(message: bytes) -> tuple[list[bytes], bytes]:
    """The MACs of a message, none if it has none, and its payload. Checks no MAC. Raises `PayloadError`."""
    if message[:1] != bytes((MARK,)):
        return [], message
    count = message[1] if len(message) > 1 else 0
    end = 2 + count * MAC_BYTES
    if not 1 <= count <= MOST_MACS or len(message) < end:
        raise PayloadError(f"expected 1 to {MOST_MACS} MACs, got {len(message)} bytes that say {count}")
    return [message[at : at + MAC_BYTES] for at in range(2, end, MAC_BYTES)], message[end:]


def is_authentic(macs: Sequence[bytes], payload: bytes, topic: str, keys: Sequence[bytes]) -> bool:
    """True if one of the MACs is of this payload on this topic, by one of the keys. Compares in constant time."""
    found = [hmac.compare_digest(mac, own) for own in (_mac(payload, topic, key) for key in keys) for mac in macs]
    return any(found)


def _mac(payload: bytes, topic: str, key: bytes) -> bytes:
    return hmac.digest(key, topic.encode() + b"\0" + payload, "sha256")
