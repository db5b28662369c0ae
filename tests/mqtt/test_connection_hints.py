"""A connection that does not come about says what to do."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from benchmarks.ports import free_port
from edgert.core.config import parse
from edgert.core.errors import DocumentError, EdgertError
from edgert.core.settings.connection import Connection
from edgert.core.settings.gateway import GatewaySettings
from edgert.mqtt.address import split_broker
from edgert.mqtt.clients.client_types import BrokerAddress, Handlers, Tls
from edgert.mqtt.clients.connection_hints import hint
from edgert.mqtt.clients.control_plane import ControlConnection
from edgert.mqtt.clients.transport import MqttClient
from edgert.mqtt.packets.reasons import sentence
from edgert.mqtt.session.options import SessionOptions
from tests.brokers import Broker, Certificates
from tests.waiting import in_loop, until

TLS_TO_PLAIN = "does this port speak TLS?"
PLAIN_TO_TLS = "; it hung up before it answered: if this is the broker's TLS port, set tls = true"


@pytest.mark.parametrize(
    ("error", "tls", "says"),
    [
        ("[SSL: WRONG_VERSION_NUMBER] wrong version number", True, TLS_TO_PLAIN),
        ("Connection reset by peer", True, TLS_TO_PLAIN),
        ("connection lost: closed by the broker", False, PLAIN_TO_TLS),
        ("[SSL: CERTIFICATE_VERIFY_FAILED] self-signed", True, "set ca_file"),
        ("[SSL: CERTIFICATE_VERIFY_FAILED] certificate is not yet valid", True, "set the clock, or renew it"),
        ("[SSL: CERTIFICATE_VERIFY_FAILED] certificate has expired", True, "set the clock, or renew it"),
        ("tlsv13 alert certificate required", True, "set cert_file and key_file"),
    ],
)
def test_what_to_do_stands_behind_the_error(error: str, tls: bool, says: str) -> None:
    assert says in hint(error, tls=tls, port=1883)


def test_a_port_where_nobody_listens_gets_no_advice_about_tls() -> None:
    assert hint("Connection refused", tls=True, port=1883, accepted=False) == ""
    assert hint("no answer in time", tls=False, port=1883) == ""


@pytest.mark.parametrize("code", [4, 5, 0x86, 0x87])
def test_not_authorized_names_user_name_and_password_file(code: int) -> None:
    assert re.search(
        r"are username and password_file .*set, and (right|as the broker has them)\?", sentence(code, "edgert-pi")
    )


@pytest.mark.parametrize(
    ("host", "says"),
    [
        ("mqtt://broker.local:1883", 'a host without mqtt://, such as host = "broker.local"; the port stands in port'),
        ("mqtts://u@b.example/", 'such as host = "b.example"; the port stands in port, and tls = true'),
        ("broker.local:1884", 'a host without :1884, such as host = "broker.local"; the port stands in port'),
        ("", "a host name or address"),
    ],
)
def test_a_host_with_a_scheme_or_a_port_is_refused_with_what_to_write(host: str, says: str) -> None:
    with pytest.raises(DocumentError) as caught:
        parse(GatewaySettings, f'[sensors]\nhost = "{host}"\n', {})
    assert says in str(caught.value)


def test_a_broker_on_the_command_line_too() -> None:
    with pytest.raises(EdgertError, match="--broker: expected a host without mqtt://, such as b, got 'mqtt://b:1883'"):
        split_broker("mqtt://b:1883")


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("b", ("b", 1883)),
        ("b:1999", ("b", 1999)),
        ("::1", ("::1", 1883)),
        ("[::1]", ("::1", 1883)),
        ("[::1]:1999", ("::1", 1999)),
    ],
)
def test_an_address_is_a_host_with_or_without_a_port(text: str, address: tuple[str, int]) -> None:
    assert split_broker(text) == address


@pytest.mark.integration
@in_loop
async def test_tls_to_a_plain_port_and_the_reverse_of_a_real_broker(
    mosquitto: Callable[..., Broker], certificates: Certificates
) -> None:
    plain, secure = mosquitto(), mosquitto(certificates=certificates)
    ca = certificates.path("ca.crt")
    await _says(plain, Tls(ca_file=ca), TLS_TO_PLAIN)
    await _says(secure, None, PLAIN_TO_TLS)


@in_loop
async def test_an_address_where_nobody_listens_is_told_without_a_number_of_the_system() -> None:
    port = free_port()
    client = MqttClient(BrokerAddress("127.0.0.1", port), SessionOptions("x"), Handlers())
    await client.start()
    await until(lambda: bool(client.status.error), "the error")
    await client.stop()
    assert client.status.error.startswith(f"cannot connect to 127.0.0.1:{port}: Connect")
    assert "Errno" not in client.status.error


async def _says(broker: Broker, tls: Tls | None, hint: str) -> None:
    """Both clients, at a port that speaks otherwise."""
    client = MqttClient(BrokerAddress(broker.host, broker.port, tls), SessionOptions("x"), Handlers())
    await client.start()
    await until(lambda: hint in client.status.error, f"the client says: {hint}")
    assert client.status.error.removesuffix("; trying MQTT 3.1.1").endswith(hint) == (tls is None)
    await client.stop()
    ca = tls.ca_file if tls else ""
    settings = Connection(host=broker.host, port=broker.port, tls=tls is not None, ca_file=ca, protocol="5")
    link = ControlConnection(settings, "y")
    link.start()
    await until(lambda: hint in link.error, f"the control plane says: {hint}")
    assert link.error.lower().count("unspecified error") <= 1
    link.stop()
