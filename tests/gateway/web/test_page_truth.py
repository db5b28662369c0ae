"""The page tells the truth: a flow that refuses all, a dead collector, twelve flows, on a screen and on a phone."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.error import HTTPError

import pytest
from paho.mqtt.client import Client
from paho.mqtt.enums import CallbackAPIVersion

from benchmarks.ports import free_port
from tests.brokers import Broker
from tests.gateway.web import webdriver
from tests.gateway.web.webdriver import Browser, browser, wait_for
from tests.gateway.worlds import ARTEFACTS, ROOT
from tests.integration.rig import Process, Rig

pytestmark = [
    pytest.mark.browser,
    pytest.mark.integration,
    pytest.mark.skipif(bool(webdriver.missing()), reason=webdriver.missing() or "-"),
]
KEYS = 45
FLOW = """
name = "room-{number}"
[checkpoint]
interval_s = 0.5
[operators.readings]
type = "mqtt_source"
topic = "room/{number}/{{place}}"
out_of_order_s = 0.0
[operators.by_place]
type = "key_by"
input = "readings"
keys = ["place"]
[operators.second]
type = "tumbling_window"
input = "by_place"
size_s = 1.0
aggregates = {{ warmest = "max(temperature)" }}
[operators.central]
type = "ship"
input = "second"
"""


@contextmanager
def gateway_of(folder: Path, broker: Broker, flows: int, flow: str = FLOW) -> Iterator[str]:
    """The URL of a gateway process with so many flows."""
    port, text = free_port(), json.dumps
    files = [folder / f"room-{number}.toml" for number in range(flows)]
    for number, file in enumerate(files):
        file.write_text(flow.format(number=number))
    (folder / "gateway.toml").write_text(
        f'[gateway]\nid = "pi"\nfleet = "test"\ndata_dir = {text(str(folder / "data"))}\n'
        f"[sensors]\nport = {broker.port}\n[central]\nport = {broker.port}\n"
        f"[web]\nport = {port}\n[flows]\nfiles = {text([str(file) for file in files])}\n"
    )
    env = {key: value for key, value in os.environ.items() if not key.startswith("EDGERT_")}
    command = [sys.executable, "-m", "gateway", "--config", str(folder / "gateway.toml")]
    with (folder / "gateway.log").open("ab") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, cwd=ROOT, env=env)
    url = f"http://127.0.0.1:{port}/"
    try:
        wait_for(lambda: get(f"{url}livez")[0] == 200, 60, f"the gateway answers; see {folder}/gateway.log")
        yield url
    finally:
        process.terminate()
        process.wait(60.0)


@contextmanager
def collector_of(folder: Path, broker: Broker) -> Iterator[Process]:
    """Acknowledges results: a flow whose results wait is no good one."""
    rig = Rig(folder, broker)
    collector = rig.collector()
    collector.start()
    try:
        yield collector
    finally:
        rig.close()


def get(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=60) as answer:
            return answer.status, answer.read().decode()
    except HTTPError as error:
        return error.code, error.read().decode()
    except OSError:
        return 0, ""


@contextmanager
def publishing(broker: Broker, messages: list[tuple[str, bytes]], every_s: float) -> Iterator[None]:
    """Meanwhile all of the messages come again and again."""
    client, stopping = Client(CallbackAPIVersion.VERSION2), threading.Event()

    def publish() -> None:
        while not stopping.wait(every_s):
            for topic, payload in messages:
                client.publish(topic, payload, qos=1)

    client.connect(broker.host, broker.port)
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


CONTRAST = """
const channels = (color) => color.match(/[\\d.]+/g).slice(0, 3).map(Number);
const light = (color) => channels(color).map((c) => c / 255)
  .map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4))
  .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
