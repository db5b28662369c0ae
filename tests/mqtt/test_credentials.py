"""TLS towards brokers."""

from __future__ import annotations

import ssl
from collections.abc import Callable

import pytest

from edgert.mqtt.clients.credentials import client_context
from tests.brokers import Certificates


def handshake(client: ssl.SSLContext, server: ssl.SSLContext) -> str | None:
    """In memory; returns the version that both agree on."""
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    ours = client.wrap_bio(to_client, to_server, server_hostname="localhost")
    theirs = server.wrap_bio(to_server, to_client, server_side=True)
    ends: list[Callable[[], None]] = [ours.do_handshake, theirs.do_handshake] * 8
    for end in ends:
        try:
            end()
        except ssl.SSLWantReadError:
            pass
    return ours.version()


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1])
def test_a_broker_that_speaks_less_than_tls_1_2_is_refused(certificates: Certificates, version: ssl.TLSVersion) -> None:
    client = client_context(certificates.path("ca.crt"), "", "")
    assert client.minimum_version >= ssl.TLSVersion.TLSv1_2
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.set_ciphers("ALL:@SECLEVEL=0")
    with pytest.warns(DeprecationWarning, match="TLSVersion"):
        server.minimum_version = server.maximum_version = version
    server.load_cert_chain(certificates.path("server.crt"), certificates.path("server.key"))
    with pytest.raises(ssl.SSLError):
        handshake(client, server)


def test_a_broker_that_speaks_tls_1_2_is_taken(certificates: Certificates) -> None:
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.maximum_version = ssl.TLSVersion.TLSv1_2
    server.load_cert_chain(certificates.path("server.crt"), certificates.path("server.key"))
    assert handshake(client_context(certificates.path("ca.crt"), "", ""), server) == "TLSv1.2"
