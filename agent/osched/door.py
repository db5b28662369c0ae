"""The door: the one place that changes how the kernel schedules a thread.

Before the first change of a thread its old value is in the journal, on disk. `undo` puts everything back, also what a
killed agent left. A thread is changed only while its id, process and start time are those that a driver reported.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from agent.drivers.entities import Thread
from agent.drivers.procfs import ProcFs
from agent.osched import slices
from agent.osched.cgroups import Cgroups, find
from agent.osched.journal import KINDS, Before, Journal, Kind, Made, Record, changes
from agent.osched.rights import can_raise_priority
from agent.osched.translate import Action, SetGroup, SetNice, SetSlice

log = logging.getLogger(__name__)
SPARE_RECORDS: Final = 1000
"""So many records of ended threads may stand in the journal before it is written anew."""


@dataclass(frozen=True, slots=True)
class Abilities:
    """What the kernel and our rights allow; found by trying."""

    nice: bool
    slice_ns: int | None
    """The kernel's own slice; None: slices cannot be set."""
    cgroups: Cgroups | None

    def lacks(self) -> list[str]:
        """What does not work, why, and what still does; for people."""
        found = []
        if not self.nice:
            found.append(
                "nice and slices: the agent may not raise priorities, so it could not undo what it changes; give it "
                "CAP_SYS_NICE (systemd: AmbientCapabilities=CAP_SYS_NICE). Figures, dry-run and pool weights work"
            )
        elif self.slice_ns is None:
            found.append("slices: this kernel takes no slice for a normal thread (Linux 6.12 and newer do)")
        if self.cgroups is None:
            found.append("groups: no cgroup with the cpu controller that we may write to (systemd: Delegate=cpu)")
        return found


def abilities() -> Abilities:
    """Try what this process may do."""
    nice = can_raise_priority()
    return Abilities(nice, slices.usual_ns() if nice else None, find())


@dataclass(slots=True)
class Outcome:
    """Of one application of actions."""

    changed: int = 0
    gone: int = 0
    """Threads that ended, or whose id belongs to another thread by now."""
    errors: list[str] = field(default_factory=list)


