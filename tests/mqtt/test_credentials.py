"""TLS towards brokers."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from edgert.core.errors import EdgertError
from edgert.core.settings.connection import Connection
from edgert.core.settings.gateway import Sensors
from edgert.core.system_clock import SystemClock
from edgert.mqtt.clients.credentials import client_context, read_mac_keys
from edgert.mqtt.clients.paho_client import paho_client
from edgert.mqtt.clients.transport import Handlers
from edgert.mqtt.packets.packets import V5
from gateway.ingest.client import sensors_client
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


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"username": "u", "password_file": "/none"}, "password_file /none: No such file"),
        ({"tls": True, "ca_file": "/none"}, "ca_file /none: No such file"),
    ],
)
def test_a_file_that_cannot_be_read_is_named_with_its_section_and_setting(settings: dict[str, Any], named: str) -> None:
    with pytest.raises(EdgertError, match=f"^sensors.{named}"):
        sensors_client(Sensors(**settings), "c", Handlers(), SystemClock())
    with pytest.raises(EdgertError, match=f"^central.{named}"):
        paho_client(Connection(**settings), "c", V5, None)


def test_a_file_of_mac_keys_is_named_with_its_section_and_setting(tmp_path: Path) -> None:
    file = tmp_path / "mac.key"
    file.write_text("no key\n")
    for path, why in (("/none", "No such file"), (str(file), "line 1: expected base64")):
        with pytest.raises(EdgertError, match=rf"^collector\.mac_key_file {path}.*{why}"):
            read_mac_keys(path, "collector")
