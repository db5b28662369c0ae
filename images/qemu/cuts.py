"""Power cuts at random moments: of a start, of running, of an update. After each the board must come up and count."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from typing import Final

from images.qemu.central import Central
from images.qemu.machine import Machine
from images.qemu.outside import Outside
from images.qemu.updates import Updates

RUNNING_S: Final = 10.0
"""Messages come for so long; the cut is amid them."""
UPDATE_S: Final = 240.0
"""Longer than the installation of an update on an idle machine: the cut may come after the restart."""


class Cuts:
    """The kinds take turns: start, running, update (where the board has two slots)."""

    def __init__(
        self, machine: Machine, central: Central, updates: Updates | None, counts: Callable[[], None],
        say: Callable[[str], None],
    ) -> None:  # fmt: skip
        """`counts` waits for the gateway and shows that nothing is lost, and nothing counted twice."""
        self._machine, self._central, self._updates = machine, central, updates
        self._counts, self._say = counts, say

    def play(self, moments: Iterable[float], within_s: float) -> None:
        """`moments` are from 0 to 1; `within_s` is the latest moment of a cut amid a start."""
        kinds = {"start": (self._start, within_s), "running": (self._running, RUNNING_S)}
        if self._updates is not None:
            self._updates.settle()
            kinds["update"] = (self._update, UPDATE_S)
        names = list(kinds)
        for number, part in enumerate(moments):
            name = names[number % len(names)]
            cut, longest = kinds[name]
            cut(part * longest)
            began = time.monotonic()
            self._machine.start()
            self._counts()
            up_s = time.monotonic() - began
            if self._updates is not None:
                self._updates.settle()
            now = f"; {self._updates.running}" if self._updates is not None else ""
            self._say(
                f"power cut {number + 1}, {part * longest:.1f} s after: {name}; it counts {up_s:.0f} s later{now}"
            )

    def _start(self, moment_s: float) -> None:
        self._machine.cut()
        self._machine.start()
        time.sleep(moment_s)
        self._machine.cut()

    def _running(self, moment_s: float) -> None:
        outside = Outside(self._machine, self._central.sensors)
        outside.connect()
        sender = threading.Thread(target=outside.send, args=(self._machine.minute(), RUNNING_S))
        sender.start()
        time.sleep(moment_s)
        self._machine.cut()
        sender.join()
        outside.client.loop_stop()

    def _update(self, moment_s: float) -> None:
        assert self._updates is not None
        self._updates.begin()
        time.sleep(moment_s)
        self._machine.cut()
