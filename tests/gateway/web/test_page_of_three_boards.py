"""The pages of three boards that share a flow, in a real browser: no figure is untrue, wherever an operator runs.

The first board has 16 flows: one over all boards, 14 that are well, and one whose device sends text.
"""

from __future__ import annotations

import json
import math
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.brokers import Broker
from tests.gateway.web import webdriver
from tests.gateway.web.webdriver import Browser, browser, wait_for
from tests.gateway.worlds import ARTEFACTS
from tests.integration import truth
from tests.integration.fleet_world import Fleet, until_done
from tests.integration.rig import Gateway, Rig
from tests.waiting import DEADLINE_S

pytestmark = [
    pytest.mark.browser,
    pytest.mark.integration,
    pytest.mark.skipif(bool(webdriver.missing()), reason=webdriver.missing() or "-"),
]
PLACE = {"window": "g2", "central": "g3"}
SENSORS = 5
ROOMS = 15
FAULTY = 3
TEXT = b"21.5 C"
OTHERS = "[...document.querySelectorAll('#flow-city-air .node')].filter((n) => n.textContent.includes('on g'))"


def room(number: int) -> dict[str, Any]:
    """A flow of one room: figures per place, each second."""
    return {
        "name": f"room-{number}",
        "description": f"Climate of room {number}, by place",
        "checkpoint": {"interval_s": 0.5},
        "operators": {
            "readings": {"type": "mqtt_source", "topic": f"room/{number}/{{place}}", "out_of_order_s": 0.0},
            "by-place": {"type": "key_by", "input": "readings", "keys": ["place"]},
            "second": {
                "type": "tumbling_window", "input": "by-place", "size_s": 1.0,
                "aggregates": {"n": "count()", "warmth": "mean(temperature)", "warmest": "max(temperature)",
                               "newest": "max(time)"},
            },
            "central": {"type": "ship", "input": "second"},
        },
    }  # fmt: skip


def messages(now: float) -> Iterator[tuple[str, bytes]]:
    """What all devices send at a moment."""
    for sensor in range(SENSORS):
        warmth = 20 + sensor + 3 * math.sin(now / 20 + sensor)
        pack = [
            {"bn": f"urn:dev:s{sensor}:", "bt": now, "n": "temperature", "u": "Cel", "v": round(warmth, 2)},
            {"n": "dust", "u": "ug/m3", "v": round(30 + 5 * math.cos(now / 15), 1)},
        ]
        yield f"city/s{sensor}/sense", json.dumps(pack).encode()
    for number in range(ROOMS):
        for at, place in enumerate(("door", "shelf", "window")):
            good = json.dumps({"temperature": round(19 + at + math.sin(now / 10 + number), 2)}).encode()
            yield f"room/{number}/{place}", TEXT if number == FAULTY else good


class World:
    """Three boards whose devices send until the end."""

    def __init__(self, folder: Path, broker: Broker) -> None:
        self.rig = Rig(folder, broker)
        self.fleet = Fleet(self.rig)
        self._ended = threading.Event()
        self._devices = threading.Thread(target=self._send)

    def start(self) -> None:
        self.fleet.start()
        until_done(lambda: self.fleet.ask("g1", "fleet.deploy", {"document": self.document(), "pins": PLACE}))
        for number in range(ROOMS):
            self.rig.deploy(self.gateway("g1"), room(number))
        self._devices.start()

    @staticmethod
    def document() -> dict[str, Any]:
        return {**truth.document(size_s=2.0, interval_s=0.5), "description": "City air, over three boards"}

    def gateway(self, name: str) -> Gateway:
        return self.fleet.boards.gateways[name]

    def url(self, name: str) -> str:
        return f"http://127.0.0.1:{self.gateway(name).port}/"

    def _send(self) -> None:
        client = self.rig.client()
        while not self._ended.wait(0.5):
            for topic, payload in messages(time.time()):
                client.publish(topic, payload, qos=1)
        client.disconnect()
        client.loop_stop()

    def close(self) -> None:
        self._ended.set()
        if self._devices.ident is not None:
            self._devices.join()
        self.fleet.close()
        self.rig.close()


@pytest.fixture
def world(tmp_path: Path, mosquitto: Callable[..., Broker]) -> Iterator[World]:
    world = World(tmp_path, mosquitto())
    try:
        world.start()
        yield world
    finally:
        world.close()


def text(page: Browser, selector: str) -> str:
    found: str = page.run("return document.querySelector(arguments[0])?.innerText ?? ''", selector)
    return found


def assert_nothing_is_cut_off(page: Browser) -> None:
    """At the width of a phone: neither the page nor anything in it has to be moved sideways."""
    page.emulate(390, 844)
    page.wait_for("return document.documentElement.scrollWidth <= window.innerWidth")
    cut = page.run(
        "return [...document.querySelectorAll('main *')].filter((e) => e.checkVisibility() && e.clientWidth > 40"
        " && e.scrollWidth > e.clientWidth + 1 && !e.classList.contains('key')).map((e) => e.outerHTML.slice(0, 200))"
    )
    assert cut == []


