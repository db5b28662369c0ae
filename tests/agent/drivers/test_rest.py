"""Answers of a REST interface: bounded, never from another machine."""

from __future__ import annotations

import select
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from agent.drivers.base import DriverError
from agent.drivers.rest import MOST_BYTES, MOST_VALUES, Rest

ANSWERS = {
    "/good": b'{"a": 1}',
    "/long": b" " * MOST_BYTES + b"1",
    "/maps": b"[" + b"{}," * MOST_VALUES + b"1]",
    "/half": b"[" + b"{}," * (MOST_VALUES // 4 + 1) + b"1]",
    "/deep": b"[" * (MOST_VALUES - 1),
}


class Answers(BaseHTTPRequestHandler):
    """Each path, its kind of answer."""

    def do_GET(self) -> None:
        status = {"/moved": 302, "/broken": 500}.get(self.path.partition("?")[0], 200)
        self.send_response(status)
        if status == 302:
            self.send_header("Location", "/good")
        self.end_headers()
        if self.path == "/slow":
            self.say_slowly()
        self.wfile.write(ANSWERS.get(self.path, b"<html>"))

    def say_slowly(self) -> None:
        """A byte at a time, until the other side hangs up."""
        while not select.select([self.connection], [], [], 0.02)[0]:
            self.wfile.write(b" ")

    def log_message(self, *told: object) -> None:
        """Says nothing."""


@pytest.fixture
def interface(monkeypatch: pytest.MonkeyPatch) -> Iterator[Rest]:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
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
    with pytest.raises(DriverError, match="/long: expected at most 4194304 bytes and 100000 values in a look"):
        interface.get("/long")


def test_an_answer_of_many_small_values_is_an_error(interface: Rest) -> None:
    """16 MB of empty maps took 333 MB."""
    with pytest.raises(DriverError, match=r"/maps: expected at most .* values in a look, got more"):
        interface.get("/maps")


def test_all_answers_of_a_look_have_one_budget(interface: Rest) -> None:
    assert interface.get("/half")
    with pytest.raises(DriverError, match=r"/half: expected at most .* in a look, got more"):
        interface.get("/half")
    interface.begin()
    assert interface.get("/half")


def test_an_answer_that_is_nested_without_end_is_an_error(interface: Rest) -> None:
    with pytest.raises(DriverError, match="/deep: "):
        interface.get("/deep")


def test_an_answer_byte_by_byte_ends_with_the_time_for_it_or_with_the_agent(interface: Rest) -> None:
    """Each byte came in time, and there was no end of them."""
    address = interface._address
    slow = Rest("engine", address, "", timeout_s=0.2)
    with pytest.raises(DriverError, match=r"/slow: expected an end within 0\.\d+ s, got none"):
        slow.get("/slow")
    waiting = Rest("engine", address, "", timeout_s=10.0, ended=lambda: True)
    with pytest.raises(DriverError, match="/slow: expected an end"):
        waiting.get("/slow")


def test_a_name_of_the_engines_cannot_make_another_request_of_a_path(interface: Rest) -> None:
    with pytest.raises(DriverError, match="expected printable characters in a path"):
        interface.get("/jobs/x HTTP/1.0\r\n\r\nDELETE /jobs")
