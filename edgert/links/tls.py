"""The door between two gateways: TCP with TLS 1.3, both sides' certificates checked against the fleet's CA, on asyncio
(uvloop in production). Plain TCP is for loopback addresses only: tests, and the demo.

A certificate names its gateway in a subject alternative name `URI:edgert://<fleet>/<gateway>`, or in its common name.
Addresses are not checked: boards change them. Both sides begin with `Hello`, whose names have to be the certificate's.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
import os
import socket
import ssl
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

from edgert.core.errors import EdgertError, ProtocolError, show
from edgert.core.ids import GATEWAY_NAME
from edgert.core.log_sampling import LogSampling
from edgert.links.local_address import bound_segments
from edgert.links.messages import MAX_HELLO, MAX_TEXT, VERSION, Hello, LinkDecoder, Refuse, encode
from edgert.links.pending import PendingConnections

log = logging.getLogger(__name__)

HANDSHAKE_S: Final = 10.0
"""TCP, TLS and `Hello` together. A peer that needs longer is dropped."""
MOST_HANDSHAKES: Final = 32
"""Connections that have not said who they are. One more drops the oldest of the address that has most of them."""
ACCEPT_AGAIN_S: Final = 0.2
WRITE_BYTES: Final = 256 * 1024
"""Bytes of backlog above which a link is not `writable`."""
_URI: Final = "edgert://"


class LinkError(EdgertError):
    """A link cannot be made; the message says what was expected and what came."""


@dataclass(frozen=True, slots=True)
class Identity:
    """The fleet and the id of a gateway."""

    fleet: str
    gateway: str


@dataclass(frozen=True, slots=True)
class Credentials:
    """Paths of PEM files: our certificate (with those between it and the CA), its private key, the fleet's CA, and
    what is revoked (empty: nothing is looked up)."""

    certificate: str
    key: str
    ca: str
    crl: str = ""


def tls_context(credentials: Credentials, *, server: bool) -> ssl.SSLContext:
    """Raises `LinkError` naming the setting and its file, which is missing, damaged, or, for the key, readable by
    everybody."""
    try:
        if os.stat(credentials.key).st_mode & stat.S_IROTH:
            raise LinkError(
                f"links.key {credentials.key}: expected a private key that not everybody may read (chmod 640)"
            )
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if server else ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.check_hostname = False  # the name in the certificate is the gateway's, see `Identity`
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(credentials.ca)
        context.load_cert_chain(credentials.certificate, credentials.key, password=_no_password)
        if credentials.crl:
            context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF
            take_revoked(context, credentials.crl)
    except (OSError, ValueError) as error:
        files = f"links.certificate {credentials.certificate}, links.key {credentials.key}, links.ca {credentials.ca}"
        raise LinkError(f"{files}: expected certificate, key and CA as PEM files: {error}") from error
    if server:
        context.num_tickets = 0  # a session is never resumed
    return context


def take_revoked(context: ssl.SSLContext, crl: str) -> None:
    """Adds a list of revoked certificates: of several of one CA, OpenSSL goes by the latest. It counts for handshakes
    from now on. Raises `LinkError`."""
    try:
        context.load_verify_locations(crl)
    except (OSError, ValueError) as error:
        raise LinkError(f"links.crl {crl}: expected a list of revoked certificates (PEM): {error}") from error


def own_fault(server: ssl.SSLContext, client: ssl.SSLContext) -> str:
    """The reason why a gateway with the same CA would refuse our certificate; empty if it would not.

    A gateway that refuses a certificate only closes the connection, as asyncio does not send TLS alerts."""
    try:
        _handshake(server, client)
    except ssl.SSLError as error:
        return str(error)
    return ""


def _handshake(server: ssl.SSLContext, client: ssl.SSLContext) -> ssl.SSLObject:
    """The client's end, after a handshake in memory. Raises `ssl.SSLError`."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    caller = client.wrap_bio(to_client, to_server)
    called = server.wrap_bio(to_server, to_client, server_side=True)
    for end in (caller, called, caller):  # the last has seen the certificate
        with contextlib.suppress(ssl.SSLWantReadError):
            end.do_handshake()
    return caller


