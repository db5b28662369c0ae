"""Fixtures that tests of several rooms share."""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests import brokers
from tests.brokers import Broker, Certificates


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """An authority with a server's and a client's certificate, by openssl."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
def mosquitto(tmp_path: Path) -> Iterator[Callable[..., Broker]]:
    """Makes brokers, started unless `start=False`; all are stopped after the test. See `tests.brokers.mosquitto` for
    the options (persistence, users, certificates, client_certificates, settings)."""
    if brokers.MOSQUITTO is None:
        pytest.skip("mosquitto is not installed")
    made: list[Broker] = []

    def make(*, start: bool = True, **options: object) -> Broker:
        folder = tmp_path / f"mosquitto-{len(made)}"
        folder.mkdir()
        broker = brokers.mosquitto(folder, **options)  # type: ignore[arg-type]
        made.append(broker)
        if start:
            broker.start()
        return broker

    yield make
    for broker in made:
        broker.kill()


@pytest.fixture
def amqtt(tmp_path: Path) -> Iterator[Broker]:
    """The demo's embedded broker, started."""
    if importlib.util.find_spec("amqtt") is None:
        pytest.skip("amqtt is not installed")
    folder = tmp_path / "amqtt"
    folder.mkdir()
    broker = brokers.amqtt(folder)
    broker.start()
    yield broker
    broker.kill()
