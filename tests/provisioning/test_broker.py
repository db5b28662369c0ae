"""The database of the board's own broker: one that cannot be read is set aside, any other is left alone."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import paho.mqtt.client as paho
import pytest

from provisioning import broker
from tests.brokers import Broker

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(os.geteuid() != 0, reason="the probe is started by root, as on a board"),
]


@pytest.fixture
def database(mosquitto: Callable[..., Broker], monkeypatch: pytest.MonkeyPatch) -> Path:
    """A database with a retained message."""
    monkeypatch.setenv("PATH", f"{os.environ['PATH']}:/usr/sbin")
    made = mosquitto(persistence=True)
    client = paho.Client(paho.CallbackAPIVersion.VERSION2)  # type: ignore[attr-defined]
    client.connect("127.0.0.1", made.port)
    client.loop_start()
    client.publish("x", b"1" * 500, qos=1, retain=True).wait_for_publish(60)
    client.disconnect()
    client.loop_stop()
    made.save()
    made.kill()
    stored = made.folder / "mosquitto.db"
    monkeypatch.setattr(broker, "DATABASE", stored)
    return stored


def test_a_good_one_stays_as_it_is(database: Path) -> None:
    before = database.read_bytes()
    broker.main()
    assert database.read_bytes() == before


@pytest.mark.parametrize("damage", ["zeros", "cut short", "garbage"])
def test_a_damaged_one_is_set_aside(database: Path, damage: str, capsys: pytest.CaptureFixture[str]) -> None:
    whole = database.read_bytes()
    bad = {"zeros": bytes(len(whole)), "cut short": whole[:-300], "garbage": os.urandom(len(whole))}[damage]
    database.write_bytes(bad)
    broker.main()
    assert not database.exists()
    assert database.with_name("mosquitto.db.damaged").read_bytes() == bad
    assert "set aside" in capsys.readouterr().err


def test_a_broker_that_starts_with_no_database_either_is_not_the_databases_fault(
    database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(database.parent))
    (database.parent / "mosquitto").write_text("#!/bin/sh\nexit 1\n")
    (database.parent / "mosquitto").chmod(0o755)
    database.write_bytes(b"\0" * 300)
    broker.main()
    assert database.exists()
