"""All streams between this gateway and one other, over one connection after another: bytes and times in, events and
bytes out. A door (`edgert.links.tls`) has told the two who they are before.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from edgert.core.errors import ProtocolError
from edgert.links.messages import (
    Ack,
    Close,
    Credit,
    Data,
    LinkDecoder,
    LinkMessage,
    Number,
    Ping,
    Pong,
    Refuse,
    Resume,
    Skip,
    encode,
)
from edgert.links.protocol import WINDOW, Behind, Gap, Receiver, Sender, Stored, Wanted

PING_S: Final = 5.0
"""A peer that has said nothing for so long is asked whether it is there."""
SILENT_S: Final = 15.0
"""A peer that has said nothing for so long is given up: the connection ends. TCP itself may need minutes to notice."""
MOST_STREAMS: Final = 1024
"""Flows that one gateway may ask of another."""


@dataclass(frozen=True, slots=True)
class Received:
    """The next batch of a flow from the peer, for the flow."""

    flow: str
    number: Number
    body: bytes
    before: Number
    """The number that the flow was given before."""
    gap: Gap | None
    """Batches missing before this one, for good. The commit that covers `number` should count them."""


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """The peer has committed a flow's batches up to `number`: the store can delete them."""

    flow: str
    number: Number


@dataclass(frozen=True, slots=True)
class FellBehind:
    """The peer has numbers of a flow that this gateway never gave; see `Behind`."""

    flow: str
    theirs: Number


LinkEvent = Received | Acknowledged | FellBehind


@dataclass(slots=True)
class LinkCounters:
    """Counters of one peer, since the process began."""

    connections: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    batches_in: int = 0
    batches_out: int = 0
    gaps: int = 0


@dataclass(slots=True)
class _Wire:
    """State of one connection."""

    decoder: LinkDecoder = field(default_factory=LinkDecoder)
    output: list[bytes] = field(default_factory=list)
    heard: float = 0.0
    pinged: float = 0.0
    outgoing: dict[int, str] = field(default_factory=dict)
    """Channel → flow that the peer asks for, whether or not this gateway sends it."""
    asked: dict[str, Resume] = field(default_factory=dict)
    """Flow → the peer's newest request."""
    incoming: dict[int, str] = field(default_factory=dict)
    """Channel → flow that was asked of the peer."""
    last_channel: int = 0