const ground = (e) => {
  const color = getComputedStyle(e).backgroundColor;
  return /, 0\\)|transparent/.test(color) && e.parentElement ? ground(e.parentElement) : color;
};
return [...document.querySelectorAll(arguments[0])].filter((e) => e.checkVisibility()).map((e) => {
  const [a, b] = [light(getComputedStyle(e).color), light(ground(e))].sort((x, y) => y - x);
  return [e.textContent, (a + 0.05) / (b + 0.05)];
});
"""


def assert_readable(page: Browser, dark: bool) -> None:
    page.emulate(1280, 900, dark=dark)
    for text, contrast in page.run(CONTRAST, ".badge, .links .value, .reason, .problems li, .finder button, .quiet"):
        assert contrast >= 4.5, f"{text!r} has a contrast of {contrast:.2f} (WCAG AA: 4.5), dark: {dark}"


def assert_fits_a_phone(page: Browser, name: str) -> None:
    page.emulate(390, 844)
    page.wait_for("return document.documentElement.scrollWidth <= window.innerWidth")
    page.screenshot(ARTEFACTS / f"{name}-phone.png")


def test_one_of_twelve_flows_that_refuses_all_is_red_everywhere(
    tmp_path: Path, mosquitto: Callable[..., Broker]
) -> None:
    broker = mosquitto()
    messages = [("room/3/shelf", b"21.5 C")]
    messages += [(f"room/{n}/{place}", b'{"temperature": 21}') for n in (0, 1) for place in range(KEYS)]
    with (
        browser() as page,
        collector_of(tmp_path, broker),
        gateway_of(tmp_path, broker, 12) as url,
        publishing(broker, messages, every_s=0.4),
    ):
        page.open(url)
        page.wait_for("return document.querySelectorAll('.flow').length === 12")
        page.wait_for("return document.querySelectorAll('.flow')[0].id === 'flow-room-3'")
        page.wait_for("return document.querySelector('#flow-room-3 .badge')?.textContent === 'refuses all'")
        card = page.run("return document.querySelector('#flow-room-3').innerText")
        assert "refuses all its input" in card
        assert "21.5 C" in card
        assert "room/3/shelf" in card
        assert re.search(r"[1-9][\d,]* dropped", card), card
        page.wait_for("return document.querySelector('#flow-room-0 .badge').className === 'badge good'")
        assert page.run("return document.querySelector('#flow-room-7 .badge').textContent") == "no input yet"
        assert "flow room-3: refuses all" in page.run("return document.querySelector('#problems').textContent")

        code, health = get(f"{url}healthz")
        assert (code, health.splitlines()[0]) == (503, "not ready")
        assert "- flow room-3: refuses all its input" in health

        page.run("document.querySelector('#flow-room-0').open = true")
        page.wait_for("return document.querySelectorAll('#flow-room-0 .pager:not([hidden])').length === 1")
        page.wait_for(f"return document.querySelector('#flow-room-0 .pager').textContent.includes('of {KEYS} ')")
        page.run("document.querySelector('#flow-room-0 .pager button:nth-of-type(2)').click()")
        page.wait_for("return document.querySelector('#flow-room-0 .pager span').textContent.startsWith('21 to 40')")
        heads = page.run("return [...document.querySelectorAll('#flow-room-0 .scroll th')].map(th => th.textContent)")
        assert "place" in heads
        assert "source" not in heads
        page.wait_for("return document.querySelectorAll('.flow').length === 12")
        assert_readable(page, dark=True)
        assert_readable(page, dark=False)
        assert page.run("return document.querySelectorAll('ul > [role], ol > [role]').length") == 0
        assert page.run("return document.querySelector('[role=status]').tagName") != "LI"
        assert page.violations() == []
        page.emulate(1280, 900, dark=True)
        assert page.violations() == []
        page.emulate(1280, 900, dark=False)
        page.screenshot(ARTEFACTS / "page-twelve.png")
        assert_fits_a_phone(page, "page-twelve")
        assert [e for e in page.console_errors() if "503" not in e] == []


def test_all_keys_of_the_newest_window_are_on_the_page(tmp_path: Path, mosquitto: Callable[..., Broker]) -> None:
    broker, keys = mosquitto(), 611
    readings = json.dumps([{"place": place, "temperature": 21} for place in range(keys)]).encode()
    with (
        browser() as page,
        gateway_of(tmp_path, broker, 1, FLOW.replace("/{{place}}", "")) as url,
        publishing(broker, [("room/0", readings)], every_s=0.4),
    ):
        page.open(url)
        pager = "document.querySelector('#flow-room-0 .pager')"
        page.wait_for(f"return {pager}?.textContent.includes('of {keys} ')")
        for first in range(21, keys + 1, 20):
            page.run(f"{pager}.querySelector('button:nth-of-type(2)').click()")
            place = f"{first} to {min(first + 19, keys)} of {keys} "
            page.wait_for(f"return {pager}.querySelector('span').textContent.startsWith('{place}')")
        page.wait_for(f"return {pager}.querySelector('button:nth-of-type(2)').disabled")
        found = json.loads(get(f"{url}api/results?flow=room-0&offset=600&limit=100")[1])
        assert (len(found["latest"]), found["latest_kept"], found["latest_total"]) == (11, keys, keys)


def test_a_collector_that_was_killed_is_red_after_a_minute(tmp_path: Path, mosquitto: Callable[..., Broker]) -> None:
    broker = mosquitto()
    messages = [("room/0/shelf", b'{"temperature": 21}')]
    with (
        browser() as page,
        collector_of(tmp_path, broker) as collector,
        gateway_of(tmp_path, broker, 1) as url,
        publishing(broker, messages, every_s=0.4),
    ):
        page.open(url)
        page.wait_for("return document.querySelector('#link-central').className === 'good'")
        collector.kill()
        page.wait_for("return document.querySelector('#link-central').className === 'bad'", 180)
        assert page.run("return document.querySelector('#link-central .value').textContent") == "no collector"
        problem = page.run("return document.querySelector('#problems').textContent")
        assert re.search(
            r"no collector has acknowledged a result for (\d\d s|1 min); [1-9]\d* result rows? in the outbox",
            problem,
        )
        code, health = get(f"{url}healthz")
        assert (code, health.splitlines()[0]) == (503, "not ready")
        assert "is edgert-collector running there, for fleet test?" in health
        assert_readable(page, dark=False)
        assert page.violations() == []
        page.screenshot(ARTEFACTS / "page-dead-collector.png")
        assert_fits_a_phone(page, "page-dead-collector")
        collector.start()
        page.wait_for("return document.querySelector('#link-central').className === 'good'")
