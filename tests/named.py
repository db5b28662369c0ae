"""Messages of flows, by the names of what is in them."""

from __future__ import annotations

from collections.abc import Iterable

from edgert.operators.base.logic import Message, PlainMessage


def named(messages: Iterable[PlainMessage]) -> list[Message]:
    """The same."""
    return [Message(*message) for message in messages]