def validity(certificate: str, key: str) -> tuple[float, float]:
    """Begin and end of a certificate, in seconds since 1970: told by the TLS library to a client that trusts this
    certificate alone. Raises `OSError`, which an `ssl.SSLCertVerificationError` is where it does not hold now."""
    server, client = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    server.load_cert_chain(certificate, key, password=_no_password)
    client.check_hostname = False
    client.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    client.load_verify_locations(certificate)
    shown: Any = _handshake(server, client).getpeercert()
    return ssl.cert_time_to_seconds(shown["notBefore"]), ssl.cert_time_to_seconds(shown["notAfter"])


def take_renewed(context: ssl.SSLContext, credentials: Credentials) -> None:
    """Shows a certificate that was replaced, in handshakes from now on. Raises `LinkError`."""
    try:
        context.load_cert_chain(credentials.certificate, credentials.key, password=_no_password)
    except (OSError, ValueError) as error:
        files = f"links.certificate {credentials.certificate}, links.key {credentials.key}"
        raise LinkError(f"{files}: expected a certificate and its key as PEM files: {error}") from error


def _no_password() -> str:
    raise ValueError("expected a private key without a password")


def certificate_identity_untrusted(certificate: Mapping[str, Any] | None, fleet: str) -> Identity:
    """The gateway that a peer's certificate (as `getpeercert` gives it) was made for. Raises `ProtocolError`."""
    certificate = certificate or {}
    for kind, value in certificate.get("subjectAltName", ()):
        if kind == "URI" and value.startswith(_URI):
            of_fleet, _, gateway = value.removeprefix(_URI).partition("/")
            return _identity(of_fleet, gateway)
    for relative in certificate.get("subject", ()):
        for name, value in relative:
            if name == "commonName":
                return _identity(fleet, value)
    raise ProtocolError(f"expected a certificate with URI:{_URI}<fleet>/<gateway> or a common name, got neither")


def _identity(fleet: str, gateway: str) -> Identity:
    if not (GATEWAY_NAME.fullmatch(fleet) and GATEWAY_NAME.fullmatch(gateway)):
        raise ProtocolError(f"expected a certificate with the names of a fleet and a gateway, got {show(gateway)}")
    return Identity(fleet, gateway)


def require_loopback(host: str) -> None:
    """Raises `LinkError` for any other address: without certificates anybody on the network could be any gateway."""
    with contextlib.suppress(ValueError):
        if ipaddress.ip_address(host).is_loopback:
            return
    raise LinkError(
        f"expected a loopback address (127.0.0.1 or ::1) for links without TLS, got {show(host)}; "
        "set links.certificate, links.key and links.ca"
    )


