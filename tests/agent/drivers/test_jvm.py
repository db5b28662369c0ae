"""Java processes: whose they are, and what they tell of their threads."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from agent.drivers import jvm
from agent.drivers.procfs import ProcFs

MAIN = "org.example.TaskManager"
NOBODY = 65534
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root starts processes of another user")
WAITS = "import sys; print(flush=True); sys.stdin.read()"
HIDES = f"import ctypes; ctypes.CDLL(None).prctl(4, 0); {WAITS}"
"""PR_SET_DUMPABLE: the process's folder in /proc is root's then."""


@contextmanager
def process(code: str = WAITS, user: int | None = None) -> Iterator[int]:
    """A process with the main class among its arguments."""
    python = sys.executable if user is None else "/usr/bin/python3"
    started = subprocess.Popen(
        [python, "-c", code, MAIN], stdin=subprocess.PIPE, stdout=subprocess.PIPE, user=user, cwd="/"
    )
    with started:
        assert started.stdout is not None
        started.stdout.readline()
        yield started.pid
        started.kill()


def test_a_process_of_the_agents_own_user_is_found() -> None:
    with process() as pid:
        found, notes = jvm.processes([MAIN], [os.geteuid()], ProcFs())
        assert found[pid][-2:] == [MAIN, ""]
        assert notes == []


@needs_root
@pytest.mark.parametrize("code", [WAITS, HIDES])
def test_a_process_of_another_user_is_left_alone_unless_that_user_is_named(code: str) -> None:
    """It would be moved into the group of root's agent, and get a better nice value."""
    with process(code, NOBODY) as pid:
        found, notes = jvm.processes([MAIN], [0], ProcFs())
        assert pid not in found
        assert [note for note in notes if f"processes of user {NOBODY} " in note and "sched.engine_users" in note]
        assert pid in jvm.processes([MAIN], [0, NOBODY], ProcFs())[0]


def fake_jcmd(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    path = folder / "jcmd"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=os.pathsep)


def test_threads_are_known_although_the_process_tells_of_them_without_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_jcmd(tmp_path, monkeypatch, """while :; do echo "\\"worker\\" #1 nid=$1 waiting"; done""")
    monkeypatch.setattr(jvm, "MOST_BYTES", 100_000)
    monkeypatch.setattr(jvm, "TIMEOUT_S", 100.0)
    with process() as pid:
        found, notes = jvm.ThreadNames([MAIN]).find({"worker"})
        assert {name: thread.tid for name, thread in found.items()} == {"worker": pid}
        assert notes == []


def test_a_process_that_tells_nothing_is_given_up_when_the_agent_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_jcmd(tmp_path, monkeypatch, "exec sleep 1000")
    with process() as pid:
        found, (note,) = jvm.ThreadNames([MAIN], ended=lambda: True).find({"worker"})
        assert found == {}
        assert note.startswith(f"process {pid} does not tell its threads: ")


def test_a_line_full_of_quotes_costs_no_more_than_its_length() -> None:
    """A regular expression went through it once for each of them, for minutes."""
    line = '"' + '" ' * 500_000 + "nid=x"
    assert list(jvm.parse_untrusted(f'{line}\n"a" #1 nid=7 x')) == [("a", 7)]
