"""When a slot is taken to hang. No process: what counts is what the daemon has heard of it, and when it looked."""

from __future__ import annotations

from typing import Any

from edgert.links import frames
from gateway.hosts.slot_process import QUIET_S, SILENT_S, SlotProcess

LOOKS = 0.25
"""Seconds between two looks."""


class Child:
    """In place of a child process."""

    pid = 1

    def __init__(self) -> None:
        self.kills = 0

    def kill(self) -> None:
        self.kills += 1


class Watched:
    """A slot that is looked at as a daemon does."""

    def __init__(self) -> None:
        self.process = SlotProcess(0, {"pool": {}, "level": "info"}, self._frame, lambda process: None)
        self.child = Child()
        self.process._process = self.child  # type: ignore[assignment]
        self.now = 5_000.0
        self.process.look(self.now)
        self.process.reported({})

    def _frame(self, process: SlotProcess, received: list[Any]) -> None:
        if received[0] == frames.REPORT:
            process.reported(received[1])

    def says(self, *parts: Any) -> None:
        self.process._theirs.send(frames.frame(*parts))
        self.process._readable(self.process.link)

    def answers(self) -> bool:
        return self.process.answers

    def pass_time(self, seconds: float) -> None:
        for _ in range(round(seconds / LOOKS)):
            self.now += LOOKS
            self.process.look(self.now)


def test_a_slot_that_does_not_report_is_asked_for_nothing_and_then_killed() -> None:
    watched = Watched()
    watched.pass_time(QUIET_S - LOOKS)
    assert watched.answers()
    watched.pass_time(2 * LOOKS)
    assert watched.answers() is False
    watched.pass_time(SILENT_S - QUIET_S - 2 * LOOKS)
    assert watched.child.kills == 0
    watched.pass_time(3 * LOOKS)
    assert watched.child.kills == 1
    watched.pass_time(SILENT_S - 1.0)
    assert watched.child.kills == 1, "its end is awaited"


def test_a_slot_that_reports_does_not_hang_whatever_its_operators_do() -> None:
    watched = Watched()
    for _ in range(100):
        watched.pass_time(2.0)
        watched.says(frames.REPORT, {"cpu_s": 1.0}, {})
        assert watched.process.answers
    assert watched.child.kills == 0


def test_what_its_workers_say_is_no_report() -> None:
    """They go on though the thread that reads its links does not."""
    watched = Watched()
    for _ in range(17):
        watched.pass_time(2.0)
        watched.says(frames.MESSAGES, 1, "in", [])
    assert watched.child.kills == 1


def test_time_in_which_the_daemon_itself_stood_still_is_not_the_slots_silence() -> None:
    """Both were stopped (Ctrl-Z, a suspended machine): what the slot has said since waits to be read."""
    watched = Watched()
    watched.now += 1_000.0
    watched.process.look(watched.now)
    assert watched.process.answers
    assert watched.child.kills == 0
