"""The methods that `UnixLink` (one board) and `TlsLink` (between two) have in common."""

from __future__ import annotations

from typing import Protocol


class Link(Protocol):
    """An ordered stream of bytes to one process. It ends as a whole. Bytes that were sent and had not arrived are gone
    then: the protocol above sends them again, or takes both ends back to a checkpoint."""

    closed: bool
    """Nothing that is sent arrives any more."""

    @property
    def backlog_bytes(self) -> int:
        """Bytes that were sent and that the socket has not taken yet."""
        ...

    def send(self, data: bytes) -> None:
        """Sends whole frames, in order, and never waits. On a closed link it does nothing."""
        ...

    def close(self) -> None:
        """Ends the link at once; the backlog goes with it."""
        ...