class TlsLink(asyncio.Protocol):
    """A connection to one gateway, with the methods of `UnixLink`. Belongs to the loop's thread."""

    def __init__(self) -> None:
        self.peer = ""
        """The gateway at the other end, once `introduce` has returned."""
        self.closed = False
        self.writable = True
        """False while the peer takes less than it is sent."""
        self.address = ""
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.transport: asyncio.Transport | None = None
        self._decoder = LinkDecoder(MAX_HELLO)
        self._first: asyncio.Future[Hello] = asyncio.get_running_loop().create_future()
        self._on_data: Callable[[bytes], None] | None = None
        self._on_writable: Callable[[], None] = lambda: None

    # -- the face

    @property
    def backlog_bytes(self) -> int:
        return 0 if self.transport is None else self.transport.get_write_buffer_size()

    def send(self, data: bytes) -> None:
        if self.transport is not None and not self.closed:
            self.transport.write(data)

    def close(self) -> None:
        self.closed = True
        if self.transport is not None:
            self.transport.abort()

    def begin(self, on_data: Callable[[bytes], None], on_writable: Callable[[], None]) -> None:
        """Bytes of the peer go to `on_data` from now on; `on_writable` is called when `writable` is true again."""
        self._on_data, self._on_writable = on_data, on_writable
        if rest := self._decoder.rest():
            on_data(rest)
        if self.transport is not None and not self.closed:
            self.transport.resume_reading()

    # -- who is there

    async def introduce(self, ours: Identity, expected: str | None) -> None:
        """Says who we are and learns who the peer is. `expected`: the gateway that was called; None: we were called,
        and speak second. Raises `ProtocolError` where the peer is somebody else, or of another fleet or version."""
        hello = encode(Hello(VERSION, ours.fleet, ours.gateway))
        if expected is not None:
            self.send(hello)
        first = await self._first
        self._check(first, ours, expected)
        self.peer = first.gateway
        if expected is None:
            self.send(hello)

    def _check(self, first: Hello, ours: Identity, expected: str | None) -> None:
        if first.version != VERSION:
            raise ProtocolError(f"expected version {VERSION} of the link protocol, got {first.version}")
        theirs = Identity(first.fleet, first.gateway)
        if self.transport is not None and self.transport.get_extra_info("sslcontext") is not None:
            proven = certificate_identity_untrusted(self.transport.get_extra_info("peercert"), ours.fleet)
            if proven != theirs:
                raise ProtocolError(f"expected the {proven} of its certificate in the peer's hello, got {theirs}")
        if theirs.fleet != ours.fleet:
            raise ProtocolError(f"expected a gateway of fleet {ours.fleet}, got one of fleet {theirs.fleet}")
        if theirs.gateway == ours.gateway or expected not in (None, theirs.gateway):
            raise ProtocolError(f"expected {expected or 'another gateway'}, got {theirs.gateway}")

    def refuse(self, why: str) -> None:
        """Tells the peer why, and closes."""
        self.send(encode(Refuse(why[:MAX_TEXT])))
        self.closed = True
        if self.transport is not None:
            self.transport.close()
            asyncio.get_running_loop().call_later(1.0, self.transport.abort)

    # -- asyncio's

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.transport.set_write_buffer_limits(WRITE_BYTES)
        self.address = str((transport.get_extra_info("peername") or ("",))[0])

    def data_received(self, data: bytes) -> None:
        if self.closed:
            return
        if self._on_data is not None:
            self._on_data(data)
            return
        try:
            messages = self._decoder.feed_untrusted(data, most=0 if self._first.done() else 1)
            for first in messages:
                if isinstance(first, Refuse):
                    raise ProtocolError(f"the peer closes the connection: {first.text}")
                if not isinstance(first, Hello):
                    raise ProtocolError(f"expected a Hello as first message, got a {type(first).__name__}")
                self._first.set_result(first)
        except ProtocolError as error:
            self._fail(error)
            return
        if self._first.done() and self.transport is not None:
            self.transport.pause_reading()  # until `begin`: what came in this read waits in the decoder

    def _fail(self, error: Exception) -> None:
        if not self._first.done():
            self._first.set_exception(error)
        self.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed = True
        self._fail(LinkError(f"the connection was closed: {exc or 'by the peer'}"))
        if self._first.done() and not self._first.cancelled():
            self._first.exception()  # retrieved, or asyncio would log it where no task waits for it
        if not self.ended.done():
            self.ended.set_result(None)

    def pause_writing(self) -> None:
        self.writable = False

    def resume_writing(self) -> None:
        self.writable = True
        self._on_writable()


