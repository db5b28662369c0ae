"""`edgert status`, `flows` and `top`: which socket is asked, what is printed, and the exit status."""

from __future__ import annotations

import asyncio
import copy
import json
import os
import pty
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from edgert.cli import _control
from edgert.cli._control import table
from edgert.cli.main import main
from edgert.cli.top import view
from edgert.control.server import ControlServer
from gateway.status.conditions import Condition, Level
from tests.cli.worlds import FIGURES
from tests.integration.rig import ROOT
from tests.status_example import example_status, judged
from tests.waiting import wait_until


def condition(flow: str, level: Level, state: str, reason: str = "") -> dict[str, str]:
    return Condition("flow", flow, level, state, reason).plain()


FLOW: dict[str, Any] = {
    "name": "air", "version": 2, "condition": condition("air", "good", "running"), "delivery": "exactly-once",
    "instances": 3, "slots": [-1], "rows_in": 12_345, "rows_out": 678, "latency_s": 0.0042,
}  # fmt: skip


def later() -> dict[str, Any]:
    """The figures 2 s after `FIGURES`."""
    now = copy.deepcopy(FIGURES)
    now["monotonic"] = 12.0
    air = now["flows"]["air"]["instances"]
    air["readings"] |= {"at": 12.0, "rows_in": 5000, "busy_s": 0.3, "queue_rows": 42, "head_age_s": 0.25}
    air["minute"] |= {"at": 11.0, "rows_in": 1500, "busy_s": 0.6}
    now["threads"][0]["cpu_s"], now["threads"][1]["cpu_s"] = 1.1, 3.5
    return now


