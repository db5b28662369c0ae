"""A session at the sensors' broker of which the data folder knows nothing, or too little: it is gone, or is an older
copy."""

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
NEWER: Final = (
    "the sensors' broker {} sends a message of the subscription {}, which this data folder never had: the folder is "
    "older than the broker's session (a restored card?). Such messages go by their topics, and may count twice for "
    "flows whose filters overlap. What was acknowledged since the copy is missing (the amount is unknown)"
)


class KnownSession:
    """Compares what the broker has with what is stored here: at the first connection of a start, and by messages of
    subscriptions that are not known."""

    def __init__(self) -> None:
        self.unknown = 0
        """Sessions of which the data folder knew nothing, or too little."""
        self.on_unknown: Callable[[str], None] = lambda text: None
        """Told, in words, that the data folder is gone, or an older copy."""
        self._known = True

    def load(self, known: bool) -> None:
        """`known`: something is stored of a session."""
        self._known = known

    def is_unknown(self, session_present: bool) -> bool:
        """To be asked at each CONNACK."""
        unknown = session_present and not self._known
        self._known = True
        return unknown

    def lose(self, inbox: Inbox, subscriptions: Subscriptions, text: str) -> None:
        """The broker may send under identifiers that stood for other filters, and again what had come before. `text`
        says how that is known. With the lock of the inbox held."""
        self.unknown += 1
        inbox.table.lose_all()
        subscriptions.lose()
        log.error("%s", text)
        self.on_unknown(text)
