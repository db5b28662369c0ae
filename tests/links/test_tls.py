"""The door between gateways: who may come in, and what those who may not can do."""

from __future__ import annotations

import asyncio
import logging
import ssl
from functools import partial
from pathlib import Path

import pytest

from edgert.core.errors import ProtocolError
from edgert.links import tls
from edgert.links.messages import VERSION, Hello, Ping, encode
from edgert.links.tls import (
    Credentials,
    Identity,
    LinkError,
    Listener,
    TlsLink,
    certificate_identity_untrusted,
    connect,
    require_loopback,
    tls_context,
)
from tests.links.certificates import FLEET, Authority
from tests.waiting import in_loop, until

A, B = Identity(FLEET, "a"), Identity(FLEET, "b")
HOST = "127.0.0.1"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("tls") / "ca")


@pytest.fixture(scope="module")
def b(authority: Authority) -> Credentials:
    return authority.issue("b")


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tls, "HANDSHAKE_S", 0.3)


class Called:
    """A listener of gateway b, and the links that came of it."""

    def __init__(self, credentials: Credentials | None, ours: Identity = B) -> None:
        self.links: list[TlsLink] = []
        self.listener = Listener(
            ours, tls_context(credentials, server=True) if credentials else None, self.links.append
        )
        self.port = 0

    async def __aenter__(self) -> Called:
        self.port = await self.listener.start(HOST, 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.listener.stop()
        for link in self.links:
            link.close()

    async def call(self, credentials: Credentials | None, ours: Identity = A, peer: str = "b") -> TlsLink:
        context = tls_context(credentials, server=False) if credentials else None
        return await connect(HOST, self.port, peer, ours, context)


@in_loop
async def test_both_know_each_other_by_certificate_and_speak_tls_1_3(authority: Authority, b: Credentials) -> None:
    async with Called(b) as called:
        link = await called.call(authority.issue("a"))
        await until(lambda: called.links, "the other end")
        assert (link.peer, called.links[0].peer) == ("b", "a")
        assert link.transport is not None
        assert link.transport.get_extra_info("ssl_object").version() == "TLSv1.3"
        got = bytearray()
        called.links[0].begin(got.extend, lambda: None)
        link.send(b"x" * 1_000_000)
        await until(lambda: len(got) == 1_000_000, "the bytes")
        link.close()
        await until(lambda: called.links[0].closed, "the end")


@pytest.mark.parametrize("form", ["common name", "another gateway", "another fleet", "stranger", "none"])
@in_loop
async def test_only_a_certificate_of_the_fleet_for_that_gateway_is_let_in(
    form: str, authority: Authority, b: Credentials, tmp_path: Path
) -> None:
    if form == "common name":
        theirs = authority.issue("cn", uri=None, common_name="a")
    elif form == "another gateway":
        theirs = authority.issue("c")
    elif form == "another fleet":
        theirs = authority.issue("f", uri="edgert://village/a")
    else:
        stranger = Authority(tmp_path / "other").issue("a")
        theirs = Credentials(stranger.certificate, stranger.key, b.ca)
    async with Called(b) as called:
        if form == "common name":
            (await called.call(theirs)).close()
            return
        if form == "none":
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.check_hostname = False
            context.load_verify_locations(b.ca)
            with pytest.raises((LinkError, ProtocolError)):
                await connect(HOST, called.port, "b", A, context)
        else:
            with pytest.raises((LinkError, ProtocolError)):
                await called.call(theirs)
        await until(lambda: called.listener.refused, "the refusal")
        assert not called.links


@in_loop
async def test_a_server_that_is_somebody_else_is_not_talked_to(authority: Authority, b: Credentials) -> None:
    ours = authority.issue("a2", uri=f"edgert://{FLEET}/a")
    async with Called(b) as called:
        with pytest.raises(ProtocolError, match="expected c, got b"):
            await called.call(ours, peer="c")
    async with Called(b, Identity(FLEET, "c")) as called:
        with pytest.raises(ProtocolError, match="certificate"):
            await called.call(ours, peer="c")


@in_loop
async def test_older_tls_is_refused(authority: Authority, b: Credentials) -> None:
    async with Called(b) as called:
        credentials = authority.issue("a3", uri=f"edgert://{FLEET}/a")
        context = tls_context(credentials, server=False)
        context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_2
        with pytest.raises(LinkError):
            await connect(HOST, called.port, "b", A, context)


@pytest.mark.parametrize("host", ["0.0.0.0", "192.0.2.1", "::", "gateway.example", ""])
def test_plain_tcp_is_for_loopback_only(host: str) -> None:
    with pytest.raises(LinkError, match="expected a loopback address"):
        require_loopback(host)


@in_loop
async def test_plain_tcp_is_refused_beyond_loopback_by_both_sides() -> None:
    with pytest.raises(LinkError, match="expected a loopback address"):
        await connect("192.0.2.1", 1, "b", A, None)
    with pytest.raises(LinkError, match="expected a loopback address"):
        await Listener(B, None, lambda link: None).start("0.0.0.0", 0)


@pytest.mark.parametrize(
    ("hello", "reason"),
    [
        (Hello(VERSION + 1, FLEET, "a"), "version"),
        (Hello(VERSION, "village", "a"), "fleet"),
        (Hello(VERSION, FLEET, "b"), "another gateway"),
        (Ping(1), "expected a Hello"),
    ],
)
@in_loop
async def test_a_wrong_first_message_is_refused(hello: Hello | Ping, reason: str) -> None:
    async with Called(None) as called:
        reader, writer = await asyncio.open_connection(HOST, called.port)
        writer.write(encode(hello))
        said = await reader.read()
        assert reason.encode() in said or isinstance(hello, Ping)
        assert called.listener.refused == 1
        writer.close()


@pytest.mark.parametrize("secure", [False, True])
@in_loop
async def test_a_connection_that_says_nothing_is_dropped_and_holds_up_nobody(
    secure: bool, short: None, authority: Authority, b: Credentials
) -> None:
    credentials = authority.issue(f"a-{secure}", uri=f"edgert://{FLEET}/a") if secure else None
    async with Called(b if secure else None) as called:
        silent = [await asyncio.open_connection(HOST, called.port) for _ in range(2 * tls.MOST_HANDSHAKES)]
        link = await called.call(credentials)
        assert link.peer == "b"
        await until(lambda: called.listener.refused == len(silent), "all of them dropped")
        await until(lambda: not called.listener.handshakes, "none of them held")
        for reader, writer in silent:
            assert await reader.read() == b""
            writer.close()
        link.close()


@in_loop
async def test_rubbish_before_tls_and_before_the_hello_is_dropped(b: Credentials) -> None:
    for credentials in (b, None):
        async with Called(credentials) as called:
            _, writer = await asyncio.open_connection(HOST, called.port)
            writer.write(b"\xff" * 100_000)
            await until(partial(getattr, called.listener, "refused"), "the refusal")
            writer.close()


def test_files_that_are_no_use_are_named(authority: Authority, b: Credentials) -> None:
    with pytest.raises(
        LinkError, match=r"^links\.certificate nowhere\.pem, links\.key .*: expected certificate, key and CA"
    ):
        tls_context(Credentials("nowhere.pem", b.key, b.ca), server=True)
    with pytest.raises(LinkError, match="expected certificate, key and CA as PEM files"):
        tls_context(Credentials(b.certificate, authority.issue("other").key, b.ca), server=True)
    key = Path(authority.issue("open").key)
    key.chmod(0o644)
    with pytest.raises(LinkError, match=r"^links\.key .*not everybody may read"):
        tls_context(Credentials(b.certificate, str(key), b.ca), server=True)


@pytest.mark.parametrize(
    "certificate",
    [None, {}, {"subjectAltName": (("URI", "edgert://city/"),)}, {"subject": ((("commonName", "a b"),),)}],
)
def test_a_certificate_without_a_gateway_is_refused(certificate: dict[str, object] | None) -> None:
    with pytest.raises(ProtocolError, match="expected a certificate"):
        certificate_identity_untrusted(certificate, FLEET)


@in_loop
async def test_refusals_without_end_fill_no_log(caplog: pytest.LogCaptureFixture) -> None:
    listener = Listener(B, None, lambda link: None)
    port = await listener.start(HOST, 0)
    with caplog.at_level(logging.INFO):
        for number in range(1, 21):
            _, writer = await asyncio.open_connection(HOST, port)
            writer.write(b"GET / HTTP/1.1\r\n\r\n")
            await until(lambda refused=number: listener.refused == refused, "the refusal")  # type: ignore[misc]
            writer.close()
    assert caplog.text.count("became no link: ") == 1
    await listener.stop()
