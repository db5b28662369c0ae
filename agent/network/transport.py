"""The door to the network: UDP for the protocol, TCP for exchanges of tables, pings that UDP loses, and requests.

The asking side of a connection begins with a hello, a frame without content. The answering side greets a hello that is
new with 16 random bytes, to which all frames that follow are bound. Request and answer are two frames each
(`agent.network.frames`). The first of the two is small: only after it opened does the second, larger one get room. A
connection serves one request. Packets that do not open are counted and never answered.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import socket
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from agent.membership.events import Datagram, MemberEvent, StreamPing, Sync
from agent.membership.members import Address, Member, Peer
from agent.membership.packets import (
    ANYBODY,
    GREETING_BYTES,
    MAX_DATAGRAM,
    Dropped,
    Frame,
    Opened,
    Sealer,
    hello_at,
    hello_to,
    refusal_of,
)
from agent.membership.protocol import Membership
from agent.network.allowance import Allowance
from agent.network.frames import SYNC, Frames, largest, map_untrusted, token_and_verb_untrusted
from agent.network.refusing import REFUSED, refuse, take_refusal
from edgert.core.clock import Clock
from edgert.core.errors import EdgertError, PayloadError, ProtocolError, show
from edgert.core.packing import pack
from edgert.links.local_address import bound_segments
from edgert.links.pending import PendingConnections

log = logging.getLogger(__name__)

RequestHandler = Callable[[str, Mapping[str, Any]], Awaitable[Any]]
"""Carries out a verb: takes the asking member's name and plain arguments, returns a plain value."""
PING: Final = "membership.ping"
MAX_WAITING: Final = 64
"""Connections at one time that have not shown that a member asks. One more drops the oldest of the address that has
most."""
FIRST_S: Final = 3.0
"""Longest wait for hello and head of a request, which show that a member asks."""
MAX_SERVED: Final = 64
"""Requests of members at one time."""
MAX_OF_MEMBER: Final = 16
"""Requests of one member at one time; one more is closed, and counted."""
BACKLOG: Final = 100
MAX_ASKED: Final = 16
"""Exchanges and pings over TCP that we run at one time."""
ACQUAINTS: Final = "for its certificate: "
"""Begin of the names of tasks that ask members for their certificates."""
MAX_ACQUAINTED: Final = 4
"""Exchanges at one time with members whose certificates are not known: these come with each answer."""
TIMEOUT_S: Final = 5.0
BUFFER_BYTES: Final = 1 << 16
"""A connection is not read on while twice as much waits in it. Frames that are longer come in several turns."""


class RequestError(EdgertError):
    """Another agent could not be reached, did not answer in time, or refused the request."""


class UnansweredError(RequestError):
    """No answer came, though the other agent may have done what was asked."""


