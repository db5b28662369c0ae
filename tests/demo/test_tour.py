"""The five-minute tour as a reader pastes it: every ```sh block, in order, beside a demo that runs."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from benchmarks.ports import free_port
from tests.demo.worlds import children_of, fleet_rows, missing, windows_are_whole

ROOT = Path(__file__).parents[2]
HEADING = "Five-minute tour"
UP_S, ROWS_S, BLOCK_S, STOP_S = 240.0, 420.0, 180.0, 90.0
"""Longest waits: for the demo's flow, for rows in a table, for one block, for the end of the demo."""

pytestmark = [
    pytest.mark.integration,
    pytest.mark.spark,
    pytest.mark.timeout(900),
    pytest.mark.skipif(bool(missing()), reason=f"not installed: {missing()}"),
]


def tour() -> str:
    """That section of the README."""
    text = (ROOT / "README.md").read_text()
    found = re.search(rf"^(#+) {HEADING}$", text, re.MULTILINE)
    assert found is not None
    rest = text[found.end() :]
    # In a block a line may begin with # too, so a next heading counts only outside of blocks.
    parts = re.split(r"(^```.*?^```$)", rest, flags=re.MULTILINE | re.DOTALL)
    section = ""
    for part in parts:
        following = None if part.startswith("```") else re.search(rf"^#{{1,{len(found[1])}}} ", part, re.MULTILINE)
        section += part[: following.start()] if following else part
        if following:
            break
    return section


def blocks() -> list[str]:
    return re.findall(r"^```sh\n(.*?)^```$", tour(), re.MULTILINE | re.DOTALL)


def wait_for(condition: Callable[[], object], what: Callable[[], str], deadline_s: float) -> None:
    end = time.monotonic() + deadline_s
    while not condition():
        assert time.monotonic() < end, f"not within {deadline_s:g} s: {what()}"
        time.sleep(0.25)


class Reader:
    """Two terminals in one folder: the demo in one, the other for all else."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.out = folder / "demo.out"
        self.demo: subprocess.Popen[bytes] | None = None
        self.env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
        command = folder / ".venv/bin/edgert"
        command.parent.mkdir(parents=True)
        command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m edgert "$@"\n')
        command.chmod(0o755)

    def start(self) -> None:
        """`make demo`, on ports that are free. Returns when its flow runs."""
        ports = ["--web-port", str(free_port()), "--broker-port", str(free_port())]
        command = [sys.executable, "-m", "edgert", "demo", "--plain", *ports]
        with self.out.open("wb") as out:
            self.demo = subprocess.Popen(command, cwd=self.folder, env=self.env, stdout=out, stderr=out)
        wait_for(lambda: "sensors: ready" in self.said(), self.said, UP_S)

    def said(self) -> str:
        text = self.out.read_text()
        assert self.demo is None or self.demo.poll() is None, f"the demo ended: {text}"
        return text

    def found(self, pattern: str) -> str:
        match = re.search(pattern, self.said(), re.MULTILINE)
        assert match, f"{pattern} is not in: {self.said()}"
        return match[1]

    def end(self, by: signal.Signals) -> str:
        """Ends the demo, and sees that nothing of it is left; returns all it said."""
        assert self.demo is not None
        children = children_of(self.demo.pid)
        assert len(children) == 5, self.out.read_text()
        self.demo.send_signal(by)
        assert self.demo.wait(STOP_S) == 0, self.out.read_text()
        assert not [pid for pid in children if Path(f"/proc/{pid}").exists()]
        self.demo = None
        return self.out.read_text()

    def paste(self, block: str) -> tuple[int, str]:
        """(status of its last command, what it printed)."""
        done = subprocess.run(
            ["bash", "-c", block], cwd=self.folder, env=self.env, timeout=BLOCK_S, check=False, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        return done.returncode, done.stdout

    def paste_until(self, block: str, holds: Callable[[str], object]) -> str:
        """What a reader does who is too early for a table: again."""
        told = [""]

        def look() -> bool:
            status, told[0] = self.paste(block)
            return status == 0 and bool(holds(told[0]))

        wait_for(look, lambda: f"{block}: {told[0]}\n{self.said()}", ROWS_S)
        return told[0]

    def flows(self) -> list[str]:
        """What the page shows."""
        url = self.found(r"page on (http://\S+/)$")
        with urllib.request.urlopen(f"{url}api/status", timeout=60) as answer:
            return [flow["name"] for flow in json.load(answer)["flows"]]


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    made = Reader(tmp_path)
    yield made
    if made.demo is not None:
        made.demo.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            made.demo.wait(STOP_S)
        made.demo.kill()  # its children end with it
        made.demo.wait()


def newest(table: str) -> str:
    """Start of the newest window in a printed fleet table; empty if there is none, or only contributions to it."""
    if "is not there yet" in table:
        return ""
    starts: list[str] = re.findall(r"^\d{4}-\d\d-\d\d \S+", table, re.MULTILINE)
    return max(starts, default="")


def test_the_tour_works_when_it_is_pasted(reader: Reader) -> None:
    begin, look, write, deploy, own, broken, remove = blocks()

    assert begin.strip() == "make demo"
    reader.start()
    first = newest(reader.paste_until(look, newest))

    status, told = reader.paste(write)
    assert (status, "flow cores is good" in told) == (0, True), told
    status, told = reader.paste(deploy)
    assert (status, "flow cores" in told, "accepted, version 1" in told) == (0, True, True), told
    wait_for(lambda: "cores" in reader.flows(), lambda: "cores on the page", BLOCK_S)
    rows = reader.paste_until(own, newest)
    assert "busiest" in rows
    assert "-cpu0 " in rows

    status, told = reader.paste(broken)
    assert status == 1, told
    for fault in ("operators.five-seconds.size_s", "'most'", "'shipp'"):
        assert fault in told, told
    assert "cores" in reader.flows(), "the good version runs on"
    status, told = reader.paste(remove)
    assert (status, "version 1 is removed" in told) == (0, True), told
    wait_for(lambda: reader.flows() == ["machine"], lambda: "cores off the page", BLOCK_S)

    said = reader.end(signal.SIGINT)  # Ctrl-C
    assert re.search(
        r"central show machine --root demo-data/tables .*\n.* deploy \S+ --config demo-data/gateway.toml .*\n +http://",
        said,
    )
    _, left = reader.paste(look)
    assert newest(left) >= first
    reader.start()
    assert "version 1 is accepted" in reader.said(), "the flow of before runs on, it is not a new one"
    reader.paste_until(look, lambda table: newest(table) > newest(left))
    reader.end(signal.SIGTERM)
    windows_are_whole(fleet_rows(reader.folder / "demo-data"))
