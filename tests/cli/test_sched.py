"""`edgert sched`: what is shown of an agent's answers."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from agent.osched.component import switched_off
from edgert.cli.main import main
from edgert.cli.sched import explained, planned, shown
from edgert.control.server import ControlServer, Handler

COOPERATION: dict[str, Any] = {
    "state": "on",
    "boards": {
        "b": {"policy": "qs", "span": [0.0, 4000.0], "shares": True, "flows": ["air"], "age_s": 2.0},
        "c": {"policy": "hr", "span": None, "shares": False, "flows": ["heat"], "age_s": 9.0},
    },
    "held": {"air/in": 0.05}, "left_out": 2, "errors": ["d: expected"], "span": [0.0, 4000.0],
}  # fmt: skip
ROW: dict[str, Any] = {
    "driver": "edgert", "query": "air", "operator": "air/in", "location": "slot 0", "threads": 2,
    "metrics": {"queue_size": 400.0}, "priority": 20.0, "nice": 13, "held": 0.05, "cpu": 0.5, "waited": 0.25,
}  # fmt: skip
STATUS: dict[str, Any] = {
    "rule": "qs", "policy": "qs", "period_s": 1.0, "mechanism": "nice", "measures": {"cpu": 0.9}, "periods": 7,
    "lasted_s": {"report": 0.002, "action": 0.001, "cpu": 0.003}, "notes": ["a note"], "errors": ["an error"],
    "cooperation": COOPERATION, "operators": [ROW],
}  # fmt: skip


def test_status_shows_operators_the_other_boards_and_what_is_amiss() -> None:
    assert shown(STATUS).splitlines() == [
        "policy qs (qs) by nice every 1 s, cpu 90%",
        "period 7: asked 2.0 ms, acted within 1.0 ms, CPU 3.0 ms",
        "board b: qs, priorities 0 to 4000, flows air",
        "board c: hr, no threads, flows heat, shares no flow with this board",
        "held   air/in: 0.05 of its priority, its successor on another board is congested",
        "note   2 shared flows do not fit into what is told to other boards",
        "note   d: expected",
        "operator  location  metric          priority  nice  slice  got  waited",
        "air/in    slot 0    queue_size=400  20        13    -      50%  25%",
        "note   a note",
        "error  an error",
    ]


def test_a_board_on_its_own_says_nothing_of_others_and_one_that_does_not_cooperate_says_it() -> None:
    nothing = {"boards": {}, "held": {}, "left_out": 0, "errors": [], "span": []}
    assert "board" not in shown({**STATUS, "cooperation": {"state": "alone", **nothing}})
    off = shown({**STATUS, "cooperation": {"state": "off", **nothing}})
    assert "cooperation with other boards is off (sched.cooperate)" in off


def test_explain_and_dry_run_tell_of_operators_on_other_boards() -> None:
    answer = {
        **ROW, "policy": "qs", "latency_s": 0.1, "rank": 2, "of": 3, "shares_threads_with": [], "successors": [],
        "remote": {"air/out": {"queue_size": 8000.0}, "air/alarm": {}},
        "metrics": {"queue_size": {"value": 400.0, "about": "rows in the operator's queue", "from": []}},
    }  # fmt: skip
    lines = explained(answer).splitlines()
    assert "  sends to air/out on another board: queue_size 8000" in lines
    assert "  sends to air/alarm on another board: its board has not told of it" in lines
    assert "  its priority is 0.05 of what it were: that successor's queue is longer" in lines
    plan = {"policy": "qs", "actions": ["thread 7 (slot 0): nice 13"], "notes": ["on one scale with b"], "errors": []}
    assert planned(plan) == "policy qs would do:\n  thread 7 (slot 0): nice 13\nnote   on one scale with b"


def test_settings_of_the_agent_that_this_user_may_not_read_are_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = tmp_path / "agent.toml"
    settings.write_text("not TOML")
    monkeypatch.setattr("edgert.cli._control.AGENT_CONFIG", settings)
    monkeypatch.setattr(os, "access", lambda path, mode: path != settings)
    monkeypatch.setenv("EDGERT_AGENT_SOCKET", str(tmp_path / "agent.sock"))
    assert main(["sched", "status"]) == 1
    told = capsys.readouterr().err
    assert str(tmp_path / "agent.sock") in told
    assert str(settings) not in told


def test_an_agent_with_scheduling_off_says_which_setting_does_that(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with control_socket_answering(tmp_path / "agent.sock", switched_off()):
        assert main(["sched", "status", "--socket", str(tmp_path / "agent.sock")]) == 1
        assert main(["sched", "dry-run", "qs", "--json", "--socket", str(tmp_path / "agent.sock")]) == 1
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.count("expected sched.enabled = true in the agent's settings") == 2


def test_a_dry_run_without_the_engines_figures_is_no_plan_of_nothing() -> None:
    plan = {"policy": "qs", "actions": [], "notes": [], "errors": ["driver edgert: no gateway answers"]}
    assert planned(plan) == "policy qs would do:\n  not known\nerror  driver edgert: no gateway answers"


@contextmanager
def control_socket_answering(path: Path, handlers: Mapping[str, Handler]) -> Iterator[None]:
    """A control socket in a thread of its own."""
    loop = asyncio.new_event_loop()
    server = ControlServer(str(path), handlers)
    loop.run_until_complete(server.start())
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield
    finally:
        asyncio.run_coroutine_threadsafe(server.stop(), loop).result(30)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