Answers = Mapping[str, Any]


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[Callable[[Answers], Path]]:
    """Makes a server that gives these answers, on a thread of its own; returns the path of its socket."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    servers = []

    def serve(answers: Answers) -> Path:
        async def start() -> None:
            def handler(verb: str) -> Any:
                async def answer(args: Mapping[str, Any]) -> Any:
                    found = answers[verb]
                    return next(found) if isinstance(found, Iterator) else found

                return answer

            server = ControlServer(tmp_path / "control.sock", {verb: handler(verb) for verb in answers})
            await server.start()
            servers.append(server)

        asyncio.run_coroutine_threadsafe(start(), loop).result(60.0)
        return tmp_path / "control.sock"

    yield serve
    for server in servers:
        asyncio.run_coroutine_threadsafe(server.stop(), loop).result(60.0)
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


def well() -> dict[str, Any]:
    status = example_status()
    for flow in status["flows"]:
        flow["state"] = "running"
    return status


def test_status_says_how_the_gateway_is(gateway: Callable[[Answers], Path], capsys: pytest.CaptureFixture[str]) -> None:
    path = gateway({"status": well()})
    assert main(["status", "--socket", str(path)]) == 0
    shown = capsys.readouterr().out
    assert "gateway g1 of fleet demo" in shown
    assert "connected to 127.0.0.1:1883, 100 messages, 5 unacknowledged" in shown
    assert "process 7, 36 MB, 3 instances, 1 restart" in shown
    assert "dropped      7 rows (" in shown, "rows that were kept are no loss"
    assert "!" not in shown
    assert "  now  " in shown


def test_status_as_json_is_the_status_object_with_raw_figures(
    gateway: Callable[[Answers], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    figures = {"gateway": "g1", "flows": {}}
    path = gateway({"status": well(), "figures": figures})
    assert main(["status", "--json", "--socket", str(path)]) == 0
    assert json.loads(capsys.readouterr().out) == {**well(), "figures": figures}


def test_status_is_1_where_something_is_not_well_and_says_what(
    gateway: Callable[[Answers], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    status = well()
    status["ingest"] |= {"connected": False, "error": "refused"}
    status["checkpoint"]["error"] = "disk full"
    status["slots"][0]["running"] = False
    status["flows"][0]["state"] = "stuck"
    path = gateway({"status": judged(status)})
    assert main(["status", "--socket", str(path)]) == 1
    shown = capsys.readouterr().out
    for problem in (
        "! sensors' broker: 127.0.0.1:1883: refused", "! checkpoint: disk full",
        "! slot 0: does not run", "! flow air: reaches no batch boundary",
    ):  # fmt: skip
        assert problem in shown


def test_flows_lists_each_with_where_it_runs(
    gateway: Callable[[Answers], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    stopped = condition("bad", "bad", "stopped", "is stopped: its checkpoint is damaged")
    failed = {"name": "bad", "condition": stopped, "slots": []}
    doubtful = condition("wide", "warning", "no input", "the broker is away")
    wide = {**FLOW, "name": "wide", "slots": [0, 1], "condition": doubtful}
    path = gateway({"flows": [FLOW, wide, failed]})
    assert main(["flows", "--socket", str(path)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split() == ["air", "running", "exactly-once", "gateway", "2", "3", "12,345", "678", "4.2", "ms"]
    assert "slots 0, 1" in lines[2]
    assert max(map(len, lines[:4])) <= 80
    assert "no input" in lines[2]
    assert lines[-2:] == ["! flow bad: is stopped: its checkpoint is damaged", "? flow wide: the broker is away"]
    assert main(["flows", "--json", "--socket", str(path)]) == 1
    assert json.loads(capsys.readouterr().out)[0] == FLOW


def test_without_a_flow_flows_says_how_to_bring_one(
    gateway: Callable[[Answers], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["flows", "--socket", str(gateway({"flows": []}))]) == 0
    assert "edgert deploy FLOWFILE" in capsys.readouterr().out


# -- top


def test_top_shows_rates_between_two_readings() -> None:
    shown = view.lines(FIGURES, later())
    assert shown[0] == "gateway g1   80 % CPU of 400 %   over 2 s"
    assert shown[2] == "flow air, version 2, exactly-once, latency 4 ms (mean)"
    # 4,000 rows in 2 s for 0.2 s of work; 500 rows in the 1 s between a slot's reports, for 0.5 s
    assert shown[4].split() == ["readings", "gateway", "2,000", "42", "250", "ms", "50", "µs", "10.0", "%"]
    assert shown[5].split() == ["minute", "slot", "1", "500", "0", "0", "µs", "1", "ms", "50.0", "%"]
    assert shown[8].split() == ["worker", "9", "8", "slot", "1", "75.0", "%", "3.5", "s"]
    assert shown[9].split() == ["loop", "7", "7", "gateway", "5.0", "%", "1.1", "s"]


@pytest.mark.parametrize("change", ["new flow", "new version", "new plan", "no report yet", "first reading"])
def test_top_shows_no_rate_where_there_is_nothing_to_compare_with(change: str) -> None:
    before, now = copy.deepcopy(FIGURES), later()
    if change == "new flow":
        before["flows"] = {}
    elif change == "new version":
        now["flows"]["air"]["version"] = 3
    elif change == "new plan":
        now["flows"]["air"]["plan"] = 1
    elif change == "no report yet":
        for one in before["flows"]["air"]["instances"].values():
            one["at"] = 0.0
    else:
        before = now
    shown = view.lines(before, now)
    assert shown[4].split()[2] == "-"
    assert "-" in shown[4].split()[-1]


def test_a_thread_that_got_the_id_of_another_is_not_taken_for_it() -> None:
    now = later()
    now["threads"][1] |= {"start_ticks": 99, "cpu_s": 0.1}
    assert "-" in view.lines(FIGURES, now)[-1].split()


def test_top_once_prints_one_reading_and_ends(
    gateway: Callable[[Answers], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    path = gateway({"figures": iter([FIGURES, later()])})
    assert main(["top", "--once", "--every", "0.1", "--socket", str(path)]) == 0
    assert "2,000" in capsys.readouterr().out


@pytest.mark.integration
def test_top_in_a_terminal_ends_with_q_and_leaves_it_as_it_was(gateway: Callable[[Answers], Path]) -> None:
    path = gateway({"figures": FIGURES})
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "edgert.cli.main", "top", "--every", "0.1", "--socket", str(path)]
    process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, cwd=ROOT)
    os.close(theirs)
    seen = bytearray()

    def drain() -> None:
        try:
            while chunk := os.read(ours, 10_000):
                seen.extend(chunk)
        except OSError:
            return  # the other end was closed

    reader = threading.Thread(target=drain)
    reader.start()
    try:
        wait_until(lambda: seen.count(b"flow air") >= 3, "three screens")
        os.write(ours, b"q")
        assert process.wait(60.0) == 0
    finally:
        process.kill()
        reader.join(60.0)
        os.close(ours)
    assert seen.startswith(b"\x1b[?1049h\x1b[?25l")
    assert seen.rstrip().endswith(b"\x1b[?25h\x1b[?1049l")


@pytest.mark.integration
def test_top_without_a_terminal_prints_until_it_is_interrupted(gateway: Callable[[Answers], Path]) -> None:
    path = gateway({"figures": FIGURES})
    # a shell that runs tests in the background has them ignore Ctrl-C, and all that they start
    command = ["env", "--default-signal=INT", sys.executable, "-m", "edgert.cli.main", "top", "--every", "0.1"]
    with subprocess.Popen(
        [*command, "--socket", str(path)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, cwd=ROOT
    ) as process:
        assert process.stdout is not None
        heads = 0
        while heads < 3:
            line = process.stdout.readline()
            assert line, "it ended by itself"
            heads += line.startswith("gateway g1")
            assert "\x1b" not in line
        process.send_signal(signal.SIGINT)
        assert process.wait(60.0) == 130


# -- which socket


def test_nobody_there_is_said_with_all_that_was_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "gateway.toml"
    config.write_text(f'[gateway]\ndata_dir = "{tmp_path}/data"\n')
    for name in ("RUNTIME_DIRECTORY", "XDG_RUNTIME_DIR"):
        monkeypatch.delenv(name, raising=False)
    assert main(["status", "--config", str(config)]) == 1
    said = capsys.readouterr().err
    assert f"looked for {tmp_path}/data/control.sock. Is the gateway running" in said
    assert main(["top", "--socket", str(tmp_path / "x.sock")]) == 1
    assert f"{tmp_path}/x.sock: there is no such socket: is the program running?" in capsys.readouterr().err


def test_a_gateway_without_a_socket_is_said_to_be_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "gateway.toml"
    config.write_text("[control]\nenabled = false\n")
    assert main(["flows", "--config", str(config)]) == 1
    assert "control.enabled is false" in capsys.readouterr().err


def test_sockets_are_looked_for_where_gateways_put_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_control, "CONFIG", Path("/nowhere"))
    monkeypatch.delenv("RUNTIME_DIRECTORY", raising=False)
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/run/user/5")
    monkeypatch.setattr(os, "geteuid", lambda: 5)
    assert _control.candidates(None) == ["/run/user/5/edgert/control.sock", "/run/edgert/control.sock"]
    monkeypatch.setenv("EDGERT_GATEWAY_DATA_DIR", "/data")
    assert _control.candidates(None)[0] == "/data/control.sock"
    monkeypatch.setenv("EDGERT_CONTROL_SOCKET", "/x/y.sock")
    assert _control.candidates(None) == ["/x/y.sock"]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.0, "0 µs"), (2.5e-6, "2.5 µs"), (0.004, "4 ms"), (90, "90 s"), (600, "10 min"), (9000, "2.5 h")],
)
def test_times_are_shown_in_the_unit_that_suits_them(seconds: float, text: str) -> None:
    assert _control.duration(seconds) == text


LOOP = """
name = "warm"
[operators.in]
type = "mqtt_source"
topic = "a/{source}"
[operators.hot]
type = "filter"
input = "in"
where = "t > 20"
[operators.out]
type = "publish"
input = "hot"
topic = "a/{source}"
"""


@pytest.mark.parametrize("verb", [("deploy", "--fleet", "farm"), ("fleet", "deploy", "--json")])
def test_a_loop_that_there_may_be_is_said_to_who_deploys_for_the_fleet(
    verb: tuple[str, ...], gateway: Callable[[Answers], Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "warm.toml"
    file.write_text(LOOP)
    placed = {"flow": "warm", "plan": 1, "assignment": {"in": "g1", "hot": "g1", "out": "g1"}}
    path = gateway({"fleet.status": {"fleet": "farm"}, "fleet.deploy": placed})
    assert main([*verb, str(file), "--socket", str(path)]) == 0
    assert "note: the flow may read what it publishes" in capsys.readouterr().err


def test_a_table_that_is_wider_than_a_terminal_comes_in_blocks_with_the_first_column() -> None:
    head = ("flow", "state", *(f"column {n}" for n in range(8)))
    rows = [("city-air", "running", *(f"{n:,}" for n in range(10**9, 10**9 + 8))), ("soil", "failed", *"abcdefgh")]
    lines = table(head, rows, 2)
    assert max(map(len, lines)) <= 80
    first, second = (lines[: lines.index("")], lines[lines.index("") + 1 :])
    assert [line.split()[0] for line in first] == ["flow", "city-air", "soil"]
    assert [line.split()[0] for line in second[:3]] == ["flow", "city-air", "soil"]
    assert sum(line.count("1,000,000,0") for line in lines) == 8, "nothing is left out"
    assert table(("flow", "rows"), [("a", "1")]) == ["flow  rows", "a        1"]