class LinkSession:
    """The session with one peer. It outlives its connections."""

    def __init__(self) -> None:
        self.senders: dict[str, Sender] = {}
        self.receivers: dict[str, Receiver] = {}
        self.counters = LinkCounters()
        self._wire: _Wire | None = None
        self._handlers: dict[type[Any], Callable[[_Wire, Any, float], LinkEvent | None]] = {
            Resume: self._on_resume,
            Skip: self._on_skip,
            Data: self._on_data,
            Ack: self._on_ack,
            Credit: self._on_credit,
            Close: self._on_close,
            Ping: self._on_ping,
            Pong: self._on_pong,
            Refuse: self._on_refuse,
        }

    # -- which streams there are

    def send(self, flow: str, last: Number) -> LinkEvent | None:
        """This gateway has batches of `flow` for the peer, numbered up to `last`."""
        sender = self.senders[flow] = Sender(last)
        asked = self._wire.asked.get(flow) if self._wire else None
        return self._resumed(flow, sender, asked) if asked else None

    def send_no_more(self, flow: str) -> None:
        """Stops sending a flow. Batches that are not acknowledged stay in the store, and are sent after another
        `send`."""
        self.senders.pop(flow, None)

    def receive(self, flow: str, position: Number, window: int = WINDOW) -> None:
        """A flow of this gateway wants the peer's batches after `position`, which its last commit covers."""
        self.receive_no_more(flow)
        self.receivers[flow] = Receiver(position, window)
        self._ask(flow)

    def receive_no_more(self, flow: str) -> None:
        """The peer keeps what was not acknowledged."""
        receiver = self.receivers.pop(flow, None)
        if receiver is not None:
            self._close(receiver)

    # -- what flows and store say

    def stored(self, flow: str, last: Number) -> None:
        """The store has committed batches of the flow up to `last`."""
        self.senders[flow].stored(last)

    def wanted(self) -> list[tuple[str, Wanted]]:
        """The ranges that should be read from the store now; see `Sender.wants`."""
        return [(flow, wanted) for flow, sender in self.senders.items() if (wanted := sender.wants())]

    def offer(self, flow: str, wanted: Wanted, batches: list[Stored]) -> None:
        """Takes the batches that the store has in a wanted range; see `Sender.offer`."""
        sender = self.senders.get(flow)
        if sender is None or self._wire is None:
            return
        for message in sender.offer(wanted, batches):
            self.counters.batches_out += isinstance(message, Data)
            self._say(message)

    def taken(self, flow: str, number: Number) -> None:
        """The flow has worked on everything up to `number`: there is room for more."""
        if (receiver := self.receivers.get(flow)) is not None:
            receiver.taken(number)
            self._grant(receiver)

    def committed(self, flow: str, number: Number) -> None:
        """A commit covers the flow's batches up to `number`. Raises ValueError if the flow was never given that."""
        if (receiver := self.receivers.get(flow)) is not None:
            if ack := receiver.commit(number):
                self._say(ack)
            self._grant(receiver)

    def rewind(self, flow: str, position: Number) -> None:
        """The flow went back to its last commit: it gets everything after `position` again. See `Receiver.rewind`."""
        receiver = self.receivers[flow]
        receiver.rewind(position)
        self._ask(flow)

    def hold(self, flow: str, position: Number) -> None:
        """Works as `rewind`, but no batch is requested until `rewind` is called."""
        receiver = self.receivers[flow]
        self._close(receiver)
        receiver.rewind(position)

    # -- the connection

    @property
    def is_connected(self) -> bool:
        return self._wire is not None

    def connected(self, now: float) -> None:
        """There is a new connection to the peer. All streams go on where they stood."""
        self.lost()
        self._wire = _Wire(heard=now, pinged=now)
        self.counters.connections += 1
        for flow in self.receivers:
            self._ask(flow)

    def lost(self) -> None:
        """The connection is gone, and with it all that was under way."""
        self._wire = None
        for sender in self.senders.values():
            sender.disconnected()
        for receiver in self.receivers.values():
            receiver.disconnected()

    def take_output(self) -> bytes:
        """Returns the bytes to send now."""
        if self._wire is None or not self._wire.output:
            return b""
        data = b"".join(self._wire.output)
        self._wire.output.clear()
        self.counters.bytes_out += len(data)
        return data

    def receive_untrusted(self, chunk: bytes, now: float) -> list[LinkEvent]:
        """Takes bytes from the peer. Raises `ProtocolError` where it does not keep the protocol: the connection has to
        end then, and `lost` to be called."""
        wire = self._wire
        if wire is None:
            return []
        self.counters.bytes_in += len(chunk)
        wire.heard = now
        events: list[LinkEvent] = []
        for message in wire.decoder.feed_untrusted(chunk):
            handler = self._handlers.get(type(message))
            if handler is None:
                raise ProtocolError(f"expected no {type(message).__name__} after the first message")
            if event := handler(wire, message, now):
                events.append(event)
        return events

    def tick(self, now: float) -> None:
        """Call this about once a second. Raises `ProtocolError` for a silent peer: the connection has to end."""
        wire = self._wire
        if wire is None:
            return
        silent_s = now - wire.heard
        if silent_s > SILENT_S:
            raise ProtocolError(f"expected a word from the peer within {SILENT_S:g} s, got none for {silent_s:.1f} s")
        if silent_s >= PING_S and now - wire.pinged >= PING_S:
            wire.pinged = now
            self._say(Ping(0))

    # -- messages

    def _on_resume(self, wire: _Wire, message: Resume, _: float) -> LinkEvent | None:
        if message.flow not in wire.asked and len(wire.asked) >= MOST_STREAMS:
            raise ProtocolError(f"expected at most {MOST_STREAMS} streams, got one more: flow {message.flow}")
        if message.channel in wire.outgoing:
            raise ProtocolError(f"expected a new channel, got {message.channel}, which is in use")
        if (old := wire.asked.get(message.flow)) is not None:
            del wire.outgoing[old.channel]
        wire.outgoing[message.channel] = message.flow
        wire.asked[message.flow] = message
        sender = self.senders.get(message.flow)
        return self._resumed(message.flow, sender, message) if sender else None

    def _resumed(self, flow: str, sender: Sender, message: Resume) -> LinkEvent | None:
        before = sender.acknowledged
        behind = sender.resume(message)
        if isinstance(behind, Behind):
            return FellBehind(flow, behind.theirs)
        return Acknowledged(flow, sender.acknowledged) if sender.acknowledged > before else None

    def _on_ack(self, wire: _Wire, message: Ack, _: float) -> LinkEvent | None:
        flow, sender = self._outgoing(wire, message.channel)
        if sender and sender.acknowledge(message.number):
            return Acknowledged(flow, message.number)
        return None

    def _on_credit(self, wire: _Wire, message: Credit, _: float) -> None:
        sender = self._outgoing(wire, message.channel)[1]
        if sender:
            sender.credit(message.total)

    def _on_close(self, wire: _Wire, message: Close, _: float) -> None:
        flow, sender = self._outgoing(wire, message.channel)
        del wire.outgoing[message.channel], wire.asked[flow]
        if sender:
            sender.disconnected()

    def _outgoing(self, wire: _Wire, channel: int) -> tuple[str, Sender | None]:
        flow = wire.outgoing.get(channel)
        if flow is None:
            raise ProtocolError(f"expected a channel that is open, got {channel}")
        sender = self.senders.get(flow)
        return flow, sender if sender and sender.channel == channel else None

    def _incoming(self, wire: _Wire, channel: int) -> tuple[str, Receiver | None]:
        """No receiver for a channel that is not in use any more: what was under way then."""
        if not 0 < channel <= wire.last_channel:
            raise ProtocolError(f"expected a channel that was opened, got {channel}")
        flow = wire.incoming.get(channel, "")
        return flow, self.receivers.get(flow)

    def _on_skip(self, wire: _Wire, message: Skip, _: float) -> None:
        receiver = self._incoming(wire, message.channel)[1]
        if receiver:
            receiver.skip(message)

    def _on_data(self, wire: _Wire, message: Data, _: float) -> LinkEvent | None:
        flow, receiver = self._incoming(wire, message.channel)
        if receiver is None:  # it was under way when this gateway asked for no more
            return None
        before = receiver.accepted
        taken = receiver.take(message)
        if not receiver.channel:
            self._ask(flow)
        elif taken is None:
            self._grant(receiver)
        else:
            self.counters.batches_in += 1
            self.counters.gaps += taken.gap is not None
            return Received(flow, message.number, message.body, before, taken.gap)
        return None

    def _on_ping(self, wire: _Wire, message: Ping, _: float) -> None:
        self._say(Pong(message.token))

    def _on_pong(self, wire: _Wire, message: Pong, _: float) -> None:
        """Does nothing: the Pong counts as a sign of life, like all messages."""

    def _on_refuse(self, wire: _Wire, message: Refuse, _: float) -> None:
        raise ProtocolError(f"the peer closes the connection: {message.text}")

    def _ask(self, flow: str) -> None:
        wire, receiver = self._wire, self.receivers[flow]
        if wire is None:
            return
        wire.incoming = {channel: of for channel, of in wire.incoming.items() if of != flow}
        wire.last_channel += 1
        wire.incoming[wire.last_channel] = flow
        self._say(receiver.resume(wire.last_channel, flow))

    def _close(self, receiver: Receiver) -> None:
        if self._wire is not None and receiver.channel:
            self._wire.incoming.pop(receiver.channel, None)
            self._say(Close(receiver.channel))
        receiver.disconnected()

    def _grant(self, receiver: Receiver) -> None:
        if credit := receiver.grant():
            self._say(credit)

    def _say(self, message: LinkMessage) -> None:
        if self._wire is not None:
            self._wire.output.append(encode(message))
