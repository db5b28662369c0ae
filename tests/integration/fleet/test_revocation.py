"""100 boards provisioned by one command, then one revoked: a real Mosquitto and a real link refuse it, and no other."""

from __future__ import annotations

import os
import ssl
import tomllib
from collections.abc import Iterator
from pathlib import Path

import paho.mqtt.client as paho
import pytest
from paho.mqtt.enums import CallbackAPIVersion

from benchmarks.ports import free_port
from edgert.cli.main import main
from edgert.core.settings.connection import Connection
from edgert.links.tls import Credentials, Identity, LinkError, Listener, TlsLink, connect, take_revoked, tls_context
from edgert.mqtt.access import mosquitto_acl
from edgert.mqtt.clients.credentials import tls_context as broker_context
from provisioning.on_board import take_untrusted
from tests.brokers import MOSQUITTO, Broker
from tests.waiting import in_loop, until, wait_until

pytestmark = pytest.mark.integration

FLEET, HOST, BOARDS = "farm", "127.0.0.1", 100
REVOKED, OTHERS = "g42", ("g0", "g41", "g99")


class World:
    """A fleet on disk: the CA, a broker with its certificate, and what the boards store at their first boot."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.ca = folder, folder / "ca"
        table = folder / "boards.csv"
        table.write_text("id,site\n" + "".join(f"g{n},hall-{n % 4}\n" for n in range(BOARDS)))
        self.run("ca", "init", str(self.ca), "--fleet", FLEET)
        self.run("provision", str(table), "--out", str(folder / "out"), "--ca", str(self.ca))
        self.acl = folder / "edgert.acl"
        self.acl.write_text(mosquitto_acl(FLEET, [], "central", []))
        self.acl.chmod(0o644)
        self.run("ca", "server", HOST, "--out", str(folder / "server"), "--ca", str(self.ca))
        for name in (REVOKED, *OTHERS):
            assert take_untrusted(folder / "out" / name, folder / name)

    def run(self, *arguments: str) -> None:
        assert main(["fleet", *arguments]) == 0

    def credentials(self, name: str) -> Credentials:
        """Of a board, with the list that it was provisioned with."""
        files = self.folder / name / "identity"
        return Credentials(*(str(files / file) for file in ("board.pem", "board.key", "ca.pem", "crl.pem")))

    def broker(self) -> Broker:
        port = free_port()
        lines = [
            f"listener {port} {HOST}", "allow_anonymous false", "require_certificate true",
            "use_identity_as_username true", f"cafile {self.folder}/server/ca.pem",
            f"certfile {self.folder}/server/server.pem", f"keyfile {self.folder}/server/server.key",
            f"crlfile {self.ca}/crl.pem", f"acl_file {self.acl}", "log_type all",
            *(["user root"] if os.geteuid() == 0 else []),
        ]  # fmt: skip
        settings = self.folder / "mosquitto.conf"
        settings.write_text("\n".join(lines) + "\n")
        assert MOSQUITTO is not None
        return Broker([MOSQUITTO, "-c", str(settings)], port, self.folder)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    if MOSQUITTO is None:
        pytest.skip("mosquitto is not installed")
    return World(tmp_path_factory.mktemp("fleet"))


@pytest.fixture
def broker(world: World) -> Iterator[Broker]:
    broker = world.broker()
    broker.start()
    yield broker
    broker.stop()


def heard_by(broker: Broker, credentials: Credentials, topic: str = "") -> bool:
    """Does the broker take this board's connection, and its message on `topic`? As the gateway connects, with the files
    of its settings."""
    settings = Connection(HOST, broker.port, True, credentials.ca, credentials.certificate, credentials.key)
    client = paho.Client(CallbackAPIVersion.VERSION2, protocol=paho.MQTTv5)
    client.tls_set_context(broker_context(settings, "central"))
    taken: list[bool] = []
    client.on_connect = lambda _client, _data, _flags, reason, _properties: taken.append(not reason.is_failure)
    client.on_disconnect = lambda *_: taken.append(False)
    try:
        client.connect(HOST, broker.port)
    except (ssl.SSLError, ConnectionError):
        return False
    client.loop_start()
    wait_until(lambda: taken, "the broker's answer")
    if topic and taken[0]:
        taken.clear()
        client.on_publish = lambda _client, _data, _mid, reason, _properties: taken.append(not reason.is_failure)
        client.publish(topic, b"{}", qos=1)
        wait_until(lambda: taken, "the PUBACK")
    client.disconnect()
    client.loop_stop()
    return taken[0]


async def linked(server: Listener, port: int, name: str, credentials: Credentials, links: list[TlsLink]) -> bool:
    """Does the gateway that listens take a link of this board?"""
    before = server.refused + len(links)
    try:
        link = await connect(HOST, port, OTHERS[0], Identity(FLEET, name), tls_context(credentials, server=False))
    except LinkError:
        await until(lambda: server.refused + len(links) > before, "the refusal")
        return False
    link.close()
    return True


@in_loop
async def _links(world: World) -> None:
    links: list[TlsLink] = []
    context = tls_context(world.credentials(OTHERS[0]), server=True)
    listener = Listener(Identity(FLEET, OTHERS[0]), context, links.append)
    port = await listener.start(HOST, 0)
    try:
        for name in (REVOKED, *OTHERS[1:]):
            assert await linked(listener, port, name, world.credentials(name), links), name
        world.run("revoke", REVOKED, "--ca", str(world.ca))
        take_revoked(context, str(world.ca / "crl.pem"))  # as `Peers` does when its file has changed
        assert not await linked(listener, port, REVOKED, world.credentials(REVOKED), links)
        assert "certificate revoked" in listener.refusal
        for name in OTHERS[1:]:
            assert await linked(listener, port, name, world.credentials(name), links), name
    finally:
        await listener.stop()
        for link in links:
            link.close()


def test_a_revoked_board_of_a_hundred_is_refused_by_broker_and_links(world: World, broker: Broker) -> None:
    bundles = sorted((world.folder / "out").glob("*/edgert.toml"))
    assert len(bundles) == BOARDS - 1 - len(OTHERS)  # these were taken and wiped
    keys = {tomllib.loads(path.read_text())["identity"]["key"] for path in bundles}
    assert len(keys) == len(bundles)
    for name in (REVOKED, *OTHERS):
        assert heard_by(broker, world.credentials(name)), name
    own, other = (f"edgert/v1/{FLEET}/{name}/status" for name in OTHERS[:2])
    assert heard_by(broker, world.credentials(OTHERS[0]), own)
    assert not heard_by(broker, world.credentials(OTHERS[0]), other)
    _links(world)  # revokes one
    broker.reload()
    wait_until(lambda: not heard_by(broker, world.credentials(REVOKED)), "the broker's refusal")
    wait_until(lambda: "certificate verify failed" in broker.log.read_text(), "the reason in the broker's log")
    for name in OTHERS:
        assert heard_by(broker, world.credentials(name)), name
    server = Credentials(*(str(world.folder / "server" / name) for name in ("server.pem", "server.key", "ca.pem")))
    assert not heard_by(broker, server)  # a broker's certificate is no client's
