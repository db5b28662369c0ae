"""The demo itself, as a user starts it: real broker, gateway, collector and Spark, in short."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from benchmarks.ports import free_port
from tests.demo.worlds import children_of, fleet_rows, missing, windows_are_whole

START_S = 240.0
"""Spark's first session may fetch its jars, and other tests may have the cores."""
STOP_S = 120.0

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.timeout(700)]


@contextlib.contextmanager
def demo(data: Path, *options: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "edgert.cli.main", "demo", "--plain", "--data", str(data)]
    out = (data.parent / "demo.out").open("a")
    ports = ("--web-port", str(free_port()), "--broker-port", str(free_port()))
    process = subprocess.Popen([*command, *ports, *options], stdout=out, stderr=subprocess.STDOUT, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        out.close()


def wait_for(process: subprocess.Popen[str], condition: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + START_S
    while not condition():
        assert process.poll() is None, f"the demo ended with {process.returncode} before: {what}"
        assert time.monotonic() < end, f"not within {START_S} s: {what}"
        time.sleep(0.5)


def end(process: subprocess.Popen[str]) -> int:
    process.send_signal(signal.SIGTERM)
    return process.wait(STOP_S)


@pytest.mark.long  # test_tour.py ends the demo and starts it again on the same data, too
@pytest.mark.skipif(bool(missing()), reason=f"not installed: {missing()}")
def test_the_demo_fills_the_fleet_table_ends_on_sigterm_and_goes_on_where_it_stopped(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with demo(data, "--for", "600") as first:
        wait_for(first, lambda: len(fleet_rows(data)) > 5, "fleet rows")
        children = children_of(first.pid)
        assert len(children) == 5
        assert end(first) == 0
    assert not [pid for pid in children if Path(f"/proc/{pid}").exists()]
    landed = fleet_rows(data)

    with demo(data) as second:
        wait_for(second, lambda: len(fleet_rows(data)) > len(landed) + 11, "more fleet rows than the first run left")
        assert end(second) == 0

    rows = fleet_rows(data)
    windows_are_whole(rows)
    kept = {(row["window_start"], row["source"], row["quantity"]): row["n"] for row in rows}
    for row in landed:
        assert kept[row["window_start"], row["source"], row["quantity"]] >= row["n"]
    output = (tmp_path / "demo.out").read_text()
    assert "edgert central show machine" in output
    assert "all ready" in output


def test_a_child_that_dies_ends_the_demo_and_its_last_lines_are_shown(tmp_path: Path) -> None:
    """A broker that is not there is waited for; a gateway that cannot read its file is not."""
    if missing():
        pytest.skip(f"not installed: {missing()}")
    data = tmp_path / "data"
    data.mkdir()
    (data / "gateway").write_text("a file where the gateway's folder should be")
    with demo(data, "--for", "120") as process:
        assert process.wait(START_S) == 1
    output = (tmp_path / "demo.out").read_text()
    assert "edgert demo: gateway ended with status 1; its last lines:" in output
    assert str(data / "logs" / "gateway.log") in output


def test_without_what_it_needs_the_demo_says_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import sys; sys.modules['amqtt'] = None; sys.modules['rich'] = None\n")
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(Path(__file__).parents[2])])}
    command = [sys.executable, "-m", "edgert.cli.main", "demo", "--data", str(tmp_path / "data")]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=START_S, check=False)
    assert done.returncode == 1
    assert re.search(r"-m pip install '.*\[demo\]'", done.stderr)
    assert json.dumps("Traceback") not in done.stderr
