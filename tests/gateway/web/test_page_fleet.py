"""The fleet's part of the page in a real headless browser, with an agent that tells of moves and loads."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from edgert.control.server import ControlServer
from gateway.web.server import WebServer
from tests.gateway.web import webdriver
from tests.gateway.web.webdriver import Browser, browser
from tests.gateway.worlds import ARTEFACTS
from tests.status_example import example_status

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(bool(webdriver.missing()), reason=webdriver.missing() or "-"),
]
COSTS = {"pause_s": 0.14, "rows_delayed": 1_200, "ahead_bytes": 812_000, "paused_bytes": 9_600}
MOVES = [
    {"at": 1_700_000_000.0, "from": "g2", "to": "g1", "reason": "air: window to g1 (asked for at g1)", **COSTS},
    {"at": 1_700_000_100.0, "from": "g1", "to": None, "reason": "window stays: add capacity, or shed"},
    {"at": 1_700_000_200.0, "from": "g1", "to": "g3", "reason": "air: window to g3 (drain of g1)", **COSTS},
]
LOAD = {"load": {"cpu": 0.5, "link": 0.1}, "load_predicted_before": {"cpu": 0.4, "link": 0.42},
        "load_predicted": {"cpu": 0.9, "link": 0.2}}  # fmt: skip
MEMBERS = [
    {"gateway": name, "state": "alive", "self": name == "g1", "estimated_ms": 2.0, "measured_ms": 3.0,
     "coordinate": [float(number), 1.0], "load": {"load": 1.0}, "board": {"cores": 4}}
    for number, name in enumerate(("g1", "g2"))
]  # fmt: skip
TOLD: dict[str, dict[str, Any]] = {
    "fleet.status": {"fleet": "test", "members": MEMBERS},
    "fleet.flows": {"flows": {}},
    "fleet.moves": {"moves": MOVES, "loads": {"g1": LOAD}},
}


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    """Of a page of a board with an agent."""
    loop, found, ready = asyncio.new_event_loop(), [""], threading.Event()
    stopping = asyncio.Event()

    async def serve() -> None:
        handlers = {verb: _answer(told) for verb, told in TOLD.items()}
        agent = ControlServer(str(tmp_path / "agent.sock"), handlers)
        await agent.start()
        server = WebServer("127.0.0.1", 0, example_status, agent_socket=lambda: str(tmp_path / "agent.sock"))
        assert await server.start()
        found[0] = server.url
        ready.set()
        await stopping.wait()
        await server.stop()
        await agent.stop()

    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()))
    thread.start()
    assert ready.wait(60)
    try:
        yield found[0]
    finally:
        loop.call_soon_threadsafe(stopping.set)
        thread.join()
        loop.close()


def _answer(told: dict[str, Any]) -> Any:
    async def handler(args: Mapping[str, Any]) -> Any:
        return told

    return handler


@pytest.fixture
def fleet_page(url: str) -> Iterator[Browser]:
    with browser() as page:
        page.open(url)
        page.wait_for("return document.querySelectorAll('#fleet-moves tbody tr').length === 3", 60)
        yield page


def _rows(page: Browser, table: str) -> list[list[str]]:
    script = "return [...document.querySelectorAll('{} tbody tr')].map((r) => [...r.cells].map((c) => c.textContent))"
    found: list[list[str]] = page.run(script.replace("{}", table))
    return found


def test_the_last_moves_have_reason_pause_bytes_and_rows_and_loads_stand_beside_their_prediction(
    fleet_page: Browser,
) -> None:
    newest, refused, oldest = (row[1:] for row in _rows(fleet_page, "#fleet-moves"))
    costs = ["140 ms", "822 kB", "1,200"]
    assert newest == ["g1", "g3", "air: window to g3 (drain of g1)", *costs]
    assert refused == ["g1", "stays", "window stays: add capacity, or shed", "–", "–", "–"]
    assert oldest == ["g2", "g1", "air: window to g1 (asked for at g1)", *costs]
    loads = [row[6:9] for row in _rows(fleet_page, "#fleet-table")]
    assert loads == [["50 %", "42 %", "90 %"], ["–", "–", "–"]]
    assert fleet_page.console_errors() == []
    fleet_page.emulate(1280, 1400)
    assert fleet_page.violations() == []
    fleet_page.screenshot(ARTEFACTS / "page-fleet-moves.png")
    fleet_page.emulate(390, 844)
    wide = fleet_page.run("return document.documentElement.scrollWidth > document.documentElement.clientWidth")
    assert not wide, "nothing is wider than a phone"
