from __future__ import annotations

from datetime import UTC, datetime

import pytest

from edgert.demo.observe import Watcher, cell, fetch_status, shown
from gateway.web.server import WebServer
from tests.status_example import example_status
from tests.waiting import in_loop, wait_until


def test_a_watcher_keeps_its_last_answer_when_asking_fails() -> None:
    answers = iter([1, 2])

    def ask() -> int:
        try:
            return next(answers)
        except StopIteration:
            raise OSError("gone") from None

    watcher = Watcher(ask, 0.001, "test")
    watcher.start()
    wait_until(lambda: watcher.problem, "the watcher failed")
    assert (watcher.value, watcher.problem) == (2, "OSError: gone")
    watcher.stop()
    watcher.join()
    assert not watcher._thread.is_alive()


@in_loop
async def test_the_status_comes_over_http_past_any_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    import asyncio

    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    server = WebServer("127.0.0.1", 0, example_status)
    assert await server.start()
    try:
        assert await asyncio.to_thread(fetch_status, server.url) == example_status()
    finally:
        await server.stop()


def test_a_gateway_that_is_not_there_is_an_os_error() -> None:
    with pytest.raises(OSError, match="refused"):
        fetch_status("http://127.0.0.1:9/")


def test_cells_are_short() -> None:
    values = [None, 2.51234567, 145_460_000_000.5, 12_000, "a1", True]
    assert [cell(v) for v in values] == ["–", "2.5123", "145,460,000,000", "12,000", "a1", "True"]
    assert len(cell(datetime(2026, 1, 1, tzinfo=UTC))) == len("00:00:00")


def test_columns_that_tell_nothing_new_are_left_out() -> None:
    assert shown(("window_start", "window_end", "source", "gateways", "day")) == (0, 2)