async def connect(host: str, port: int, peer: str, ours: Identity, context: ssl.SSLContext | None) -> TlsLink:
    """A link to the gateway `peer`. `context` None: plain TCP. Raises `LinkError` or `ProtocolError`."""
    if context is None:
        require_loopback(host)
    link = TlsLink()
    try:
        async with asyncio.timeout(HANDSHAKE_S):
            await asyncio.get_running_loop().create_connection(lambda: link, host, port, ssl=context)
            await link.introduce(ours, peer)
    except (OSError, ValueError) as error:  # ssl's errors and TimeoutError are OSErrors
        link.close()
        raise LinkError(f"cannot link to {peer} at {host}:{port}: {str(error) or 'no answer in time'}") from error
    except BaseException:
        link.close()
        raise
    return link


class Listener:
    """Takes connections of other gateways."""

    def __init__(self, ours: Identity, context: ssl.SSLContext | None, on_link: Callable[[TlsLink], None]) -> None:
        """`on_link` is called with links to identified peers; it calls `begin` or `refuse`. `context` None: plain
        TCP."""
        self._ours, self._context, self._on_link = ours, context, on_link
        self._socket: socket.socket | None = None
        self._accepting: asyncio.Task[None] | None = None
        self._handshakes = PendingConnections[asyncio.Task[None]](MOST_HANDSHAKES)
        self.refused = 0
        """Connections that did not become links."""
        self.refusal = ""
        """Address and reason of the last of them that failed by itself."""
        self._refusals = LogSampling()

    async def start(self, host: str, port: int) -> int:
        """The port it listens on. Raises `LinkError`."""
        if self._context is None:
            require_loopback(host)
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            self._socket = socket.create_server((host, port), family=family, backlog=MOST_HANDSHAKES)
            bound_segments(self._socket, host)
        except OSError as error:
            raise LinkError(f"cannot listen on {host}:{port} for links of other gateways: {error}") from error
        self._socket.setblocking(False)
        self._accepting = asyncio.get_running_loop().create_task(self._accept(self._socket), name="listen for links")
        bound: int = self._socket.getsockname()[1]
        return bound

    async def stop(self) -> None:
        tasks = [*self._handshakes, *([self._accepting] if self._accepting else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._socket is not None:
            self._socket.close()
        self._socket = self._accepting = None

    @property
    def handshakes(self) -> int:
        """Connections that have not said who they are yet."""
        return len(self._handshakes)

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                accepted, address = await loop.sock_accept(listening)
            except OSError as error:  # the peer has gone again, or there are no file descriptors left
                log.warning("a connection of another gateway could not be taken: %s", error)
                await asyncio.sleep(ACCEPT_AGAIN_S)
                continue
            task = loop.create_task(self._greet(accepted, address[0]))
            gone = self._handshakes.enter(task, address[0])
            task.add_done_callback(self._handshakes.leave)
            if gone is not None:
                gone.cancel()
                self.refused += 1

    def _tell_refusal(self, kind: str) -> None:
        """Logs the first refusal of a kind, then their number once a minute: anybody can be refused without end."""
        now = asyncio.get_running_loop().time()
        if first := self._refusals.note(kind, 1, self.refusal, now):
            log.info("a connection of another gateway became no link: %s", first)
        for _, count, seconds, newest in self._refusals.due(now):
            log.info("%d more connections became no links in %.0f s; the newest: %s", count, seconds, newest)

    async def _greet(self, accepted: socket.socket, address: str) -> None:
        link = TlsLink()
        handshake_s = HANDSHAKE_S if self._context else None
        try:
            async with asyncio.timeout(HANDSHAKE_S):
                await asyncio.get_running_loop().connect_accepted_socket(
                    lambda: link, accepted, ssl=self._context, ssl_handshake_timeout=handshake_s
                )
                await link.introduce(self._ours, None)
        except (ProtocolError, LinkError, OSError, ValueError) as error:
            self.refused += 1
            self.refusal = f"{address}: {str(error) or 'no hello in time'}"
            self._tell_refusal(type(error).__name__)
            if isinstance(error, ProtocolError) and not link.closed:
                link.refuse(str(error))
            else:
                link.close()
        except asyncio.CancelledError:
            link.close()
            raise
        else:
            self._on_link(link)
