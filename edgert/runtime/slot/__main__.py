"""A slot: a process in which some instances of flows run under one pool. It has no network, no keys and no disk; it
talks to its gateway daemon and to the other slots over links.

    python -m edgert.runtime.slot LINK DOING

is started by the daemon, with the numbers of a socket and of memory that it inherits. It ends when that link ends. One
thread reads all links, feeds the pool and lends itself to it; the pool's workers compute and send.
"""

from __future__ import annotations

import logging
import math
import os
import resource
import selectors
import signal
import socket
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final

from edgert.core.clock import Clock
from edgert.core.errors import EdgertError
from edgert.core.log import set_up
from edgert.core.system_clock import SystemClock
from edgert.flow.plan import DAEMON
from edgert.flow.spec import Registry
from edgert.links import frames
from edgert.links.unix import LinkClosed, UnixLink
from edgert.operators.base.logic import PlainMessage
from edgert.operators.base.memory import MemoryBudget
from edgert.runtime.instance.instance import Instance
from edgert.runtime.interpreter import Garbage
from edgert.runtime.pool.activity import Activity
from edgert.runtime.pool.from_settings import make_pool
from edgert.runtime.pool.pool import Pool
from edgert.runtime.slot.run import SlotRun
from edgert.runtime.threads import roles
from edgert.runtime.ticks import TICK_S, log_malformed, tick
from edgert.scheduling.consumption import CONSUMPTIONS

log = logging.getLogger(__name__)

REPORT_S: Final = 1.0
LEND_S: Final = 0.002
"""After reads this thread works on what came itself for so long at most; what is left is the workers'."""
STOP_S: Final = 2.0
"""At its end a slot waits so long for turns under way."""
POLL_S: Final = 0.001
"""How often instances are looked at that are to come to rest."""
_OF_A_RUN: Final = (
    frames.DATA, frames.STANDING, frames.TAKEN, frames.FULL, frames.ROOM, frames.MARK, frames.MARKER, frames.ABORT,
    frames.MODEL, frames.WEIGH,
)  # fmt: skip
"""Frames for one run; the run's number follows."""


