"""Supervision, with tiny real child processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from edgert.demo.children import Child, stop_all
from tests.waiting import wait_until

SLEEPER = "import time; print('up', flush=True); time.sleep(600)"
STUBBORN = (
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(600)"
)


def is_alive(pid: int) -> bool:
    """Whether a process runs (a zombie does not)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.fixture
def child(tmp_path: Path) -> Iterator[Callable[[str], Child]]:
    made: list[Child] = []

    def make(program: str, name: str = "") -> Child:
        name = name or f"child{len(made)}"
        made.append(Child(name, [sys.executable, "-c", program], tmp_path / "logs" / f"{name}.log"))
        return made[-1]

    yield make
    for one in made:
        one.stop(0.0)


def up(one: Child) -> None:
    one.start()
    wait_until(lambda: "up" in one.last_lines(), f"{one.name} is up")


def test_a_child_ends_on_sigterm(child: Callable[[str], Child]) -> None:
    one = child(SLEEPER)
    assert not one.is_running()
    up(one)
    assert one.is_running()
    assert one.stop() == -signal.SIGTERM
    assert not one.is_running()


def test_a_child_that_ignores_sigterm_is_killed_and_named(child: Callable[[str], Child]) -> None:
    stubborn = child(STUBBORN)
    up(stubborn)
    assert stubborn.stop(0.2) == -signal.SIGKILL
    up(stubborn)
    assert stop_all([stubborn, child(SLEEPER)], hurry=lambda: True) == ["child0"]


def test_children_end_in_the_order_given(tmp_path: Path, child: Callable[[str], Child]) -> None:
    notes = tmp_path / "notes"
    program = textwrap.dedent(
        """
        import signal, sys, time
        def end(*_):
            open({notes!r}, "a").write({name!r} + "\\n"); sys.exit(0)
        signal.signal(signal.SIGTERM, end); print("up", flush=True); time.sleep(600)
        """
    )
    made = [child(program.format(notes=str(notes), name=name)) for name in ("first", "second", "third")]
    for one in made:
        up(one)
    assert stop_all(made) == []
    assert notes.read_text().split() == ["first", "second", "third"]


def test_what_a_child_started_and_left_behind_ends_with_it(child: Callable[[str], Child]) -> None:
    one = child(
        "import subprocess, sys; p = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)']);"
        "print('pid', p.pid, flush=True); print('up', flush=True); p.wait()"
    )
    up(one)
    grandchild = int(next(line for line in one.last_lines() if line.startswith("pid")).split()[1])
    assert is_alive(grandchild)
    one.stop()
    wait_until(lambda: not is_alive(grandchild), "the grandchild is gone")


def test_the_message_names_child_status_last_lines_and_log(child: Callable[[str], Child]) -> None:
    one = child("import sys; print('no such broker'); sys.exit(3)")
    one.start()
    wait_until(lambda: one.status() is not None, "it ended")
    text = one.obituary()
    assert text.startswith("child0 ended with status 3; its last lines:")
    assert "    no such broker" in text
    assert str(one.log) in text


def test_the_obituary_of_a_killed_child_names_the_signal(child: Callable[[str], Child]) -> None:
    one = child(SLEEPER)
    up(one)
    assert one.pid is not None
    os.kill(one.pid, signal.SIGKILL)
    wait_until(lambda: one.status() is not None, "it ended")
    assert one.obituary().startswith("child0 was ended by SIGKILL")


def test_the_log_keeps_earlier_starts_but_last_lines_show_only_this_one(child: Callable[[str], Child]) -> None:
    one = child("print('hello')")
    for _ in range(2):
        one.start()
        wait_until(lambda: one.status() is not None, "it ended")
    assert one.last_lines() == ["hello"]
    assert one.log.read_text().count("hello") == 2


def test_children_die_when_the_demo_is_killed(tmp_path: Path) -> None:
    demo = textwrap.dedent(
        f"""
        import sys, time
        from pathlib import Path
        from edgert.demo.children import Child
        one = Child("one", [sys.executable, "-c", "import time; time.sleep(600)"], Path({str(tmp_path)!r}) / "one.log")
        one.start()
        print(one.pid, flush=True)
        time.sleep(600)
        """
    )
    parent = subprocess.Popen([sys.executable, "-c", demo], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    assert is_alive(pid)
    parent.kill()
    parent.wait()
    parent.stdout.close()
    wait_until(lambda: not is_alive(pid), "the child died with its parent")
