"""Killed at any step of applying or undoing, with threads and processes that come and go in between: in the end every
thread has the value that it would have without an agent."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from agent.drivers.entities import Thread
from agent.drivers.procfs import Seen
from agent.osched.kernel import journal as journal_module
from agent.osched.kernel.actions import SetNice
from agent.osched.kernel.door import Door
from agent.osched.kernel.journal import Journal
from agent.osched.kernel.rights import Abilities
from tests.examples import examples

ABLE: Final = Abilities(nice=True, slice_ns=None, cgroups=None)
EVENTS: Final = ("spawn", "clone", "fork", "fork slowly", "exit", "reuse", "tick")
REUSED_AFTER: Final = 3
"""Ticks, each an event: never between a look at a thread and its change."""
STRANGER: Final = 7
"""Nice value of a process that has nothing to do with the engines."""


class Killed(BaseException):
    """kill -9: no handler of `Exception` sees it."""


@dataclass
class Task:
    """A thread. `own` is the nice value that it would have without an agent."""

    pid: int
    tid: int
    parent: int
    start: int
    nice: int
    own: int


class Board:
    """Processes; stands in for /proc and for setpriority. Each effect of the agent, and each of its looks, is a step:
    before it an event happens, or the agent is killed."""

    def __init__(self, events: Sequence[tuple[str, int]]) -> None:
        self._events = list(events)
        self._now, self._next_id = 100, 30
        self._tasks = [Task(10, 10, 1, 50, 0, 0), Task(10, 11, 1, 60, 0, 0), Task(20, 20, 1, 55, 3, 3)]
        self._leaders = {10: (50, 1), 20: (55, 1)}
        """Process -> (start, parent); its first thread may have ended."""
        self._under_way: list[Task] = []
        """Copied from their starters, not in /proc yet."""
        self._freed: list[tuple[int, int]] = []
        """(id, when its thread ended). The kernel goes through all other ids before it gives one again."""
        self.steps_left = 0

    # -- what happens

    def step(self) -> None:
        if self._events:
            kind, number = self._events.pop(0)
            self._happen(kind, self._tasks[number % len(self._tasks)])
        self.steps_left -= 1
        if self.steps_left == 0:
            raise Killed

    def _happen(self, kind: str, task: Task) -> None:
        if kind == "tick":
            self._now += 1
        elif kind == "exit":
            self._end(task)
        elif kind == "reuse" and self._freed and self._freed[0][1] + REUSED_AFTER < self._now:
            pid, _ = self._freed.pop(0)
            self._appear(Task(pid, pid, 1, 0, STRANGER, STRANGER))
        elif kind in ("spawn", "clone", "fork", "fork slowly"):
            self._next_id += 1
            new, forks = self._next_id, "fork" in kind
            child = Task(new if forks else task.pid, new, task.pid if forks else task.parent, 0, task.nice, task.own)
            if kind in ("spawn", "fork"):
                self._appear(child)
            else:
                self._under_way.append(child)

    def _appear(self, task: Task) -> None:
        task.start = self._now
        self._tasks.append(task)
        if task.pid == task.tid:
            self._leaders[task.pid] = (task.start, task.parent)

    def _end(self, task: Task) -> None:
        last = not any(t.pid == task.pid for t in self._tasks if t is not task)
        under_way = any(t.pid == task.pid or t.parent == task.pid for t in self._under_way)
        parent = any(start and of == task.pid for start, of in self._leaders.values())
        if len(self._tasks) == 1 or (last and (parent or under_way)):
            return  # children of a process that has ended: /proc does not say any more whose they were
        self._tasks.remove(task)
        if last:
            del self._leaders[task.pid]
        if task.tid != task.pid or last:
            self._freed.append((task.tid, self._now))

    def wait(self, seconds: float) -> None:
        """Whatever was being started is there after it."""
        self.step()
        self.land()

    def land(self) -> None:
        for task in self._under_way:
            self._appear(task)
        self._under_way.clear()

    # -- /proc

    def boot_id(self) -> str:
        return "boot"

    def now_ticks(self) -> int:
        return self._now

    def started(self, pid: int) -> int | None:
        return self._leaders[pid][0] if pid in self._leaders else None

    def parent(self, pid: int) -> int | None:
        return self._leaders[pid][1] if pid in self._leaders else None

    def children(self) -> dict[int, list[int]]:
        self.step()
        return {of: [c for c, (_, p) in self._leaders.items() if p == of] for of in (*self._leaders, 1)}

    def threads(self, pid: int) -> list[Seen]:
        self.step()
        return [Seen(Thread(t.pid, t.tid, t.start), "", t.nice, 0.0) for t in self._tasks if t.pid == pid]

    def is_same(self, thread: Thread) -> bool:
        return self._find(thread) is not None

    def _find(self, thread: Thread) -> Task | None:
        return next((t for t in self._tasks if (t.pid, t.tid, t.start) == thread), None)

    # -- nice values

    def get(self, kind: str, thread: Thread) -> int | None:
        task = self._find(thread)
        return task.nice if task else None

    def is_ours(self, kind: str, value: int | None) -> bool:
        return value is not None

    def put(self, kind: str, thread: Thread, value: int) -> None:
        self.step()
        task = next((t for t in self._tasks if t.tid == thread.tid), None)
        if task is None:
            raise ProcessLookupError
        assert task.start == thread.start_ticks or task.own != STRANGER, "a stranger's thread was changed"
        task.nice = value

    put_back = put

    # -- for the test

    def reported(self) -> list[Thread]:
        """What a driver would report: all threads but strangers'."""
        return [Thread(t.pid, t.tid, t.start) for t in self._tasks if t.own != STRANGER]

    def changed(self) -> list[Task]:
        return [t for t in self._tasks if t.nice != t.own]


