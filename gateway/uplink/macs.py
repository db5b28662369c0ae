"""MACs at the gateway: results leave with one, and an acknowledgement counts only with one by this gateway's key.

An acknowledgement that was recorded carries a good MAC for ever. Numbers never mean two things, so an old one frees
nothing that has not landed. But an old answer to a hello would tell of tables as they were, so each hello has a random
token, and only an answer with this token is one. Without a key, too: who may write acknowledgements, and read no
results, cannot have this gateway believe that its database went back in time.
"""

from __future__ import annotations

import logging
import secrets
from dataclasses import dataclass, field
from typing import Final

from edgert.core.errors import PayloadError
from edgert.core.log_sampling import LogSampling
from edgert.core.results.macs import OVERHEAD, is_authentic, split_untrusted, with_macs

log = logging.getLogger(__name__)
TOKEN_BYTES: Final = 8


class NotAuthenticError(PayloadError):
    """A message without a MAC by this gateway's key."""


@dataclass(slots=True)
class Macs:
    """Without a key results leave as they are, and MACs of acknowledgements are not checked."""

    key: bytes | None = field(default=None, repr=False)
    refused: int = 0
    """Acknowledgements without a MAC by the key, since the start."""
    _ignored: LogSampling = field(default_factory=LogSampling)
    _tokens: dict[str, bytes] = field(default_factory=dict, repr=False)
    """Flow → token of a hello that has no answer yet."""

    @property
    def overhead(self) -> int:
        """Bytes that a result is longer by."""
        return OVERHEAD if self.key else 0

    def signed(self, payload: bytes, topic: str) -> bytes:
        """A result as it is sent on `topic`."""
        return with_macs(payload, topic, [self.key]) if self.key else payload

    def payload_untrusted(self, message: bytes, topic: str) -> bytes:
        """The payload of an acknowledgement on `topic`. Raises `NotAuthenticError`, or `PayloadError` for MACs
        that are cut off."""
        macs, payload = split_untrusted(message)
        if self.key and not is_authentic(macs, payload, topic, [self.key]):
            got = "another" if macs else "none; has the collector the central key (collector.mac_key_file)?"
            raise NotAuthenticError(f"expected a MAC by this gateway's key (central.mac_key_file), got {got}")
        return payload

    def note_refused(self, error: PayloadError, topic: str, now: float) -> str:
        """Counts and logs a message on `topic` that is no acknowledgement: the first of a kind, then their number once
        a minute. Returns what the status says of it while no good one comes; empty for one that lacks no MAC."""
        text = f"a message on {topic} is no acknowledgement and is ignored: {error}"
        if first := self._ignored.note(type(error).__name__, 1, text, now):
            log.warning("%s", first)
        for _, count, seconds, newest in self._ignored.due(now):
            log.warning("%d more in %.0f s; the newest: %s", count, seconds, newest)
        if not isinstance(error, NotAuthenticError):
            return ""
        self.refused += 1
        return text

    def token(self, flow: str) -> bytes:
        """The token of the next hello of `flow`: the same until it is answered."""
        return self._tokens.setdefault(flow, secrets.token_bytes(TOKEN_BYTES))

    def is_answer(self, flow: str, token: bytes) -> bool:
        """True if an answer with this token is one to our last hello of `flow`; only once per hello."""
        found = token != b"" and self._tokens.get(flow) == token
        if found:
            del self._tokens[flow]
        return found