class Slot:
    """One process' worth of slot, from its first frame to the end of its link."""

    def __init__(self, link: UnixLink, registry: Registry, clock: Clock, activity: Activity) -> None:
        self._registry, self._clock, self._activity = registry, clock, activity
        self.number = 0
        self.links: dict[int, UnixLink] = {DAEMON: link}
        self.runs: dict[int, SlotRun] = {}
        self._newest = 0
        """The greatest number of a run that was built; what comes for a greater one is early."""
        self._early: dict[int, list[tuple[int, list[Any]]]] = {}
        self._pool: Pool | None = None
        self._consumption = "at-most"
        self._selector = selectors.DefaultSelector()
        self._selector.register(link, selectors.EVENT_READ, DAEMON)
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._selector.register(self._wake, selectors.EVENT_READ, None)
        link.on_backlog = self._waken
        self._next_tick = self._next_report = clock.monotonic()
        self._figures_until = -math.inf
        """Raw figures are wanted until then."""
        self.garbage: Garbage | None = None
        """None if the process is not the slot's own."""
        self._memory = MemoryBudget()
        """For what operators of all runs keep by key."""
        self._more = False
        """Something waits in the pool."""
        self._ended = False
        self._ending: list[SlotRun] = []
        """Ended runs with a turn under way."""

    @property
    def pool(self) -> Pool:
        if self._pool is None:
            raise RuntimeError("expected a hello before anything else")
        return self._pool

    def serve(self) -> None:
        """Runs until the daemon ends."""
        while not self._ended:
            self.step()
        if self._pool is not None:
            self._pool.stop(STOP_S)

    def step(self, longest_s: float = TICK_S) -> None:
        """Reads what there is (waits for it no longer than that, or until something is due), works on it, and does
        what is due."""
        now = self._clock.monotonic()
        due = POLL_S if any(run.waiting for run in self.runs.values()) else max(0.0, self._next_tick - now)
        if self._more:
            due = 0.0
        for key, events in self._selector.select(min(longest_s, due)):
            self._ready(key.data, events)
        if self._pool is None or self._ended:
            return
        self._more = self._pool.lend(LEND_S, lends_again=True)
        self._ending = [run for run in self._ending if not run.remove()]
        now = self._clock.monotonic()
        for number, run in self.runs.items():
            self._activity.begin(number)
            run.advance(now)
            run.say_where_room_is()
        if now >= self._next_tick:
            self._next_tick = now + TICK_S
            for number, run in self.runs.items():
                self._activity.begin(number)
                run.tell_standings()
                run.tell_results()
                if not run.capturing:
                    tick(run.flow_run, self._pool, self._clock, run.mine)
        self._activity.begin(0)
        if now >= self._next_report:
            self._next_report = now + REPORT_S
            self._pool.profile()
            self._report(now)
            if self.garbage:
                self.garbage.look(now, self._memory.held_bytes)

    def _ready(self, number: int | None, events: int) -> None:
        if number is None:
            os.eventfd_read(self._wake)
            self._watch()
            return
        link = self.links.get(number)
        if link is None:
            return
        if events & selectors.EVENT_WRITE and link.flush():
            self._selector.modify(link, selectors.EVENT_READ, number)
        if events & selectors.EVENT_READ:
            try:
                for frame in link.receive():
                    self._frame(number, frame)
            except LinkClosed:
                self._lost(number)

    def _waken(self) -> None:
        os.eventfd_write(self._wake, 1)

    def _watch(self) -> None:
        for number, link in self.links.items():
            if link.backlog_bytes and not link.closed:
                self._selector.modify(link, selectors.EVENT_READ | selectors.EVENT_WRITE, number)

    def _lost(self, number: int) -> None:
        """The daemon sends a new link when the slot is there again, and ends the runs that used it."""
        link = self.links[number]
        self._selector.unregister(link)
        link.close()
        if number == DAEMON:
            self._ended = True  # turns under way may still say something, to a link that is closed
        else:
            del self.links[number]

    # -- frames

    def _frame(self, origin: int, frame: list[Any]) -> None:
        kind, *rest = frame
        if kind in _OF_A_RUN:
            self._for_run(origin, frame)
        elif kind == frames.BUILD:
            self._build(*rest)
        elif kind == frames.DROP:
            self._drop(rest[0])
        elif kind == frames.PEER:
            self._peer(rest[0])
        elif kind == frames.HELLO:
            self._hello(*rest)
        elif kind == frames.FIGURES:
            self._next_report = self._clock.monotonic()
            self._figures_until = self._next_report + rest[0]
        elif kind == frames.SETTINGS:
            rows, level = rest
            self.pool.consumption = CONSUMPTIONS[self._consumption](rows)
            set_up(level, env=os.environ)

    def _for_run(self, origin: int, frame: list[Any]) -> None:
        number = frame[1]
        run = self.runs.get(number)
        if run is not None:
            self._activity.begin(number)
            run.frame(origin, frame)
            self._activity.begin(0)
        elif number > self._newest:
            self._early.setdefault(number, []).append((origin, frame))

    def _hello(self, number: int, pool: Mapping[str, Any], level: str) -> None:
        self.number = number
        set_up(level, env=os.environ)
        self._consumption = pool["consumption"]
        self._pool = make_pool(
            self._clock, policy=pool["policy"], consumption=pool["consumption"],
            consumption_rows=pool["consumption_rows"], workers=pool["workers"], send=self._send,
        )  # fmt: skip
        self._memory.limit_bytes = pool["state_bytes"]
        self._pool.activity = self._activity
        self._pool.start()

    def _peer(self, number: int) -> None:
        if number in self.links:
            self._lost(number)
        link = UnixLink(self.links[DAEMON].received.popleft(), self._waken)
        self.links[number] = link
        self._selector.register(link, selectors.EVENT_READ, number)

    def _build(self, number: int, name: str, *rest: Any) -> None:
        self._newest = number
        self._activity.begin(number)
        try:
            run = SlotRun(number, self.number, self.links, self.pool, self._registry, self._clock, *rest)
            self._memory.take_in(run.flow_run.memory)
            self.runs[number] = run  # restored queues may already have messages to send
            run.start()
        except Exception as error:  # whatever it is: BUILD would only come again, and end all flows of this slot
            if not isinstance(error, EdgertError):
                log.exception("slot %d: flow %s could not be built", self.number, name)
            if (failed := self.runs.pop(number, None)) is not None:
                self._memory.let_go(failed.flow_run.memory)
            self.links[DAEMON].send(frames.frame(frames.FAILED, number, str(error) or repr(error)))
        self._activity.begin(0)
        for early in sorted(n for n in self._early if n <= number):
            for origin, frame in self._early.pop(early):
                self._for_run(origin, frame)
        log.debug("slot %d: run %d of flow %s", self.number, number, name)

    def _drop(self, number: int) -> None:
        run = self.runs.pop(number, None)
        if run is not None:
            run.stop()
            log_malformed(run.flow_run, self._clock)
            self._memory.let_go(run.flow_run.memory)
            self._ending.append(run)

    # -- to the daemon

    def _send(self, instance: Instance, messages: Sequence[PlainMessage]) -> None:
        """On a worker's thread."""
        for number, run in list(self.runs.items()):
            if run.flow_run.instances.get(instance.name) is instance:
                self.links[DAEMON].send(frames.frame(frames.MESSAGES, number, instance.name, messages))

    def figures(self) -> dict[str, Any]:
        """Figures of the process."""
        used = resource.getrusage(resource.RUSAGE_SELF)
        return {
            "cpu_s": used.ru_utime + used.ru_stime,
            "rss_bytes": _resident_bytes(),
            "unsent_bytes": sum(link.backlog_bytes for link in self.links.values()),
            "roles": roles("reader"),
        }

    def _report(self, now: float) -> None:
        reports = {number: run.report(now) for number, run in self.runs.items()}
        wanted = now < self._figures_until
        figures = {number: run.figures(now) for number, run in self.runs.items()} if wanted else None
        self.links[DAEMON].send(frames.frame(frames.REPORT, self.figures(), reports, figures))


def _resident_bytes() -> int:
    with open("/proc/self/statm", "rb") as statm:
        return int(statm.read().split()[1]) * resource.getpagesize()


def main() -> int:
    """Serves until the daemon at the other end of the inherited socket is gone."""
    if len(sys.argv) != 3 or not all(map(str.isdigit, sys.argv[1:])):
        print("edgert.runtime.slot is started by edgert-gateway (pool.slots), not by hand", file=sys.stderr)
        return 2
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # they go to the daemon, which needs us for its last checkpoint
    from edgert.operators.registry import with_installed

    registry, _ = with_installed()
    clock = SystemClock()
    link, activity = map(int, sys.argv[1:])
    slot = Slot(UnixLink(socket.socket(fileno=link)), registry, clock, Activity(activity))
    slot.garbage = Garbage(clock.monotonic())
    slot.serve()
    logging.shutdown()
    os._exit(0)  # without waiting for an operator that hangs: its daemon is gone


if __name__ == "__main__":
    sys.exit(main())
