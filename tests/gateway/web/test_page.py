"""The page in a real headless browser, in front of a real gateway and a real broker, with messages flowing."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from paho.mqtt.client import Client
from paho.mqtt.enums import CallbackAPIVersion

from benchmarks.ports import free_port
from tests.agent.rig import RealAgent
from tests.brokers import Broker
from tests.gateway.web import webdriver
from tests.gateway.web.webdriver import Browser, browser, wait_for
from tests.gateway.worlds import ARTEFACTS, ROOT
from tests.waiting import DEADLINE_S

KEY = bytes(range(32))
RATE = 200
FLOW = """
name = "city-air"
description = "Means per sensor, and an alarm when it is hot"
[checkpoint]
interval_s = 0.5
[operators.readings]
type = "mqtt_source"
topic = "city/{source}/sense"
codec = "json"
out_of_order_s = 0.0
[operators.valid]
type = "filter"
input = "readings"
where = "temperature < 40"
[operators.by_sensor]
type = "key_by"
input = "valid"
keys = ["source"]
[operators.second]
type = "tumbling_window"
input = "by_sensor"
size_s = 1.0
aggregates = { n = "count()", mean = "mean(temperature)", maximum = "max(temperature)" }
[operators.central]
type = "ship"
input = "second"
[operators.hot]
type = "filter"
input = "second"
where = "mean > 10"
[operators.alarm]
type = "publish"
input = "hot"
topic = "alarms/{source}"
"""

pytestmark = [
    pytest.mark.browser,
    pytest.mark.integration,
    pytest.mark.skipif(bool(webdriver.missing()), reason=webdriver.missing() or "-"),
]


class Gateway:
    """A gateway process with one flow, that can be stopped and started again on the same port."""

    def __init__(self, folder: Path, broker: Broker) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}/"
        self._folder = folder
        self.database = folder / "data" / "gateway.db"
        self._process: subprocess.Popen[bytes] | None = None
        (folder / "flow.toml").write_text(FLOW)
        text = json.dumps
        (folder / "gateway.toml").write_text(
            f'[gateway]\nid = "pi-7f3a"\nfleet = "test"\ndata_dir = {text(str(folder / "data"))}\n'
            f"[sensors]\nport = {broker.port}\n[central]\nport = {broker.port}\n"
            f"[web]\nport = {self.port}\n[flows]\nfiles = [{text(str(folder / 'flow.toml'))}]\n"
        )

    def start(self) -> None:
        env = {key: value for key, value in os.environ.items() if not key.startswith("EDGERT_")}
        command = [sys.executable, "-m", "gateway", "--config", str(self._folder / "gateway.toml")]
        with (self._folder / "gateway.log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, cwd=ROOT, env=env)
        wait_for(self._is_ready, DEADLINE_S, f"the gateway is ready; see {self._folder}/gateway.log")

    def _is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}healthz", timeout=2):
                return True
        except OSError:
            return False

    def stop(self) -> int:
        if self._process is None:
            return 0
        self._process.terminate()
        try:
            return self._process.wait(60.0)
        finally:
            self._process.kill()
            self._process = None


def publish(broker: Broker, stopping: threading.Event) -> None:
    client = Client(CallbackAPIVersion.VERSION2)
    client.connect(broker.host, broker.port)
    client.loop_start()
    number = 0
    while not stopping.wait(0.05):
        for _ in range(RATE // 20):
            number += 1
            payload = {"time": time.time(), "temperature": 15 + number % 10 if number % 50 else "broken"}
            client.publish(f"city/s{number % 5}/sense", json.dumps(payload), qos=1)
    client.disconnect()
    client.loop_stop()


@pytest.fixture
def gateway(tmp_path: Path, mosquitto: Callable[..., Broker]) -> Iterator[Gateway]:
    broker = mosquitto()
    gateway = Gateway(tmp_path, broker)
    stopping = threading.Event()
    sensors = threading.Thread(target=publish, args=(broker, stopping))
    gateway.start()
    sensors.start()
    try:
        yield gateway
    finally:
        stopping.set()
        sensors.join()
        gateway.stop()


@pytest.fixture
def page(gateway: Gateway) -> Iterator[Browser]:
    with browser() as session:
        session.open(gateway.url)
        yield session


def number(page: Browser, tile: str) -> float:
    text = page.run(f"return document.querySelector('#tile-{tile}').textContent")
    return float(text.replace(",", "")) if text not in ("–", "") else 0.0


def test_graph_and_moving_numbers_are_on_the_page(page: Browser, gateway: Gateway) -> None:
    page.wait_for("return document.querySelectorAll('.node').length >= 5")
    drawn = page.run("return [...document.querySelectorAll('.node')].map(node => node.dataset.operator).join(' ')")
    for operator in ("readings", "second", "central", "hot", "alarm"):
        assert operator in drawn, drawn
    edges = page.run("return document.querySelectorAll('.edge').length")
    assert edges >= 5

    first = wait_for(lambda: number(page, "rows"), DEADLINE_S, "rows come in")
    wait_for(lambda: number(page, "rows") > first, DEADLINE_S, "the number of rows moves")
    wait_for(lambda: number(page, "messages") > RATE / 2, DEADLINE_S, "the rate of messages shows")
    page.wait_for("return document.querySelector('.spark .line').getAttribute('d')?.includes('L')")
    commits = number(page, "commits")
    wait_for(lambda: number(page, "commits") > commits, DEADLINE_S, "the number of checkpoints moves")
    page.wait_for("return document.querySelectorAll('.flow tbody tr').length > 0")
    wait_for(lambda: number(page, "drops") > 0, DEADLINE_S, "what is broken is counted")
    page.wait_for("return document.querySelectorAll('#drops tbody tr').length > 0")

    assert page.run("return document.querySelector('#link-page .value').textContent") == "live"
    assert page.run("return document.querySelector('h1').textContent") == "pi-7f3a"
    assert page.console_errors() == []
    page.emulate(1280, 900)
    assert page.violations() == []
    page.screenshot(ARTEFACTS / "page.png")
    page.emulate(1280, 900, dark=True)
    assert page.violations() == []
    page.screenshot(ARTEFACTS / "page-dark.png")


def test_a_board_with_an_agent_has_a_card_of_os_scheduling(page: Browser, gateway: Gateway, tmp_path: Path) -> None:
    page.wait_for("return document.querySelectorAll('.node').length >= 5")
    assert page.run("return document.querySelector('#scheduling').hidden"), "this board has no agent"
    data = gateway.database.parent
    (tmp_path / "sched.toml").write_text('[sched]\npolicy = "qs"\n')
    command = ["-m", "agent.osched", "--config", str(tmp_path / "sched.toml"), "--gateway", str(data / "control.sock")]
    command += ["--socket", str(data / "agent.sock"), "--data", str(tmp_path / "agent")]
    with (tmp_path / "agent.log").open("wb") as log:
        agent = subprocess.Popen([sys.executable, *command], stdout=log, stderr=log, cwd=ROOT)
    try:
        wait_for((data / "agent.sock").exists, DEADLINE_S, f"the agent's socket; see {tmp_path}/agent.log")
        page.open(gateway.url)
        page.wait_for("return document.querySelectorAll('#scheduling-table tbody tr').length >= 1")
        assert not page.run("return document.querySelector('#scheduling').hidden")
        assert page.run("return document.querySelector('#scheduling-state').textContent") == "qs"
        rows = page.run("return document.querySelector('#scheduling-table tbody').textContent")
        assert "city-air/readings" in rows
        assert "queue_size" in rows
        notes = page.run("return document.querySelector('#scheduling-notes').textContent")
        assert "not scheduled there (city-air): set pool.slots" in notes
        page.emulate(1280, 1400)
        assert page.violations() == []
        page.screenshot(ARTEFACTS / "page-scheduling.png")
    finally:
        agent.terminate()
        agent.wait(60.0)


def test_a_board_with_an_agent_has_a_map_of_its_fleet(
    page: Browser, gateway: Gateway, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page.wait_for("return document.querySelectorAll('.node').length >= 5")
    assert page.run("return document.querySelector('#fleet').hidden"), "this board has no agent"
    data = gateway.database.parent
    own = RealAgent(tmp_path, "g1", [], [KEY], gateway=data / "control.sock")
    others = [RealAgent(tmp_path, f"board-{n}", [own.port], [KEY]) for n in (2, 3)]
    try:
        with monkeypatch.context() as change:
            change.setenv("EDGERT_AGENT_SOCKET", str(data / "agent.sock"))
            own.start()
        for other in others:
            other.start()
        wait_for((data / "agent.sock").exists, 60, "the agent's socket")
        page.open(gateway.url)
        page.emulate(1280, 1400)
        page.wait_for("return document.querySelectorAll('#fleet-map .reach').length === 2", 90)
        page.wait_for("return document.querySelector('#fleet-state').textContent === '3 of 3 alive'", 90)
        page.wait_for("return /ms/.test(document.querySelectorAll('#fleet-table tbody tr')[0].textContent)", 90)
        rows = page.run(
            "return [...document.querySelectorAll('#fleet-table tbody tr')].map((r) => r.cells[0].textContent)"
        )
        assert sorted(rows) == ["board-2", "board-3", "g1 (this board)"]
        assert page.violations() == []
        page.screenshot(ARTEFACTS / "page-fleet.png")
        others[1].kill()
        page.wait_for("return document.querySelectorAll('#fleet-map .dead').length === 1", 90)
    finally:
        for agent in (own, *others):
            agent.kill()
            print(agent.name, agent.log())


def test_nothing_is_wider_than_a_phone_and_the_graph_runs_downwards(page: Browser) -> None:
    page.emulate(390, 844)
    page.wait_for("return document.querySelectorAll('.node').length >= 5")
    page.wait_for("return document.documentElement.scrollWidth <= window.innerWidth")
    page.wait_for(
        "const tops = [...document.querySelectorAll('.node')].map(n => Math.round(n.getBoundingClientRect().top));"
        "return new Set(tops).size >= 4"
    )
    page.wait_for("return document.querySelector('svg.graph').getBoundingClientRect().right <= window.innerWidth")
    assert page.violations() == []
    page.screenshot(ARTEFACTS / "page-phone.png")


def test_a_gateway_that_goes_is_said_and_its_return_is_found(page: Browser, gateway: Gateway) -> None:
    page.wait_for("return document.querySelector('#link-page .value').textContent === 'live'")
    began = time.monotonic()
    assert gateway.stop() == 0
    assert time.monotonic() - began < 40, "an open page held the gateway back"
    page.wait_for("return document.querySelector('#link-page .value').textContent === 'disconnected — retrying'")
    assert page.run("return document.body.classList.contains('stale')")
    assert page.run("return document.querySelectorAll('.node').length") >= 5, "the last numbers stay readable"
    gateway.start()
    page.wait_for("return document.querySelector('#link-page .value').textContent === 'live'")
    assert not page.run("return document.body.classList.contains('stale')")


def test_what_a_rotten_card_has_cost_stands_on_the_page(page: Browser, gateway: Gateway) -> None:
    page.wait_for("return document.querySelector('#link-page .value').textContent === 'live'")
    assert page.run("return document.querySelector('.gap').hidden")
    wait_for(lambda: number(page, "commits") > 3, DEADLINE_S, "there are checkpoints")
    assert gateway.stop() == 0
    with closing(sqlite3.connect(gateway.database)) as db, db:
        newest, blob = db.execute("SELECT number, blob FROM state ORDER BY number DESC LIMIT 1").fetchone()
        db.execute("UPDATE state SET blob = ? WHERE number = ?", (blob[:-1], newest))
    gateway.start()
    page.wait_for("return document.querySelector('.gap').textContent.includes('is damaged')")
    assert not page.run("return document.querySelector('.gap').hidden")


def test_every_part_of_the_page_can_be_reached_and_is_named_for_those_who_do_not_see(page: Browser) -> None:
    page.wait_for("return document.querySelectorAll('.node').length >= 5")
    nameless = page.run(
        "return [...document.querySelectorAll('[tabindex=\"0\"], [role=region], svg[role=group]')]"
        ".filter(e => !e.getAttribute('aria-label') && !e.getAttribute('aria-labelledby')).map(e => e.outerHTML)"
    )
    assert nameless == []
    label = page.run("return document.querySelector('.node').getAttribute('aria-label')")
    assert "rows per second" in label
    assert page.run("document.querySelector('.node').focus(); return document.activeElement.classList.contains('node')")
