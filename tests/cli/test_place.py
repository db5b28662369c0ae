"""`edgert place`, `weigh` and `explain --running`: what is asked, what is printed, and the exit status."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from edgert.cli.main import main
from edgert.control.server import ControlServer
from edgert.core.errors import EdgertError
from tests.cli.worlds import FIGURES

PLACED = {"flow": "air", "plan": 2, "assignment": {"readings": 0, "minute": 1}}


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[Callable[[str, Any], tuple[Path, list[Mapping[str, Any]]]]]:
    """Makes a server that answers one verb; returns its socket and the arguments that came."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    servers = []

    def serve(verb: str, answer: Any) -> tuple[Path, list[Mapping[str, Any]]]:
        came: list[Mapping[str, Any]] = []

        async def handler(arguments: Mapping[str, Any]) -> Any:
            came.append(arguments)
            if isinstance(answer, Exception):
                raise answer
            return answer

        server = ControlServer(tmp_path / "control.sock", {verb: handler})
        asyncio.run_coroutine_threadsafe(server.start(), loop).result(60.0)
        servers.append(server)
        return tmp_path / "control.sock", came

    yield serve
    for server in servers:
        asyncio.run_coroutine_threadsafe(server.stop(), loop).result(60.0)
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


def test_operators_and_slots_are_asked_for_and_what_came_of_it_is_shown(
    gateway: Callable[..., Any], capsys: pytest.CaptureFixture[str]
) -> None:
    path, came = gateway("place", PLACED)
    assert main(["place", "air", "minute=1", "x#2=0", "--socket", str(path)]) == 0
    assert came == [{"flow": "air", "moves": {"minute": 1, "x#2": 0}}]
    shown = capsys.readouterr().out.splitlines()
    assert shown[0] == "flow air runs by plan 2"
    assert [line.split() for line in shown[2:]] == [["readings", "slot", "0"], ["minute", "slot", "1"]]


def test_a_scheduler_is_asked_for(gateway: Callable[..., Any], capsys: pytest.CaptureFixture[str]) -> None:
    path, came = gateway("place", PLACED)
    assert main(["place", "air", "--by", "locality", "--json", "--socket", str(path)]) == 0
    assert came == [{"flow": "air", "by": "locality"}]
    assert json.loads(capsys.readouterr().out) == PLACED


def test_a_refusal_is_said(gateway: Callable[..., Any], capsys: pytest.CaptureFixture[str]) -> None:
    path, _ = gateway("place", EdgertError("expected a slot from 0 to 1 for minute, got 7"))
    assert main(["place", "air", "minute=7", "--socket", str(path)]) == 1
    assert capsys.readouterr().err == "edgert: expected a slot from 0 to 1 for minute, got 7\n"


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["place", "air"], "one of the arguments OPERATOR=SLOT --by is required"),
        (["place", "air", "minute"], "expected OPERATOR=SLOT, such as minute=1, got 'minute'"),
        (["place", "air", "minute=-1"], "expected OPERATOR=SLOT, such as minute=1, got 'minute=-1'"),
        (["place", "air", "=1"], "expected OPERATOR=SLOT, such as minute=1, got '=1'"),
        (["place", "air", "minute=1", "--by", "even"], "not allowed with argument"),
        (["place", "air", "--by", "even", "minute=1"], "OPERATOR=SLOT"),
        (["place", "air", "--by", "x"], "invalid choice: 'x'"),
        (["weigh", "air", "minute=much"], "expected OPERATOR=WEIGHT, such as minute=4, got 'minute=much'"),
    ],
)
def test_a_wrong_command_line_says_what_is_expected(
    arguments: list[str], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as error:
        main(arguments)
    assert error.value.code == 2
    assert why in capsys.readouterr().err


def test_weights_are_given_and_those_in_force_are_shown(
    gateway: Callable[..., Any], capsys: pytest.CaptureFixture[str]
) -> None:
    path, came = gateway("weigh", {"flow": "air", "weights": {"minute": 4.0}})
    assert main(["weigh", "air", "minute=4", "--socket", str(path)]) == 0
    assert came == [{"flow": "air", "weights": {"minute": 4.0}}]
    assert capsys.readouterr().out.splitlines()[-1].split() == ["minute", "4"]


def test_a_running_flow_is_explained_with_locations_and_rows(
    gateway: Callable[..., Any], capsys: pytest.CaptureFixture[str]
) -> None:
    air = FIGURES["flows"]["air"]
    edges = [
        {"from": "readings", "to": "minute", "rows": 1000, "bytes": 60_000},
        {"from": "minute", "to": "far", "rows": 7, "bytes": 700},
    ]
    path, _ = gateway("figures", {**FIGURES, "flows": {"air": {**air, "edges": edges}}})
    assert main(["explain", "air", "--running", "--socket", str(path)]) == 0
    out = capsys.readouterr().out.splitlines()
    assert out[0] == "flow air, version 2, plan 0, exactly-once, 2 instances on gateway g1"
    shown = [line.split() for line in out]
    assert shown[3] == ["readings", "g1/daemon", "source", "1", "1,000", "1,000"]
    assert shown[4][:2] == ["minute", "g1/1"]
    assert shown[7] == ["readings", "minute", "g1/daemon", "→", "g1/1", "1,000", "60", "kB"]
    assert shown[8] == ["minute", "far", "g1/1", "→", "another", "gateway", "7", "700", "B"]
    assert main(["explain", "none", "--running", "--socket", str(path)]) == 1
    assert "expected a flow that runs on gateway g1, one of air, got 'none'" in capsys.readouterr().err
