"""Undoing: all threads of the records, and those that inherited a changed value, get the value of before.

A thread, and a process, inherits its starter's nice value, slice and group. /proc says which process a thread is in and
which process a process was started by. It does not say which thread started it, so an heir gets the first recorded
value of its process, or of its nearest ancestor with a record.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from agent.drivers.entities import Thread
from agent.drivers.procfs import ProcFs
from agent.osched.kernel.cgroups import Cgroups
from agent.osched.kernel.journal import KINDS, Before, ChangeKind, JournalEntry, MadeGroup, changes
from agent.osched.kernel.thread_values import ThreadValues

log = logging.getLogger(__name__)
GRACE_S: Final = 0.05
"""A thread that was being started when its starter was put back has copied the changed value and is not in /proc yet:
there is a second look after this time."""
PASSES: Final = 100
TRIES: Final = 10
"""To empty and remove a group into which threads are still being started."""


class Undo:
    """Puts threads back. `wait` blocks for a number of seconds."""

    def __init__(
        self, values: ThreadValues, proc: ProcFs, cgroups: Cgroups | None, wait: Callable[[float], None]
    ) -> None:
        self._values, self._proc, self._cgroups, self._wait = values, proc, cgroups, wait
        self._said: set[str] = set()

    def run(self, records: Sequence[JournalEntry]) -> bool:
        """True if nothing is left to undo; else keep the records, for a start with more rights."""
        complete = True
        for kind in KINDS:
            # The oldest record of a thread counts, and comes last.
            for before in reversed(list(changes(records, kind))):
                if self._proc.is_same(before.thread):
                    complete &= self.put_back(before, before.thread)
        complete &= self._put_back_heirs([r for r in records if isinstance(r, Before)])
        return self._remove_groups([r.path for r in records if isinstance(r, MadeGroup)]) and complete

    def put_back(self, before: Before, thread: Thread) -> bool:
        """False if it still has the changed value. A thread whose former group is gone leaves ours with the group."""
        if isinstance(before.value, str) and self._cgroups and not self._cgroups.is_group(Path(before.value)):
            self._warn(f"thread {thread.tid}: expected a control group to put it back into, got {before.value}")
            return True
        try:
            self._values.put_back(before.kind, thread, before.value)
        except (ProcessLookupError, FileNotFoundError):
            return True
        except OSError as error:
            self._warn(f"{before.kind} of thread {thread.tid} cannot be set back to {before.value}: {error}")
            return False
        return True

    def _put_back_heirs(self, records: Sequence[Before]) -> bool:
        """Until two looks, `GRACE_S` apart, find none."""
        refused: set[tuple[ChangeKind, Thread]] = set()
        quiet = 0
        for _ in range(PASSES if records else 0):
            found = [(first, t) for first, t in self._heirs(records) if (first.kind, t) not in refused]
            refused.update((first.kind, t) for first, t in found if not self.put_back(first, t))
            quiet = 0 if found else quiet + 1
            if quiet == 2:
                break
            if quiet == 1:
                self._wait(GRACE_S)
        return not refused

    def _heirs(self, records: Sequence[Before]) -> Iterator[tuple[Before, Thread]]:
        """(record, thread): threads without a record, started after the first change, whose value is another one."""
        alive: dict[int, dict[ChangeKind, Before]] = {}
        for before in records:
            if self._proc.started(before.thread.pid) == before.process_start_ticks:
                alive.setdefault(before.thread.pid, {}).setdefault(before.kind, before)
        recorded, children = {(b.kind, b.thread) for b in records}, self._proc.children() if alive else {}
        for pid, of in alive.items():
            for process in _family(pid, children, alive):
                for seen in self._proc.threads(process):
                    for kind, first in of.items():
                        late = seen.thread.start_ticks >= first.at_ticks and (kind, seen.thread) not in recorded
                        value = self._values.get(kind, seen.thread) if late else None
                        if value != first.value and self._values.is_ours(kind, value):
                            yield first, seen.thread

    def _remove_groups(self, paths: Sequence[str]) -> bool:
        """Children before parents; false if one is left. Threads still in it go to the parent of the root group."""
        left = [path for path in sorted(set(paths), key=len, reverse=True) if not self._remove_group(Path(path))]
        return not left

    def _remove_group(self, folder: Path) -> bool:
        if self._cgroups is not None and not self._cgroups.is_made(folder):
            self._warn(f"expected a group of an agent to remove, got {folder}: left alone")
            return True
        for attempt in range(TRIES):
            try:
                if self._cgroups is None:  # without the right to make groups there is none to remove them
                    return not folder.exists()
                self._cgroups.empty(folder)
                folder.rmdir()
            except FileNotFoundError:
                return True
            except OSError as error:
                if attempt == TRIES - 1:
                    self._warn(f"the group {folder} cannot be removed: {error}")
            else:
                return True
        return False

    def _warn(self, text: str) -> None:
        """Once, though it is tried again every period."""
        if text not in self._said:
            self._said.add(text)
            log.warning("osched: %s", text)


def _family(pid: int, children: Mapping[int, Sequence[int]], apart: Mapping[int, object]) -> Iterator[int]:
    """The process and its descendants, without those in `apart` and below them."""
    open_pids = [pid]
    while open_pids:
        yield (parent := open_pids.pop())
        open_pids += [child for child in children.get(parent, ()) if child not in apart]
