"""A session at the sensors' broker of which the data folder knows nothing: the folder is gone, with what it held."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from gateway.ingest.inbox import Inbox
from gateway.ingest.subscriptions import Subscriptions

log = logging.getLogger(__name__)

UNKNOWN: Final = (
    "the sensors' broker {} has a session for this gateway, of which the data folder knows nothing: it is gone, "
    "or was begun anew. What its flows held, and what waited to leave, is missing (the amount is unknown)"
)


class KnownSession:
    """Compares what the broker has with what is stored here, once per start."""

    def __init__(self) -> None:
        self.unknown = 0
        """Sessions of which the data folder knew nothing."""
        self.on_unknown: Callable[[str], None] = lambda text: None
        """Told, in words, that the data folder is gone."""
        self._known = True

    def load(self, known: bool) -> None:
        """`known`: something is stored of a session."""
        self._known = known

    def is_unknown(self, session_present: bool) -> bool:
        """To be asked at each CONNACK."""
        unknown = session_present and not self._known
        self._known = True
        self.unknown += unknown
        return unknown

    def lose(self, inbox: Inbox, subscriptions: Subscriptions, broker: str) -> None:
        """The broker may send under identifiers that stood for other filters, and again what had come before. With the
        lock of the inbox held."""
        inbox.table.lose_all()
        subscriptions.lose()
        text = UNKNOWN.format(broker)
        log.error("%s", text)
        self.on_unknown(text)
