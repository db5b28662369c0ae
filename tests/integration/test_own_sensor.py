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
from edgert.flow.document import load
from edgert.operators.registry import REGISTRY
from tests.brokers import Broker
from tests.waiting import wait_until

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "own-sensor.md").read_text(encoding="utf-8")
FILES: dict[str, str] = dict(re.findall(r"^```toml\n# file: (\S+)\n(.*?)^```$", TEXT, re.M | re.S))
LINES = [line for block in re.findall(r"^```sh\n(.*?)^```$", TEXT, re.M | re.S) for line in block.splitlines()]
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


class Reader:
    """A shell in a new folder, with other ports than the page has."""

    def __init__(self, folder: Path, broker: Broker) -> None:
        self.folder, self.ports = folder, {"1883": str(broker.port), "8080": str(free_port())}
        commands = folder / "bin"
        commands.mkdir()
        for name, module in PROGRAMS.items():
            more = f" --broker 127.0.0.1:{broker.port}" if name == "edgert" else ""
            # deploy and nothing else takes a broker: the page's reader has it on the usual port
            script = f'#!/bin/sh\ncase "{name} $1" in "edgert deploy") set -- "$@"{more};; esac\n'
            (commands / name).write_text(f'{script}exec "{sys.executable}" -m {module} "$@"\n')
            (commands / name).chmod(0o755)
        kept = {key: value for key, value in os.environ.items() if not key.startswith("EDGERT_")}
        self.env = kept | {"PATH": f"{commands}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
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
            ["sh", "-c", self.moved(line)], cwd=self.folder, env=self.env, timeout=60, check=False, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        return done.returncode, done.stdout

    def stop(self) -> None:
        for daemon in self.daemons:
            daemon.send_signal(signal.SIGTERM)
        for daemon in self.daemons:
            daemon.wait(30)


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
    assert load(FILES[name], REGISTRY).name == Path(name).stem


def test_every_flow_of_the_page_is_deployed_and_every_device_played() -> None:
    assert {f"edgert deploy {name}" for name in FILES if name != "gateway.toml"} <= set(LINES)
    assert sum(line.startswith("mosquitto_pub ") for line in LINES) == len(TABLES)


@pytest.mark.integration
@pytest.mark.timeout(300)
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

            wait_until(accepted, f"{line} is accepted", 60.0, progress=time.monotonic)
    heard: dict[str, dict[str, object]] = {}
    with playing(reader.ports["1883"], played, heard):
        for name, expected in TABLES.items():
            wait_until(lambda: _has(reader, name, expected), f"a row {expected} of {name}", 90.0, poll_s=0.2)  # noqa: B023
        status, table = reader.paste(shown)
        assert status == 0, table
        assert "kitchen" in table
        config = "homeassistant/sensor/edgert_mean_kitchen/config"
        wait_until(lambda: config in heard and "edgert/means/kitchen" in heard, "the discovery", 30.0)
    assert heard[config]["state_topic"] == "edgert/means/kitchen"
    assert heard[config]["value_template"] == "{{ value_json.temperature }}"
    assert heard["edgert/means/kitchen"]["temperature"] == 21.5


def _has(reader: Reader, name: str, expected: dict[str, object]) -> bool:
    """Whether the table has such a row; a mean is there as sum and count."""
    from edgert.central.tables import show
    from edgert.core.errors import EdgertError

    try:
        columns, rows = show.rows(str(reader.folder / "tables"), name)
    except EdgertError:
        return False
    for row in (dict(zip(columns, values, strict=True)) for values in rows):
        for part in [part for part in row if part.endswith("__sum")]:
            base = part.removesuffix("__sum")
            row[base] = round(row[part] / row[f"{base}__count"], 6) if row[f"{base}__count"] else None
        if all(row.get(part) == value for part, value in expected.items()):
            return True
    return False
