"""The door: the one place that changes how the kernel schedules a thread.

Before the first change of a thread its old value is in the journal, on disk. `undo` puts everything back, also what a
killed agent left (`kernel/undo.py`). A thread is changed only while its id, process and start time are those that a
driver reported.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from agent.drivers.entities import Thread
from agent.drivers.procfs import ProcFs
from agent.osched.kernel.actions import Action, SetCores, SetGroup, SetNice, SetSlice
from agent.osched.kernel.journal import Before, ChangeKind, Journal, MadeGroup
from agent.osched.kernel.rights import Abilities, abilities
from agent.osched.kernel.thread_values import ThreadValues
from agent.osched.kernel.undo import Undo

log = logging.getLogger(__name__)
SPARE_RECORDS: Final = 1000
"""Records of ended threads that may stand in the journal before it is written anew."""


@dataclass(slots=True)
class AppliedActions:
    """The result of one application of actions."""

    changed: int = 0
    gone: int = 0
    """Threads that ended, or whose id belongs to another thread by now."""
    errors: list[str] = field(default_factory=list)


class Door:
    """Applies actions and undoes them, one call at a time. Only one process may use a journal.

    The journal of a killed agent is undone before the first change. `wait` blocks for a number of seconds.
    """

    def __init__(
        self,
        journal: Path,
        able: Abilities | None = None,
        proc: ProcFs | None = None,
        values: ThreadValues | None = None,
        wait: Callable[[float], None] = time.sleep,
    ) -> None:
        self.proc = proc or ProcFs()
        self.able = able or abilities()
        self._journal = Journal(journal, self.proc.boot_id())
        self._values = values or ThreadValues(self.able, self.proc)
        self._undoing = Undo(self._values, self.proc, self.able.cgroups, wait)
        self._noted: dict[tuple[ChangeKind, Thread], Before] = {}
        self._of_process: dict[tuple[ChangeKind, int, int], Before] = {}
        """The first record of each process."""
        self._made: set[str] = set()
        self._holds: dict[tuple[ChangeKind, Thread], int | str] = {}
        """The values that we set last: the kernel is not asked again for it."""
        self._group_files: dict[Path, dict[str, str]] = {}
        self.spare_records = SPARE_RECORDS
        self._lock = threading.Lock()
        self._loaded = self._closed = False

    # -- undoing

    def undo_left_over(self) -> int:
        """Undo what a killed agent of this boot left; the number of records found. Raises `OSError` if the journal
        cannot be read: nothing is changed then."""
        with self._lock:
            return self._undo_left_over()

    def _undo_left_over(self) -> int:
        if self._loaded:
            return 0
        records = self._journal.load()
        self._loaded = True
        self._undo()
        return len(records)

    def undo(self) -> None:
        """Put back all that was changed."""
        with self._lock:
            self._undo()

    def close(self) -> None:
        """Put back all that was changed, and change nothing any more."""
        self._closed = True
        self.undo()

    def _undo(self) -> None:
        if not self._journal.records:
            return
        if self._undoing.run(self._journal.records):
            self._journal.clear()
        for known in (self._noted, self._of_process, self._made, self._holds, self._group_files):
            known.clear()

    # -- applying

    def apply(self, actions: Iterable[Action]) -> AppliedActions:
        """Make the actions hold, and put back what none of them asks for any more.

        Those that hold already cost nothing. An action that cannot be done is in `errors`.
        """
        with self._lock:
            return AppliedActions() if self._closed else self._apply(actions)

    def apply_at_once(self, actions: Sequence[Action]) -> AppliedActions | None:
        """`apply`, where it cannot block: no disk, no control group. None: nothing was done, call `apply` in a thread.

        On a busy board each change of thread waits for a core behind the threads that are to be scheduled.
        """
        if not self._lock.acquire(blocking=False):
            return None
        try:
            if self._closed or not self._loaded or not self._only_calls(actions):
                return None
            return self._apply(actions)
        finally:
            self._lock.release()

    def _only_calls(self, actions: Sequence[Action]) -> bool:
        """True if nothing but system calls on threads is left to do: their old values are on disk, groups hold."""
        cgroups, wanted = self.able.cgroups, set[tuple[ChangeKind, Thread]]()
        for action in actions:
            if isinstance(action, SetNice | SetSlice | SetCores):
                if (_of_thread(action)[0], action.thread) not in self._noted:
                    return False
            elif isinstance(action, SetGroup) and cgroups is not None:
                folder = cgroups.folder(action.group)
                moved = all(self._holds.get(("group", thread)) == str(folder) for thread in action.threads)
                if not moved or self._group_files.get(folder) != cgroups.files(action.share, action.quota):
                    return False
                wanted.update(("group", thread) for thread in action.threads)
        stays = all(key in wanted for key in self._holds if key[0] == "group")
        return stays and not self._journal_is_long(len(actions))

    def _journal_is_long(self, threads: int) -> bool:
        return len(self._noted) > 2 * threads + self.spare_records

    def _apply(self, actions: Iterable[Action]) -> AppliedActions:
        outcome = AppliedActions()
        try:
            self._undo_left_over()
        except OSError as error:
            outcome.errors.append(f"the journal cannot be read, so nothing was changed: {error}")
            return outcome
        threads: list[tuple[ChangeKind, Thread, int | str]] = []
        for action in actions:
            if isinstance(action, SetNice | SetSlice | SetCores):
                threads.append(_of_thread(action))
            elif isinstance(action, SetGroup):
                threads += self._prepare_group(action, outcome)
        self._release({(kind, thread) for kind, thread, _ in threads})
        wanted = [(k, t, v) for k, t, v in threads if self._holds.get((k, t)) != v and self._may(k, outcome)]
        try:
            self._note((k, t) for k, t, _ in wanted)
        except OSError as error:
            outcome.errors.append(f"the journal cannot be written, so nothing was changed: {error}")
            return outcome
        for kind, thread, value in wanted:
            self._change(kind, thread, value, outcome)
        if self._journal_is_long(len(threads)):
            self._forget_ended()
        return outcome

    def _forget_ended(self) -> None:
        """Drop the records of threads that have ended, but for the first of each living process: what its threads
        inherited is undone by it."""
        firsts = {id(b) for (_, pid, start), b in self._of_process.items() if self.proc.started(pid) == start}
        self._noted = {k: b for k, b in self._noted.items() if id(b) in firsts or self.proc.is_same(b.thread)}
        self._of_process = {k: b for k, b in self._of_process.items() if id(b) in firsts}
        kept = [r for r in self._journal.records if isinstance(r, MadeGroup) or (r.kind, r.thread) in self._noted]
        try:
            self._journal.rewrite(kept)
        except OSError as error:
            log.warning("osched: the journal cannot be written anew: %s", error)

    def _may(self, kind: ChangeKind, outcome: AppliedActions) -> bool:
        able = {
            "nice": self.able.nice, "slice": self.able.slice_ns is not None, "group": self.able.cgroups is not None,
            "cores": self.able.clusters is not None,
        }  # fmt: skip
        if not able[kind]:
            text = f"{kind} cannot be set on this board"
            if text not in outcome.errors:
                outcome.errors.append(text)
        return able[kind]

    def _release(self, wanted: set[tuple[ChangeKind, Thread]]) -> None:
        """Put back what no action asks for any more; forget threads that are gone."""
        in_groups = {thread.pid for kind, thread in wanted if kind == "group"}
        for key in [key for key in self._holds if key not in wanted]:
            del self._holds[key]
            kind, thread = key
            if self.proc.is_same(thread) and not (
                kind == "group" and thread.pid in in_groups and self._stays_with_its_process(thread)
            ):
                self._undoing.put_back(self._noted[key], thread)

    def _stays_with_its_process(self, thread: Thread) -> bool:
        """Version 2 moves only whole processes out of the root group: a thread waits in it for its process."""
        cgroups = self.able.cgroups
        if cgroups is None or cgroups.version == 1:
            return False
        with contextlib.suppress(OSError):  # it has ended
            self._values.put("group", thread, str(cgroups.root))
        return True

    def _note(self, pairs: Iterable[tuple[ChangeKind, Thread]]) -> None:
        """Journal the present values of threads that are changed for the first time."""
        now, new = self.proc.now_ticks(), []
        for kind, thread in pairs:
            if (kind, thread) in self._noted:
                continue
            start = self.proc.started(thread.pid) if self.proc.is_same(thread) else None
            value = None if start is None else self._values.get(kind, thread)
            if start is None or value is None:
                continue
            first = self._first_record(kind, thread.pid)
            if first is not None and thread.start_ticks >= first.at_ticks:
                value = first.value  # it inherited what we set; its own value is that of its process
            new.append(Before(kind, thread, start, now, value))
        self._journal.note(new)
        for before in new:
            self._noted[before.kind, before.thread] = before
            self._of_process.setdefault((before.kind, before.thread.pid, before.process_start_ticks), before)

    def _first_record(self, kind: ChangeKind, pid: int) -> Before | None:
        """The first one of the process, else that of its nearest ancestor that has one."""
        process: int | None = pid
        while process:
            start = self.proc.started(process)
            if start is not None and (first := self._of_process.get((kind, process, start))) is not None:
                return first
            process = self.proc.parent(process)
        return None

    def _change(self, kind: ChangeKind, thread: Thread, value: int | str, outcome: AppliedActions) -> None:
        # Looked at here, not before: writing the journal may take long, and ids are reused.
        if (kind, thread) not in self._noted or not self.proc.is_same(thread):
            outcome.gone += 1
            return
        before = self._noted[kind, thread].value
        within = value & before if kind == "cores" and isinstance(value, int) and isinstance(before, int) else value
        try:
            if within or kind != "cores":  # else it may not run on the fast cores: its owner wants it so
                self._values.put(kind, thread, within)
        except ProcessLookupError:
            outcome.gone += 1
        except OSError as error:
            outcome.errors.append(f"{kind} {value} of thread {thread.tid}: {error.strerror or error}")
        else:
            self._holds[kind, thread] = value
            outcome.changed += 1

    def _prepare_group(self, action: SetGroup, outcome: AppliedActions) -> list[tuple[ChangeKind, Thread, int | str]]:
        """Make the group and set its share; what is left to do is to move its threads."""
        cgroups = self.able.cgroups
        if cgroups is None:
            self._may("group", outcome)
            return []
        folder = cgroups.folder(action.group)
        files = cgroups.files(action.share, action.quota)
        try:
            for path in dict.fromkeys((cgroups.root, folder)):
                if str(path) not in self._made:
                    self._journal.note([MadeGroup(str(path))])
                    cgroups.make(path)
                    self._made.add(str(path))
            if self._group_files.get(folder) != files:
                cgroups.put(folder, files)
                self._group_files[folder] = files
                outcome.changed += 1
        except OSError as error:
            outcome.errors.append(f"group {action.group or 'of the agent'}: {error}")
            return []
        return [("group", thread, str(folder)) for thread in action.threads]


def _of_thread(action: SetNice | SetSlice | SetCores) -> tuple[ChangeKind, Thread, int]:
    if isinstance(action, SetNice):
        return "nice", action.thread, action.nice
    return (
        ("slice", action.thread, action.slice_ns)
        if isinstance(action, SetSlice)
        else ("cores", action.thread, action.cores)
    )
