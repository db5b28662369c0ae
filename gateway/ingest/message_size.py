"""Bytes that messages take while they wait."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from edgert.core.text.long_text import all_beyond_short

MESSAGE_BYTES: Final = 100
"""Bytes of a message beside its payload and a long topic: two objects and two places in lists."""


def size_of(topics: Sequence[str], payload_bytes: int) -> int:
    """Estimated resident bytes of messages, of which the payloads have `payload_bytes` together. A long topic counts in
    full: the decoder keeps few of them, so each message has its own."""
    return payload_bytes + MESSAGE_BYTES * len(topics) + all_beyond_short(topics)
