"""One slot seen from the daemon: its process, the link to it, and its restart."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from edgert.core.errors import PayloadError
from edgert.links import frames
from edgert.links.frames import frame
from edgert.links.unix import LinkClosed, UnixLink
from edgert.runtime.pool.activity import Activity

log = logging.getLogger(__name__)

QUIET_S: Final = 3.0
"""A slot that has not reported for so long (it does once a second) is asked for no checkpoint until it does: the flows
in others would wait for it in vain."""
SILENT_S: Final = 30.0
"""One that has not reported for so long hangs, and is killed. Its reports come from the thread that reads its links, so
an operator that blocks a worker does not silence it."""
LOOK_S: Final = 1.0
"""Longest time between two looks that counts as silence of the slot, seconds: after a longer time it was this process,
or the machine, that stood still."""
YOUNG_S: Final = 5.0
"""A process that dies sooner than this after its start is started again after longer and longer waits."""
LONGEST_WAIT_S: Final = 10.0
STOP_S: Final = 5.0


class SlotProcess:
    """The process of one slot, and the link to it. What is sent before the process runs waits in the link."""

    module = "edgert.runtime.slot"
    """The module that the process runs; its arguments are the numbers of the inherited socket and memory."""

    def __init__(
        self,
        number: int,
        settings: Mapping[str, Any],
        on_frame: Callable[[SlotProcess, list[Any]], None],
        on_death: Callable[[SlotProcess], None],
    ) -> None:
        """`on_death` is called on the loop, after the new link was made."""
        self.number = number
        self.restarts = 0
        self.figures: dict[str, Any] = {}
        """The process figures that the slot reported last: cpu_s, rss_bytes, unsent_bytes."""
        self.roles: dict[int, str] = {}
        """The role of each of its threads, by the kernel's thread id."""
        self._settings, self._on_frame, self._on_death = settings, on_frame, on_death
        self.worked_for: set[int] = set()
        """The runs that the process worked for when it died."""
        self._process: subprocess.Popen[bytes] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self.started = self._looked = 0.0
        """Times of the last start and of the last look, monotonic seconds."""
        self.silent_s = 0.0
        """Seconds since the last report, or since the start."""
        self._wait_s = 0.0
        self._starting: asyncio.TimerHandle | None = None
        self._stopping = False
        self._renew()

    def _renew(self) -> None:
        ours, self._theirs = socket.socketpair()
        self.activity = Activity.shared()
        self.link = UnixLink(ours, self._backlog)
        self.link.send(frame(frames.HELLO, self.number, self._settings["pool"], self._settings["level"]))

    def pair(self, other: SlotProcess) -> None:
        """Gives both a link to each other."""
        one, two = socket.socketpair()
        with one, two:
            self.link.send(frame(frames.PEER, other.number), one)
            other.link.send(frame(frames.PEER, self.number), two)

    # -- life

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Starts the process; if the system has no room for one now, later."""
        self._loop, self._starting = loop, None
        inherited = [self._theirs.fileno(), self.activity.descriptor]
        command = [sys.executable, "-m", self.module, *map(str, inherited)]
        try:
            self._process = subprocess.Popen(command, pass_fds=inherited, stdin=subprocess.DEVNULL)
        except OSError as error:
            log.error("slot %d cannot be started: %s; tried again in %.0f s", self.number, error, LONGEST_WAIT_S)
            self._starting = loop.call_later(LONGEST_WAIT_S, self.start, loop)
            return
        self._theirs.close()
        loop.add_reader(self.link.fileno(), self._readable, self.link)
        if not self.link.flush():
            loop.add_writer(self.link.fileno(), self._writable, self.link)
        self.started = time.monotonic()
        self.silent_s = 0.0
        log.info("slot %d runs as process %d", self.number, self._process.pid)

    def _readable(self, link: UnixLink) -> None:
        try:
            for received in link.receive():
                self._on_frame(self, received)
        except (LinkClosed, PayloadError) as error:
            self._lost(link, error)

    def _backlog(self) -> None:
        """From any thread."""
        loop, link = self._loop, self.link
        if loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(self._watch, link)

    def _watch(self, link: UnixLink) -> None:
        if self._loop is not None and link is self.link and not link.closed and self._starting is None:
            self._loop.add_writer(link.fileno(), self._writable, link)

    def _writable(self, link: UnixLink) -> None:
        if link.flush() and self._loop is not None:
            self._loop.remove_writer(link.fileno())

    def _lost(self, link: UnixLink, error: Exception) -> None:
        if self._loop is None or link is not self.link:
            return
        self._forget(link)
        if self._stopping:
            return
        status = self._end()
        lived = time.monotonic() - self.started
        self._wait_s = 0.0 if lived > YOUNG_S else min(LONGEST_WAIT_S, 2 * self._wait_s or 0.2)
        log.error(
            "slot %d died (status %s, %s) after %.0f s; it is started again in %.1f s",
            self.number, status, error, lived, self._wait_s,
        )  # fmt: skip
        self.restarts += 1
        self.figures, self.roles = {}, {}
        self._died()
        self._renew()
        self._starting = self._loop.call_later(self._wait_s, self.start, self._loop)
        self._on_death(self)

    def _died(self) -> None:
        self.worked_for = self.activity.numbers()
        self.activity.close()

    def _forget(self, link: UnixLink) -> None:
        assert self._loop is not None
        self._loop.remove_reader(link.fileno())
        self._loop.remove_writer(link.fileno())
        link.close()

    def _end(self) -> int | None:
        """Makes sure that the process is gone; its exit status."""
        if self._process is None:
            return None
        self._process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self._process.wait(1.0)
        return None

    async def stop(self) -> None:
        """Ends the process: it goes when its link does."""
        self._stopping = True
        if self._starting is not None:
            self._starting.cancel()
        if self._loop is not None and not self.link.closed:
            self._forget(self.link)
        if self._process is not None:
            try:
                await asyncio.to_thread(self._process.wait, STOP_S)
            except subprocess.TimeoutExpired:
                log.error("slot %d did not end within %.0f s and is killed", self.number, STOP_S)
                await asyncio.to_thread(self._end)

    @property
    def running(self) -> bool:
        """Not while it waits to be started again."""
        return self._process is not None and self._starting is None

    @property
    def answers(self) -> bool:
        """True if the slot can be expected to answer a request."""
        return self.running and self.silent_s < QUIET_S

    def reported(self, figures: dict[str, Any]) -> None:
        """Takes the figures that the slot reports."""
        self.roles = figures.pop("roles", {})
        self.figures, self.silent_s = figures, 0.0

    def look(self, now: float) -> None:
        """Kills a slot that hangs; its end is noticed as any other. To be called several times a second."""
        passed, self._looked = now - self._looked, now
        if self._process is None or not self.running:
            return
        self.silent_s += min(passed, LOOK_S)
        if self.silent_s > SILENT_S:
            log.error("slot %d has not reported for %.0f s and is killed", self.number, SILENT_S)
            self.silent_s = 0.0
            self._process.kill()  # which does nothing to a process that has ended

    @property
    def pid(self) -> int | None:
        """The process id; None before the first start."""
        return self._process.pid if self._process is not None else None

    def status(self, instances: int) -> dict[str, Any]:
        """Returns its section of the status object."""
        return {
            "slot": self.number,
            "pid": self.pid,
            "running": self.running,
            "restarts": self.restarts,
            "instances": instances,
            "backlog_bytes": self.link.backlog_bytes,
            **self.figures,
        }