class Transport(asyncio.DatagramProtocol):
    """Runs a `Membership` on real sockets. `on_events` is called with the events of each step."""

    def __init__(
        self, membership: Membership, sealer: Sealer, clock: Clock, on_events: Callable[[list[MemberEvent]], None]
    ) -> None:
        self.membership = membership
        self.sealer = sealer
        self.handlers: dict[str, RequestHandler] = {SYNC: self._on_sync, PING: self._on_ping}
        """Verb -> handler of requests from other agents; others may add theirs."""
        self.frames = Frames(sealer)
        self.first_s = FIRST_S
        self.refused_connections = 0
        """Connections that lost their place to newer ones, and requests of members that have too many."""
        self._clock = clock
        self._on_events = on_events
        sealer.member_epoch = membership.roster.epoch_of
        self._udp: asyncio.DatagramTransport | None = None
        self._server: asyncio.Server | None = None
        self._timer: asyncio.TimerHandle | None = None
        self.waiting = PendingConnections[asyncio.StreamWriter](MAX_WAITING)
        self._served, self._answers = Allowance(), Allowance()
        """For requests of others, and for answers to ours. A request that is carried out may wait for an answer."""
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self, bind: Address) -> Address:
        """Bind UDP and TCP to the same port, in place of those before; returns the address. Raises `EdgertError` where
        that is not possible."""
        loop = asyncio.get_running_loop()
        _close(self._udp, self._server)
        self._udp = None
        try:
            family = socket.AF_INET6 if ":" in bind[0] else socket.AF_INET
            listening = socket.create_server(bind, family=family, backlog=BACKLOG)
            bound_segments(listening, bind[0])
            self._server = await asyncio.start_server(self._serve, sock=listening, limit=BUFFER_BYTES)
            host, port = listening.getsockname()[:2]
            self._udp, _ = await loop.create_datagram_endpoint(lambda: self, local_addr=(host, port))
        except OSError as error:
            _close(self._udp, self._server)
            raise EdgertError(
                f"the agent cannot listen on {bind[0]}:{bind[1]}: {error.strerror or error}: see [agent]"
            ) from error
        return host, port

    def run(self) -> None:
        """Begin to tick."""
        self.step()

    async def stop(self) -> None:
        """Close all sockets and end what runs."""
        if self._timer is not None:
            self._timer.cancel()
        _close(self._udp, self._server)
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # Ticks and UDP

    def _tick(self) -> None:
        self.membership.tick(self._clock.monotonic())
        self.step()

    def step(self) -> None:
        """Send what the protocol wants to send; to be called after anything was asked of it."""
        if events := self.membership.take_events():
            self._on_events(events)
        for output in self.membership.take_outputs():
            match output:
                case Datagram(to, payload):
                    self._send(to, payload)
                case Sync(address, name):
                    self._begin(self._sync(address, name))
                case StreamPing(address, target, sequence):
                    self._begin(self._stream_ping(address, target, sequence))
        if self._timer is not None:
            self._timer.cancel()
        now = self._clock.monotonic()
        wait = self.membership.next_wakeup(now) - now
        self._timer = asyncio.get_running_loop().call_later(max(wait, 0.001), self._tick)

    def _send(self, to: Peer, payload: bytes) -> None:
        try:
            packet = self.sealer.seal(payload, to)
        except ValueError as error:
            self.sealer.drops["too large to send"] += 1
            log.warning("a packet to %s was not sent: %s", to.name, error)
            return
        self.frames.traffic.sent += len(packet)
        if self._udp is not None and not self._udp.is_closing():
            try:
                self._udp.sendto(packet, to.address)
            except (OSError, ValueError) as error:  # no route, or a host that is no address
                self.sealer.drops["not sent"] += 1
                log.debug("a packet to %s:%d was not sent: %s", *to.address, error)

    def datagram_received(self, data: bytes, addr: tuple[Any, ...]) -> None:
        """A packet from the network: taken if a member sealed it, else counted."""
        self.frames.traffic.received += len(data)
        now, address = self._clock.monotonic(), (addr[0], addr[1])
        try:
            opened = self.sealer.open_untrusted(data)
            self.membership.receive_untrusted(bytes(opened.body), Peer(opened.sender, opened.epoch, address), now)
        except Dropped as dropped:
            if dropped.older is not None:
                sender = Peer(dropped.older.sender, dropped.older.epoch, address)
                self.membership.claims.refusals.tell(sender, now, dropped.older.newest)
            elif dropped.reason in ("no certificate", "bad signature"):  # of a new key, perhaps
                task = f"{ACQUAINTS}{dropped.sender}"
                if _may_acquaint(task, self._tasks):
                    self._begin(self._sync(address, dropped.sender), task)
                return
            else:
                return
        except ProtocolError as error:
            self.sealer.drops["malformed"] += 1
            log.debug("a packet of %s was malformed: %s", opened.sender, error)
        self.step()

    def error_received(self, exc: Exception) -> None:
        self.sealer.drops["not sent"] += 1
        log.debug("UDP: %s", exc)

    def _begin(self, work: Any, name: str | None = None) -> None:
        if len(self._tasks) >= MAX_ASKED:
            work.close()
            return
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # Requests of ours

    async def request(self, name: str, verb: str, args: Mapping[str, Any], timeout_s: float = TIMEOUT_S) -> Any:
        """The result of `verb` at member `name`. Raises `RequestError`."""
        member = self.membership.roster.get(name)
        if member is None or not member.present:
            state = "unknown" if member is None else member.state.name.lower()
            raise RequestError(f"{name}: expected a member that is alive, got one that is {state}")
        return await self.ask(member.address, verb, args, timeout_s, expected=name)

    async def ask(
        self, address: Address, verb: str, args: Mapping[str, Any], timeout_s: float = TIMEOUT_S, expected: str = ""
    ) -> Any:
        """The result of `verb` at `address`; `expected`: the name that must answer, empty for any."""
        where = expected or f"{address[0]}:{address[1]}"
        try:
            async with asyncio.timeout(timeout_s):
                sender, answer = await self._converse(address, verb, args, expected)
        except TimeoutError:
            raise UnansweredError(f"{where}: no answer to {verb} within {timeout_s:g} s") from None
        except (OSError, EOFError) as error:
            raise UnansweredError(f"{where}: {verb}: the connection failed: {error!r}") from error
        except (Dropped, ProtocolError, PayloadError) as error:
            raise RequestError(f"{where}: {verb}: the answer was not accepted: {error}") from error
        if answer.get("ok") is not True:
            raise RequestError(f"{where}: {verb}: {show(answer.get('error'), 1_000)}")
        if not expected:
            self.membership.met[address] = sender
        return answer.get("result")

    async def _converse(
        self, address: Address, verb: str, args: Mapping[str, Any], expected: str
    ) -> tuple[str, Mapping[str, Any]]:
        body, us = pack(dict(args)), self.membership.name
        most = largest(verb) - 512
        if len(body) > most:
            raise RequestError(f"{verb}: expected arguments of at most {most} bytes, got {len(body)}")
        reader, writer, greeting = await self._greeted(address, self.membership.roster.get(expected), expected)
        try:
            token = self.sealer.new_token()
            self.frames.write(writer, pack([token, verb]), Frame(greeting, expected or ANYBODY, "head"))
            self.frames.write(writer, pack([token]) + body, Frame(greeting, expected or ANYBODY, "body"))
            await writer.drain()
            head = await self.frames.read(reader, MAX_DATAGRAM, Frame(greeting, us, "answer head"))
            if head.body != pack([token]) or (expected and head.sender != expected):
                raise ProtocolError(f"expected the answer of {expected or 'a member'} to this request, got another")
            size = await self.frames.length(reader, largest(verb))
            async with self._answers.of(head.sender, size):
                answer = await self.frames.opened(reader, size, Frame(greeting, us, "answer body"))
                return answer.sender, map_untrusted(answer.body)
        finally:
            writer.close()

    async def _greeted(
        self, address: Address, known: Member | None, expected: str
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter, bytes]:
        """A connection and its greeting. A member that has started anew does not greet the hello for the start of it
        that is known: it is asked again, by its address."""
        reader, writer = await asyncio.open_connection(*address, limit=BUFFER_BYTES)
        try:
            self.frames.write(
                writer, b"", hello_to(known.peer) if known else hello_at(writer.get_extra_info("peername"), expected)
            )
            hello = refusal_of(self.membership.name, self.membership.epoch, self.sealer.sealed)
            greeting = await reader.readexactly(GREETING_BYTES)
            if greeting == REFUSED:
                await take_refusal(self.frames, self.membership, reader, hello, self._clock.monotonic())
            return reader, writer, greeting
        except BaseException as error:
            writer.close()
            if known is None or not isinstance(error, EOFError):
                raise
        return await self._greeted(address, None, expected)

    def meet(self, address: Address) -> None:
        """Exchanges tables with the member at a seed's address. `Membership.met` has it once it answered."""
        self._begin(self._sync(address, ""))

    async def _sync(self, address: Address, name: str) -> None:
        try:
            table = self.membership.table()
            answer = await self.ask(address, SYNC, {"table": table}, expected=name)
            if not isinstance(answer, bytes):
                raise ProtocolError(f"expected a table, got {show(answer)}")
            self.membership.merge_untrusted(answer, self._clock.monotonic())
        except EdgertError as error:
            log.debug("no exchange of tables: %s", error)
        self.step()

    async def _stream_ping(self, address: Address, target: str, sequence: int) -> None:
        limit = self.membership.parameters.probe_interval_s * self.membership.health.multiplier
        with contextlib.suppress(RequestError):
            epoch = await self.ask(address, PING, {}, limit, expected=target)
            if type(epoch) is int:
                self.membership.stream_acknowledged(target, epoch, sequence, self._clock.monotonic())
                self.step()

    # Requests of others

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        greeting = secrets.token_bytes(GREETING_BYTES)
        try:
            head = await self._first(reader, writer, greeting)
            requests = self._served.requests
            if requests.total() >= MAX_SERVED or requests[head.sender] >= MAX_OF_MEMBER:
                self.refused_connections += 1
                return
            requests[head.sender] += 1
            try:
                await self._serve_member(reader, writer, greeting, head)
            finally:
                requests.subtract([head.sender])
                if not requests[head.sender]:
                    del requests[head.sender]
        except (OSError, EOFError, TimeoutError, EdgertError) as error:
            log.debug("a connection ended without an answer: %r", error)
        finally:
            writer.close()

    async def _first(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, greeting: bytes) -> Opened:
        """The head of a request. Who cannot make one for this greeting holds a place for a short time only."""
        host = (writer.get_extra_info("peername") or ("",))[0]
        gone = self.waiting.enter(writer, host)
        if gone is not None:
            self.refused_connections += 1
            gone.transport.abort()
        try:
            async with asyncio.timeout(self.first_s):
                own, here = self.membership.roster.own.peer, writer.get_extra_info("sockname")
                try:
                    hello = await self.frames.read(
                        reader, MAX_DATAGRAM, hello_to(own), hello_at(here), hello_at(own.address)
                    )
                except Dropped as dropped:
                    if dropped.older is not None:
                        refuse(self.frames, self.membership, writer, dropped.older)
                    raise
                if hello.to == ANYBODY:
                    await asyncio.shield(self.sealer.hellos.keep(hello.sender, hello.epoch, hello.counter))
                writer.write(greeting)
                self.frames.traffic.sent += len(greeting)
                return await self.frames.read(
                    reader, MAX_DATAGRAM, *self.frames.places(self.membership.name, greeting, "head")
                )
        except (OSError, EOFError, TimeoutError):
            self.sealer.drops["no request"] += 1
            raise
        finally:
            self.waiting.leave(writer)

    async def _serve_member(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, greeting: bytes, head: Opened
    ) -> None:
        token, verb = token_and_verb_untrusted(head)
        prefix = pack([token])
        async with asyncio.timeout(TIMEOUT_S):
            size = await self.frames.length(reader, largest(verb))
        async with self._served.of(head.sender, size):
            async with asyncio.timeout(TIMEOUT_S):
                body = await self.frames.opened(
                    reader, size, *self.frames.places(self.membership.name, greeting, "body")
                )
            if (body.sender, body.to) != (head.sender, head.to) or bytes(body.body[: len(prefix)]) != prefix:
                raise ProtocolError("expected the arguments of the same request, got others")
            answer = await self._answer(head.sender, verb, body.body[len(prefix) :])
            del body
        async with self._served.of(head.sender, len(answer)), asyncio.timeout(TIMEOUT_S):
            self.frames.write(writer, prefix, Frame(greeting, head.sender, "answer head"))
            self.frames.write(writer, answer, Frame(greeting, head.sender, "answer body"))
            await writer.drain()

    async def _answer(self, sender: str, verb: str, arguments: bytes | memoryview) -> bytes:
        result: dict[str, Any] = {"ok": False}
        handler = self.handlers.get(verb)
        try:
            if handler is None:
                raise RequestError(f"expected one of {', '.join(sorted(self.handlers))}, got {show(verb)}")
            result |= {"ok": True, "result": await handler(sender, map_untrusted(arguments))}
        except EdgertError as error:
            result |= {"error": str(error)}
        except Exception as error:
            log.exception("the request %s of %s could not be carried out", show(verb), sender)
            result |= {"error": f"an unforeseen fault: {error!r}"}
        packed = pack(result)
        if len(packed) > largest(verb) - 512:
            packed = pack({"ok": False, "error": f"the result has {len(packed)} bytes: too many"})
        return packed

    async def _on_sync(self, sender: str, args: Mapping[str, Any]) -> bytes:
        table = args.get("table")
        if not isinstance(table, bytes):
            raise RequestError(f"table: expected bytes, got {show(table)}")
        answer = self.membership.answer_table_untrusted(table, self._clock.monotonic())
        self.step()
        return answer

    async def _on_ping(self, sender: str, args: Mapping[str, Any]) -> int:
        return self.membership.epoch


def _may_acquaint(task: str, tasks: set[asyncio.Task[None]]) -> bool:
    """True where no task of this name runs, and few others that ask for certificates."""
    running = [one.get_name() for one in tasks]
    return task not in running and sum(one.startswith(ACQUAINTS) for one in running) < MAX_ACQUAINTED


def _close(*ends: asyncio.DatagramTransport | asyncio.Server | None) -> None:
    for end in ends:
        if end is not None:
            end.close()
