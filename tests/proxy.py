"""One TCP hop between two of the path's programs: it can be cut, stalled, made to swallow, repeat and delay.

It frames MQTT, so that whatever it adds or delays is a whole packet. Without a fault it hands on what comes, in order.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator, Sequence
from typing import Any, Literal

from edgert.mqtt.packets.decode import Decoder
from edgert.mqtt.packets.packets import V5, Publish

Direction = Literal["up", "down"]
"""Towards the broker, and from it."""
Tamper = Callable[[bytes], Sequence[tuple[float, bytes]]]
"""One packet → what is handed on instead: (delay in s, packet)."""

See = Callable[[bytes], object]
"""Is told of each packet."""

PUBLISH = 3
DUP = 0x08
TARGET_HOST = "127.0.0.1"


def packets(buffer: bytearray) -> Iterator[bytes]:
    """Takes the complete MQTT packets from the front of `buffer`."""
    while len(buffer) >= 2:
        length = shift = 0
        at = 1
        while at < len(buffer):
            byte = buffer[at]
            length |= (byte & 0x7F) << shift
            shift += 7
            at += 1
            if byte < 0x80:
                break
        else:
            return
        if len(buffer) < at + length:
            return
        yield bytes(buffer[: at + length])
        del buffer[: at + length]


def is_publish(packet: bytes) -> bool:
    return packet[0] >> 4 == PUBLISH


def publish_of(packet: bytes) -> Publish:
    """A PUBLISH of MQTT 5 that `is_publish`."""
    found: list[Any] = []
    Decoder(V5, len(packet)).feed_untrusted(packet, found)
    publish: Publish = next(publish for messages in found for publish in messages)
    return publish


def with_dup(packet: bytes) -> bytes:
    """The same PUBLISH, marked as one that was sent before (QoS 0 has no such mark)."""
    return bytes([packet[0] | DUP]) + packet[1:] if packet[0] & 0x06 else packet


class Loop:
    """The thread on which all hops of one path live."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name="proxies", daemon=True)
        self._thread.start()

    def call(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        """Runs it there and returns what it returns."""
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(60.0)

    def close(self) -> None:
        self.call(self._cancel_all())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(60.0)
        self.loop.close()

    async def _cancel_all(self) -> None:
        tasks = [t for t in asyncio.all_tasks() if t is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class Hop:
    """Listens on a port of its own and connects each client to the port `target`. Its methods may be called from any
    thread."""

    def __init__(self, loop: Loop, target: int, host: str) -> None:
        self._loop, self._target, self.host = loop, target, host
        self._open = True
        self._swallows: set[Direction] = set()
        self._tampers: dict[Direction, Tamper] = {}
        self._gates: dict[Direction, asyncio.Event] = {}
        self._hang_ups: dict[Direction, Callable[[bytes], bool]] = {}
        self._watchers: dict[Direction, See] = {}
        self._writers: set[asyncio.StreamWriter] = set()
        self.hung_up = 0
        """How often all connections were ended for a packet."""
        self.tampered = 0
        """Packets that were swallowed, repeated or delayed."""
        self._server: asyncio.Server = loop.call(self._listen())
        self.port: int = self._server.sockets[0].getsockname()[1]

    # -- what may be done to it

    def cut(self, refuse: bool = True) -> int:
        """Ends all connections; with `refuse` also those that come, until `mend`. Returns how many were ended."""
        return int(self._loop.call(self._cut(refuse)))

    def mend(self) -> None:
        """Takes connections again, and hands on at once whatever comes."""
        self._loop.call(self._mend())

    def stall(self, direction: Direction) -> None:
        """Nothing moves in this direction until `mend`; TCP keeps it."""
        self._loop.loop.call_soon_threadsafe(self._gates[direction].clear)

    def swallow(self, direction: Direction) -> None:
        """What comes in this direction vanishes. The connections must be cut before `mend`, since TCP loses nothing
        of a connection that stands."""
        self._swallows.add(direction)

    def tamper(self, direction: Direction, how: Tamper) -> None:
        """`how` decides what becomes of each packet, until `mend`."""
        self._tampers[direction] = how

    def hang_up(self, direction: Direction, at: Callable[[bytes], bool]) -> None:
        """From now on all connections end at a packet for which `at` is true, and nobody gets that packet: as a broker
        does that takes none of its kind. `mend` does not change that."""
        self._hang_ups[direction] = at

    def watch(self, direction: Direction, see: See) -> None:
        """`see` is told, on the loop's thread, of each packet that comes in this direction."""
        self._watchers[direction] = see

    def close(self) -> None:
        self._loop.call(self._close())

    # -- on the loop

    async def _listen(self) -> asyncio.Server:
        for direction in ("up", "down"):
            self._gates[direction] = asyncio.Event()
            self._gates[direction].set()
        return await asyncio.start_server(self._serve, self.host, 0)

    async def _cut(self, refuse: bool) -> int:
        self._open = not refuse
        return self._abort()

    def _abort(self) -> int:
        writers = list(self._writers)
        for writer in writers:
            writer.transport.abort()
        return len(writers) // 2

    async def _mend(self) -> None:
        self._open = True
        self._swallows.clear()
        self._tampers.clear()
        for gate in self._gates.values():
            gate.set()

    async def _close(self) -> None:
        self._server.close()
        await self._cut(True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not self._takes():
            writer.transport.abort()
            return
        try:
            far_reader, far_writer = await asyncio.open_connection(TARGET_HOST, self._target)
        except OSError:
            writer.transport.abort()
            return
        both = {writer, far_writer}
        if not self._takes():  # cut while it connected
            for each in both:
                each.transport.abort()
            return
        self._writers |= both
        try:
            ways = {
                asyncio.ensure_future(self._pump(reader, far_writer, "up")),
                asyncio.ensure_future(self._pump(far_reader, writer, "down")),
            }
            try:
                await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for way in ways:
                    way.cancel()
                await asyncio.gather(*ways, return_exceptions=True)
        finally:
            self._writers -= both
            for each in both:
                each.close()

    def _takes(self) -> bool:
        return self._open

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, direction: Direction) -> None:
        buffer = bytearray()
        while data := await reader.read(65_536):
            await self._gates[direction].wait()
            buffer += data
            for packet in packets(buffer):
                self._hand_on(packet, writer, direction)
            await writer.drain()

    def _hand_on(self, packet: bytes, writer: asyncio.StreamWriter, direction: Direction) -> None:
        if direction in self._swallows:
            self.tampered += 1
            return
        if writer.is_closing():
            return
        if (see := self._watchers.get(direction)) is not None:
            see(packet)
        if (hang_up := self._hang_ups.get(direction)) is not None and hang_up(packet):
            self.hung_up += 1
            self._abort()
            return
        how = self._tampers.get(direction)
        if how is None:
            writer.write(packet)
            return
        instead = how(packet)
        self.tampered += list(instead) != [(0.0, packet)]
        for delay_s, other in instead:
            if delay_s:
                self._loop.loop.call_later(delay_s, self._write, writer, other)
            else:
                writer.write(other)

    def _write(self, writer: asyncio.StreamWriter, packet: bytes) -> None:
        if not writer.is_closing():
            writer.write(packet)