def test_no_figure_is_untrue_with_three_boards_16_flows_and_one_that_fails(world: World) -> None:
    with browser(1440, 900) as page:
        page.open(world.url("g1"))
        page.emulate(1440, 900)
        # the map, though no settings say where the agent is
        page.wait_for("return document.querySelector('#fleet-state')?.textContent === '3 of 3 alive'")
        page.wait_for("return document.querySelectorAll('#fleet-map .reach').length === 2")

        # many flows are folded, those at fault first
        page.wait_for(f"return document.querySelectorAll('.flow').length === {ROOMS + 1}")
        assert page.run("return document.querySelectorAll('.flow[open]').length") == 0
        page.wait_for(f"return document.querySelector('.flow').id === 'flow-room-{FAULTY}'")
        page.wait_for("return document.querySelector('.flow .badge').textContent === 'refuses all'")
        assert "21.5 C" in text(page, f"#flow-room-{FAULTY}")
        assert page.run("return document.querySelector('main').getBoundingClientRect().height") < 3000

        # operators elsewhere have the figures of their own boards
        page.run("document.querySelector('#flow-city-air').open = true")
        page.wait_for(f"return {OTHERS}.length === 2")
        page.wait_for(f"return {OTHERS}.every((n) => /[1-9][\\d.,]* rows\\/s/.test(n.textContent))")
        for operator, board in PLACE.items():
            own = world.gateway(board).wait(lambda s: s["flows"], "the flow")["flows"][0]["operators"]
            rows = next(one["rows_in"] for one in own if one["name"] == operator)
            shown = _rows_in(page, operator)
            assert 0 < shown <= rows, (operator, shown, rows)
            wait_for(partial(_has_rows, page, operator, rows), DEADLINE_S, f"the newest figures of {operator}")
        body = text(page, "#flow-city-air")
        assert "No results yet" not in body
        assert "Results of this flow leave from g3" in body
        links = page.run("return [...document.querySelectorAll('#flow-city-air .body a')].map((a) => a.href)")
        assert {world.url("g2"), world.url("g3")} == set(links)

        # results have times of people, and plots
        page.run("document.querySelector('#flow-room-0').open = true")
        page.wait_for("return document.querySelectorAll('#flow-room-0 .body > .scroll tbody tr').length === 3")
        row = text(page, "#flow-room-0 .body > .scroll tbody tr")
        assert len([cell for cell in row.split() if cell.count(":") == 2]) == 3, row  # start, end, newest
        page.wait_for("return document.querySelectorAll('#flow-room-0 .plot').length === 3")
        page.wait_for("return document.querySelector('#flow-room-0 .plot .line').getAttribute('d')?.includes('L')")
        assert_tiles_are_true(page, world)
        page.wait_for("return document.querySelector('#link-page .value').textContent === 'live'")
        assert page.violations() == []
        page.screenshot(ARTEFACTS / "page-three-boards.png")
        page.emulate(1440, 900, dark=True)
        assert page.violations() == []
        page.screenshot(ARTEFACTS / "page-three-boards-dark.png")
        assert_nothing_is_cut_off(page)
        assert page.violations() == []
        page.screenshot(ARTEFACTS / "page-three-boards-phone.png")

        # a search
        page.run(
            "const s = document.querySelector('#search'); s.value = 'refuses'; s.dispatchEvent(new Event('input'))"
        )
        seen = "[...document.querySelectorAll('.flow')].filter((e) => e.checkVisibility()).map((e) => e.id)"
        page.wait_for(f"return {seen}.join() === 'flow-room-{FAULTY}'")
        assert text(page, "#found") == f"1 of {ROOMS + 1} flows"

        # where the results leave, they are plotted in the unit that devices name
        page.open(world.url("g3"))
        page.wait_for(
            "return document.querySelectorAll('#flow-city-air .plot').length === arguments[0]".replace(
                "arguments[0]", str(SENSORS)
            )
        )
        page.wait_for("return document.querySelector('#flow-city-air .plot .now').textContent.endsWith('°C')")

        # a board that tells nothing has dashes, not zeros
        page.open(world.url("g1"))
        page.wait_for(f"return {OTHERS}.length === 2")
        world.gateway("g2").kill()
        page.wait_for(f"return {OTHERS}.some((n) => n.textContent.includes('– rows/s'))")
        assert "whose figures are not known here" in text(page, "#flow-city-air .boards")
        assert page.console_errors() == []


def _has_rows(page: Browser, operator: str, least: int) -> bool:
    return _rows_in(page, operator) >= least


def _rows_in(page: Browser, operator: str) -> int:
    cells = page.run(
        "return [...document.querySelectorAll('#flow-city-air .body > details tbody tr')]"
        ".map((r) => [...r.cells].map((c) => c.textContent)).find((r) => r[0].endsWith(arguments[0]))",
        operator,
    )
    return int(cells[3].replace(",", "")) if cells[3] != "–" else -1


def assert_tiles_are_true(page: Browser, world: World) -> None:
    """Each is that of the status of the moment or a moment later."""

    def number(tile: str) -> int:
        return int(text(page, f"#tile-{tile}").replace(",", ""))

    assert number("devices") == SENSORS + 3 * (ROOMS - 1), "a device that sends nothing but text is none that is heard"
    assert number("silent") == 0
    before = world.gateway("g1").status()
    wait_for(lambda: number("results") >= sum(f["rows_shipped"] for f in before["flows"]), DEADLINE_S, "results")
    wait_for(lambda: number("drops") >= sum(d["rows"] for d in before["drops"] if d["lost"]), DEADLINE_S, "drops")
    after = world.gateway("g1").status()
    assert number("results") <= sum(f["rows_shipped"] for f in after["flows"])
    assert number("drops") <= sum(d["rows"] for d in after["drops"] if d["lost"])
