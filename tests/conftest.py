"""What all tests share: a test whose needs are missing on this machine is skipped and says which."""

from __future__ import annotations

import functools
import importlib.util
import logging
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests import brokers
from tests.brokers import Broker, Certificates
from tests.examples import PROFILE

# A deadline per example, or for drawing them, would measure the other tests here. `make test-all` tries more examples.
settings.register_profile(
    "quick", deadline=None, print_blob=True, max_examples=30, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("thorough", settings.get_profile("quick"), max_examples=200)
settings.load_profile(PROFILE)

ROOT = Path(__file__).parents[1]
# For work of a few seconds Java's thorough compiler costs more than it brings.
os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1")


def _lack_of(marker: str) -> str | None:
    """What a test with this marker lacks on this machine, and how to get it; None if nothing."""
    if marker == "integration" and not shutil.which("mosquitto", path=f"{os.environ.get('PATH', '')}:/usr/sbin"):
        return "Mosquitto is not installed (apt-get install mosquitto)"
    if marker == "spark" and subprocess.run([ROOT / "scripts/java-home"], capture_output=True, check=False).returncode:
        return "Java 17 or newer is not installed (apt-get install default-jre-headless)"
    if marker == "browser" and not (shutil.which("chromium") and shutil.which("chromedriver")):
        return "Chromium or its driver is not installed (apt-get install chromium chromium-driver)"
    if marker == "root" and os.geteuid() != 0:
        return "needs root"
    return None


@functools.cache
def _names(file: Path, marker: str) -> bool:
    return f"mark.{marker}" in file.read_text()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    lacks = {marker: _lack_of(marker) for marker in ("integration", "spark", "browser", "root")}
    for item in items:
        for marker in ("integration", "spark"):
            if item.get_closest_marker(marker) and not _names(item.path, marker):
                raise pytest.UsageError(
                    f"{item.path}: write mark.{marker} into this file, where scripts/test looks for it"
                )
    for item in items:
        for marker, lack in lacks.items():
            if lack and item.get_closest_marker(marker):
                item.add_marker(pytest.mark.skip(reason=lack))


@pytest.fixture(autouse=True)
def log_as_before() -> Iterator[None]:
    """A command that is run within a test sends its log to a stream that is gone after it."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    if any(type(handler) is logging.StreamHandler and handler not in handlers for handler in root.handlers):
        root.handlers[:] = handlers
        root.setLevel(level)


@pytest.fixture(autouse=True)
def slots_end() -> Iterator[None]:
    """Those that ran in this process close what they had open."""
    yield
    if (here := sys.modules.get("tests.slots_here")) is not None:
        here.InThisProcess.close_all()


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
