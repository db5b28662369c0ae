"""Answers of a REST interface: bounded, never from another machine."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from agent.drivers.base import DriverError
from agent.drivers.rest import LONGEST_ANSWER, Rest


class Answers(BaseHTTPRequestHandler):
    """Each path, its kind of answer."""

    def do_GET(self) -> None:
        status = {"/moved": 302, "/broken": 500}.get(self.path.partition("?")[0], 200)
        self.send_response(status)
        if status == 302:
            self.send_header("Location", "/good")
        self.end_headers()
        self.wfile.write({"/good": b'{"a": 1}', "/long": b" " * LONGEST_ANSWER + b"1"}.get(self.path, b"<html>"))

    def log_message(self, *told: object) -> None:
        """Says nothing."""


@pytest.fixture
def interface(monkeypatch: pytest.MonkeyPatch) -> Iterator[Rest]:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    server = HTTPServer(("127.0.0.1", 0), Answers)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield Rest("engine", f"http://127.0.0.1:{server.server_port}/", "http://127.0.0.1:1")
    server.shutdown()
    thread.join()
    server.server_close()


def test_an_answer_is_parsed_without_a_proxy(interface: Rest) -> None:
    assert interface.get("/good") == {"a": 1}


@pytest.mark.parametrize(
    ("path", "message"),
    [("/moved", "302"), ("/broken?window=600", "/broken: .*500"), ("/page", "Expecting value")],
)
def test_redirects_errors_and_other_text_are_errors_of_the_driver(interface: Rest, path: str, message: str) -> None:
    with pytest.raises(DriverError, match=rf"engine: http://127\.0\.0\.1:\d+.*{message}"):
        interface.get(path)


def test_an_answer_that_is_too_long_is_an_error(interface: Rest) -> None:
    with pytest.raises(DriverError, match="/long: expected at most 16777216 bytes, got more"):
        interface.get("/long")
