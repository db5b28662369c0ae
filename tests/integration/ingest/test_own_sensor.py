"""docs/own-sensor.md as a reader pastes it: its files, its commands in order, its devices played, tables in the end."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from paho.mqtt.client import Client, MQTTMessage
from paho.mqtt.enums import CallbackAPIVersion

from benchmarks.ports import free_port
from edgert.core.config import parse
from edgert.core.settings.central import CollectorSettings
from edgert.core.settings.gateway import GatewaySettings
from edgert.flow.document import load
from edgert.operators.registry import REGISTRY
from tests.brokers import Broker
from tests.waiting import wait_until

ROOT = Path(__file__).parents[3]
TEXT = (ROOT / "docs" / "own-sensor.md").read_text(encoding="utf-8")
FILES: dict[str, str] = dict(re.findall(r"^```toml\n# file: (\S+)\n(.*?)^```$", TEXT, re.M | re.S))


def commands(text: str) -> list[str]:
    return [line for block in re.findall(r"^```sh\n(.*?)^```$", text, re.M | re.S) for line in block.splitlines()]


START, SERVICE = TEXT.partition("## Start")[2].split("## As a service")
LINES = commands(START)
SERVICE_LINES, INSTALL_LINES = (commands(part) for part in SERVICE.split("## Install"))
PROGRAMS = {
    "edgert": "edgert",
    "edgert-gateway": "gateway",
    "edgert-collector": "edgert.central.collector",
}
TABLES: dict[str, dict[str, object]] = {
    "climate": {"temperature": 21.5, "humidity": 40.0},
    "power": {"watts": 231.5, "channel": "0"},
    "tasmota": {"watts": 231.0, "kwh_today": 1.2},
    "zigbee": {"temperature": 19.4, "battery": 87.0},
    "shelly": {"watts": 60.1, "inside": 45.2},
}


def put(file: Path, command: str) -> None:
    """A program that runs one command."""
    file.write_text(f"#!/bin/sh\n{command}\n")
    file.chmod(0o755)


class Reader:
    """A shell in a new folder, with other ports than the page has."""

    def __init__(self, folder: Path, broker: Broker) -> None:
        self.folder, self.ports = folder, {"1883": str(broker.port), "8080": str(free_port())}
        programs = folder / "bin"
        programs.mkdir()
        for name, module in PROGRAMS.items():
            put(programs / name, f'exec "{sys.executable}" -m {module} "$@"')
        kept = {key: value for key, value in os.environ.items() if not key.startswith("EDGERT_")}
        self.env = kept | {"PATH": f"{programs}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
        self.daemons: list[subprocess.Popen[bytes]] = []
        for name, text in FILES.items():
            (folder / name).write_text(self.moved(text), encoding="utf-8")

    def moved(self, text: str) -> str:
        for usual, here in self.ports.items():
            text = re.sub(rf"\b{usual}\b", here, text)
        return text

    def start(self, line: str) -> None:
        """A command that the page has run in the background."""
        with (self.folder / "daemons.log").open("ab") as log:
            command = shlex.split(self.moved(line).rstrip("& "))
            self.daemons.append(subprocess.Popen(command, cwd=self.folder, env=self.env, stdout=log, stderr=log))

    def paste(self, line: str) -> tuple[int, str]:
        done = subprocess.run(
            ["sh", "-c", self.moved(line)], cwd=self.folder, env=self.env, timeout=300, check=False, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        return done.returncode, done.stdout

    def stop(self) -> None:
        for daemon in self.daemons:
            daemon.send_signal(signal.SIGTERM)
        for daemon in self.daemons:
            daemon.wait(60.0)


@pytest.fixture
def reader(tmp_path: Path, mosquitto: Callable[..., Broker]) -> Iterator[Reader]:
    made = Reader(tmp_path, mosquitto())
    yield made
    made.stop()


@contextmanager
def playing(broker_port: str, messages: list[tuple[str, str]], heard: dict[str, dict[str, object]]) -> Iterator[None]:
    """Sends the messages again and again; `heard` has the newest that a flow published, by topic."""

    def note(client: Client, data: object, message: MQTTMessage) -> None:
        heard[message.topic] = json.loads(message.payload)

    client, stopping = Client(CallbackAPIVersion.VERSION2), threading.Event()
    client.on_message = note

    def publish() -> None:
        while not stopping.wait(0.5):
            for topic, payload in messages:
                client.publish(topic, payload, qos=1)

    client.connect("127.0.0.1", int(broker_port))
    client.subscribe([("homeassistant/#", 1), ("edgert/means/#", 1)])
    client.loop_start()
    thread = threading.Thread(target=publish)
    thread.start()
    try:
        yield
    finally:
        stopping.set()
        thread.join()
        client.disconnect()
        client.loop_stop()


@pytest.mark.parametrize("name", [name for name in FILES if name != "gateway.toml"])
def test_every_flow_of_the_page_is_good_and_named_as_its_file(name: str) -> None:
    flow = load(FILES[name], REGISTRY)
    assert flow.name == Path(name).stem
    assert flow.nodes["readings"].parameters["idle_timeout_s"] == 5.0, "a single message is a row soon"


def test_every_flow_of_the_page_is_deployed_and_every_device_played() -> None:
    assert {f"edgert deploy {name} --config gateway.toml" for name in FILES if name != "gateway.toml"} <= set(LINES)
    assert sum(line.startswith("mosquitto_pub ") for line in LINES) == len(TABLES)


@pytest.mark.integration
def test_install_and_service_as_pasted_put_everything_where_the_units_look(tmp_path: Path) -> None:
    """`/opt` and `/etc` are folders of the test; pip and systemctl are not run, their arguments are checked."""
    reader = Reader(tmp_path, Broker([], free_port(), tmp_path))
    put(tmp_path / "bin/sudo", 'exec "$@"')
    put(tmp_path / "bin/systemctl", f'echo "$@" >> {tmp_path}/systemctl.said')
    opt, etc = tmp_path / "opt", tmp_path / "etc"
    (etc / "systemd/system").mkdir(parents=True)
    opt.mkdir()

    def paste(line: str, folder: Path) -> None:
        line = line.replace("/opt/", f"{opt}/").replace("/etc/", f"{etc}/")
        done = subprocess.run(
            ["sh", "-c", line], cwd=folder, env=reader.env, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, (line, done.stdout, done.stderr)

    for line in INSTALL_LINES:
        if "pip install" not in line:
            paste(line, ROOT)
            continue
        assert line == "sudo /opt/edgert/bin/pip install '.[central]'"
        assert (opt / "edgert/bin/pip").exists()
        for name in PROGRAMS:
            (opt / "edgert/bin" / name).symlink_to(tmp_path / "bin" / name)
    assert SERVICE_LINES[-1] == "sudo /opt/edgert/bin/edgert status"
    for line in SERVICE_LINES[:-1]:
        paste(line, tmp_path)
    assert (tmp_path / "systemctl.said").read_text().splitlines() == [
        "daemon-reload", "enable --now edgert-gateway edgert-collector"
    ]  # fmt: skip
    for unit in ("edgert-gateway", "edgert-collector"):
        text = (etc / f"systemd/system/{unit}.service").read_text()
        [program] = re.findall(r"^ExecStart=/opt/(\S+)", text, re.M)
        assert (opt / program).exists()
    gateway, collector = ((etc / f"edgert/{name}.toml").read_text() for name in ("gateway", "collector"))
    assert parse(GatewaySettings, gateway, {}).gateway.data_dir == GatewaySettings().gateway.data_dir
    assert parse(CollectorSettings, collector, {}) == CollectorSettings()


@pytest.mark.integration
def test_the_page_leads_to_tables(reader: Reader) -> None:
    pytest.importorskip("deltalake")
    played: list[tuple[str, str]] = []
    shown = ""
    for line in LINES:
        if line.endswith("&"):
            reader.start(line)
        elif line.startswith("mosquitto_pub "):
            _, _, topic, _, payload = shlex.split(line)
            played.append((topic, payload))
        elif "central show" in line:
            shown = line
        else:
            told = [""]

            def accepted(line: str = line, told: list[str] = told) -> bool:
                status, told[0] = reader.paste(line)
                return status == 0

            wait_until(accepted, f"{line} is accepted", progress=time.monotonic)
    heard: dict[str, dict[str, object]] = {}
    with playing(reader.ports["1883"], played, heard):
        for name, expected in TABLES.items():
            wait_until(lambda: _has(reader, name, expected), f"a row {expected} of {name}", 90.0, poll_s=0.2)  # noqa: B023
        status, table = reader.paste(shown)
        assert status == 0, table
        assert "kitchen" in table
        config = "homeassistant/sensor/edgert_mean_kitchen/config"
        wait_until(lambda: config in heard and "edgert/means/kitchen" in heard, "the discovery")
    assert heard[config]["state_topic"] == "edgert/means/kitchen"
    assert heard[config]["value_template"] == "{{ value_json.temperature }}"
    assert heard["edgert/means/kitchen"]["temperature"] == 21.5


def _has(reader: Reader, name: str, expected: dict[str, object]) -> bool:
    """Whether the page's command shows such a row of the table."""
    status, shown = reader.paste(f"edgert central show {name} --root tables --json 2>/dev/null")
    rows = map(json.loads, shown.splitlines()) if status == 0 else ()
    return any(all(row.get(part) == pytest.approx(value) for part, value in expected.items()) for row in rows)