class Door:
    """Applies actions and undoes them, one call at a time. Only one process may use a journal."""

    def __init__(self, journal: Path, able: Abilities | None = None, proc: ProcFs | None = None) -> None:
        self.proc = proc or ProcFs()
        self.able = able or abilities()
        self._journal = Journal(journal, self.proc.boot_id())
        self._noted: dict[tuple[Kind, Thread], Before] = {}
        self._of_process: dict[tuple[Kind, int, int], Before] = {}
        """The first record of each process."""
        self._made: set[str] = set()
        self._holds: dict[tuple[Kind, Thread], int | str] = {}
        """What we set last: the kernel is not asked again for it."""
        self._group_files: dict[Path, dict[str, str]] = {}
        self._lock = threading.Lock()
        self._closed = False

    # -- undoing

    def undo_left_over(self) -> int:
        """Undo what a former agent of this boot left; the number of records found. Call it before anything else."""
        records = self._journal.load()
        if records:
            self._undo(records)
        return len(records)

    def undo(self) -> None:
        """Put back all that was changed."""
        with self._lock:
            if self._journal.records:
                self._undo(self._journal.records)

    def close(self) -> None:
        """Put back all that was changed, and change nothing any more."""
        self._closed = True
        self.undo()

    def _undo(self, records: Sequence[Record]) -> None:
        refused = 0
        for kind in KINDS:
            # The oldest record of a thread counts, and comes last.
            for before in reversed(list(changes(records, kind))):
                if self.proc.is_same(before.thread):
                    refused += not self._set_back(before, before.thread)
            refused += self._undo_inherited(kind, list(changes(records, kind)))
        self._remove_groups([r.path for r in records if isinstance(r, Made)])
        if not refused:  # else a start with more rights can still undo it
            self._journal.clear()
        for known in (self._noted, self._of_process, self._made, self._holds, self._group_files):
            known.clear()

    def _undo_inherited(self, kind: Kind, records: Sequence[Before]) -> int:
        """Threads that a changed process started after the change have inherited it, and are in no record."""
        refused = 0
        firsts: dict[tuple[int, int], Before] = {}
        for before in records:
            firsts.setdefault((before.thread.pid, before.process_start_ticks), before)
        done = {before.thread for before in records}
        for (pid, start), first in firsts.items():
            # Such a thread may start another one before it is put back: look until there is none left.
            while self.proc.started(pid) == start and (
                new := [
                    seen.thread
                    for seen in self.proc.threads(pid)
                    if seen.thread not in done and seen.thread.start_ticks >= first.at_ticks
                ]
            ):
                refused += sum(not self._set_back(first, thread) for thread in new)
                done.update(new)
        return refused

    def _set_back(self, before: Before, thread: Thread) -> bool:
        """False if we lack the right to."""
        try:
            if isinstance(before.value, str):
                cgroups = self.able.cgroups
                if cgroups is not None and cgroups.group_of(thread) != Path(before.value):
                    cgroups.move_back(thread, Path(before.value))
            elif before.kind == "nice":
                os.setpriority(os.PRIO_PROCESS, thread.tid, before.value)
            else:
                usual = self.able.slice_ns
                slices.put(thread.tid, 0 if before.value == usual else before.value)
        except ProcessLookupError:
            return True
        except OSError as error:
            log.warning(
                "osched: %s of thread %d cannot be set back to %s: %s", before.kind, thread.tid, before.value, error
            )
            return not isinstance(error, PermissionError)
        return True

    def _remove_groups(self, paths: Sequence[str]) -> None:
        """Children before parents. Threads that others put there go to the parent of the root group."""
        cgroups = self.able.cgroups
        for path in sorted(set(paths), key=len, reverse=True):
            folder = Path(path)
            try:
                if cgroups is not None and cgroups.version == 1:
                    for tid in cgroups.members(folder):
                        cgroups.move_back(Thread(tid, tid, 0), cgroups.parent)
                folder.rmdir()
            except FileNotFoundError:
                continue
            except OSError as error:
                log.warning("osched: the group %s cannot be removed: %s", path, error)

    # -- applying

    def apply(self, actions: Iterable[Action]) -> Outcome:
        """Make the actions hold, and put back what none of them asks for any more.

        Those that hold already cost nothing. An action that cannot be done is in `errors`.
        """
        with self._lock:
            return Outcome() if self._closed else self._apply(actions)

    def _apply(self, actions: Iterable[Action]) -> Outcome:
        outcome = Outcome()
        threads: list[tuple[Kind, Thread, int | str]] = []
        for action in actions:
            if isinstance(action, SetNice):
                threads.append(("nice", action.thread, action.nice))
            elif isinstance(action, SetSlice):
                threads.append(("slice", action.thread, action.slice_ns))
            elif isinstance(action, SetGroup):
                threads += self._prepare_group(action, outcome)
        self._release({(kind, thread) for kind, thread, _ in threads})
        wanted = [(k, t, v) for k, t, v in threads if self._holds.get((k, t)) != v and self._may(k, outcome)]
        alive = [(k, t, v) for k, t, v in wanted if self.proc.is_same(t)]
        outcome.gone = len(wanted) - len(alive)
        try:
            self._note((k, t) for k, t, _ in alive)
        except OSError as error:
            outcome.errors.append(f"the journal cannot be written, so nothing was changed: {error}")
            return outcome
        for kind, thread, value in alive:
            self._change(kind, thread, value, outcome)
        if len(self._noted) > 2 * len(threads) + SPARE_RECORDS:
            self._forget_ended()
        return outcome

    def _forget_ended(self) -> None:
        """Drop the records of threads that have ended, but for the first of each living process: what its threads
        inherited is undone by it."""
        firsts = {id(b) for (_, pid, start), b in self._of_process.items() if self.proc.started(pid) == start}
        self._noted = {k: b for k, b in self._noted.items() if id(b) in firsts or self.proc.is_same(b.thread)}
        self._of_process = {k: b for k, b in self._of_process.items() if id(b) in firsts}
        kept = [r for r in self._journal.records if isinstance(r, Made) or (r.kind, r.thread) in self._noted]
        try:
            self._journal.rewrite(kept)
        except OSError as error:
            log.warning("osched: the journal cannot be written anew: %s", error)

    def _may(self, kind: Kind, outcome: Outcome) -> bool:
        able = {"nice": self.able.nice, "slice": self.able.slice_ns is not None, "group": self.able.cgroups is not None}
        if not able[kind]:
            text = f"{kind} cannot be set on this board"
            if text not in outcome.errors:
                outcome.errors.append(text)
        return able[kind]

    def _release(self, wanted: set[tuple[Kind, Thread]]) -> None:
        """Put back what no action asks for any more; forget threads that are gone."""
        for key in [key for key in self._holds if key not in wanted]:
            del self._holds[key]
            if self.proc.is_same(key[1]):
                self._set_back(self._noted[key], key[1])

    def _note(self, pairs: Iterable[tuple[Kind, Thread]]) -> None:
        """Journal the present values of threads that are changed for the first time."""
        now, new = self.proc.now_ticks(), []
        for kind, thread in pairs:
            if (kind, thread) in self._noted:
                continue
            start = self.proc.started(thread.pid)
            value = None if start is None else self._value(kind, thread)
            if start is None or value is None:
                continue
            first = self._of_process.get((kind, thread.pid, start))
            if first is not None and thread.start_ticks >= first.at_ticks:
                value = first.value  # it inherited what we set; its own value is that of its process
            new.append(Before(kind, thread, start, now, value))
        self._journal.note(new)
        for before in new:
            self._noted[before.kind, before.thread] = before
            self._of_process.setdefault((before.kind, before.thread.pid, before.process_start_ticks), before)

    def _value(self, kind: Kind, thread: Thread) -> int | str | None:
        if kind == "nice":
            seen = self.proc.look(thread.pid, thread.tid)
            return None if seen is None else seen.nice
        if kind == "slice":
            try:
                return slices.get(thread.tid)
            except OSError:
                return None
        folder = self.able.cgroups.group_of(thread) if self.able.cgroups else None
        return None if folder is None else str(folder)

    def _change(self, kind: Kind, thread: Thread, value: int | str, outcome: Outcome) -> None:
        if (kind, thread) not in self._noted:
            outcome.gone += 1
            return
        try:
            if isinstance(value, str):
                assert self.able.cgroups is not None
                self.able.cgroups.move(thread, Path(value))
            elif kind == "nice":
                os.setpriority(os.PRIO_PROCESS, thread.tid, value)
            else:
                slices.put(thread.tid, value)
        except ProcessLookupError:
            outcome.gone += 1
        except OSError as error:
            outcome.errors.append(f"{kind} {value} of thread {thread.tid}: {error.strerror or error}")
        else:
            self._holds[kind, thread] = value
            outcome.changed += 1

    def _prepare_group(self, action: SetGroup, outcome: Outcome) -> list[tuple[Kind, Thread, int | str]]:
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
                    self._journal.note([Made(str(path))])
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