class Files:
    """Stands in for `os` in the journal: its effects are steps, and a kill cuts a write at any byte."""

    def __init__(self, board: Board, cut: int) -> None:
        self._board, self._cut = board, cut

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def write(self, file: int, data: bytes) -> int:
        try:
            self._board.step()
        except Killed:
            os.write(file, bytes(data)[: self._cut % (len(data) + 1)])
            raise
        return os.write(file, data)

    def fsync(self, file: int) -> None:
        self._board.step()

    def replace(self, old: Path, new: Path) -> None:
        self._board.step()
        os.replace(old, new)

    def unlink(self, path: Path) -> None:
        self._board.step()
        os.unlink(path)


@contextmanager
def killable(board: Board, steps: int, cut: int) -> Iterator[None]:
    """An agent's life of so many steps; 0: it is not killed."""
    board.steps_left = steps
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(journal_module, "os", Files(board, cut))
        try:
            yield
        except Killed:
            board.steps_left = 0


def door(board: Board, folder: Path) -> Door:
    stand_in: Any = board
    return Door(folder / "journal", ABLE, stand_in, stand_in, board.wait)


def live(board: Board, folder: Path, nices: Sequence[int], pick: int, ends: bool) -> None:
    """An agent: some periods, in each of which it changes some of the threads; then perhaps it stops by itself."""
    made = door(board, folder)
    made.undo_left_over()
    for period, nice in enumerate(nices):
        threads = [t for n, t in enumerate(board.reported()) if (pick >> ((n + period) % 8)) & 1]
        made.apply([SetNice(thread, (nice + n) % 20) for n, thread in enumerate(threads)])
    if ends:
        made.close()


LIVES = st.tuples(
    st.integers(1, 60),
    st.integers(0, 400),
    st.lists(st.integers(0, 19), max_size=4),
    st.integers(0, 255),
    st.booleans(),
)
HAPPENINGS = st.tuples(st.sampled_from((*EVENTS, "tick")), st.integers(0, 30))


@settings(deadline=None, max_examples=examples(60, 200))
@given(lives=st.lists(LIVES, min_size=1, max_size=4), events=st.lists(HAPPENINGS, max_size=60))
@example(  # a thread that is being started when its starter is put back
    lives=[(0, 0, [9], 255, False)], events=[("tick", 0)] * 6 + [("clone", 0)]
)
def test_nothing_stays_changed_wherever_the_agent_is_killed(
    lives: list[tuple[int, int, list[int], int, bool]], events: list[tuple[str, int]]
) -> None:
    board = Board(events)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for steps, cut, nices, pick, ends in lives:
            with killable(board, steps, cut):
                live(board, folder, nices, pick, ends)
        board.land()
        with killable(board, 0, 0):
            door(board, folder).undo_left_over()
        assert board.changed() == []
        assert Journal(folder / "journal", board.boot_id()).load() == []
