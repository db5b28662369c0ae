"""The switch as a process: `python -m tests.lab.switch SEED`, with its ports in the first line of standard input.

    {"ports": [["g1", 5], ["g2", 6]], "ways": [["g1", "g2", {"delay_s": 0.002}], ...]}

Numbers are descriptors of TAP interfaces that it inherits. Each further line is a request, answered by a line on
standard output: `{"ways": [...]}` changes ways, `{}` asks for figures. The process ends when standard input does.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import select
import sys
import time
from typing import Any, Final

from agent.simulation.described.ways import Way
from tests.lab.forwarding import Switch

FRAME_BYTES: Final = 65_536
AT_ONCE: Final = 32
"""Frames read from one port before the others have their turn."""


class Door:
    """Reads and writes the descriptors of a switch's ports."""

    def __init__(self, switch: Switch, taps: list[int]) -> None:
        self._switch, self._taps = switch, taps
        self._port = {tap: port for port, tap in enumerate(taps)}
        self._requests = b""
        self.not_taken = 0
        """Frames that an interface did not take: its namespace is gone, or does not read."""

    def run(self) -> None:
        """Until standard input ends."""
        while True:
            self._send()
            # select, not epoll: the latter rounds up to milliseconds, and links here have a few
            readable, _, _ = select.select([0, *self._taps], [], [], self._patience())
            for descriptor in readable:
                if descriptor:
                    self._read(descriptor)
                elif not self._listen():
                    return

    def _patience(self) -> float | None:
        at = self._switch.next_at
        return None if at is None else max(0.0, at - time.monotonic())

    def _read(self, tap: int) -> None:
        port, now = self._port[tap], time.monotonic()
        with contextlib.suppress(BlockingIOError):
            for _ in range(AT_ONCE):
                self._switch.receive(port, os.read(tap, FRAME_BYTES), now)

    def _send(self) -> None:
        for port, frame in self._switch.due(time.monotonic()):
            try:
                os.write(self._taps[port], frame)
            except OSError:
                self.not_taken += 1

    def _listen(self) -> bool:
        data = os.read(0, 65_536)
        *lines, self._requests = (self._requests + data).split(b"\n")
        for line in lines:
            set_ways(self._switch, json.loads(line).get("ways", []))
            answer = {**self._switch.figures(), "": {"unknown": self._switch.unknown, "not_taken": self.not_taken}}
            os.write(1, json.dumps(answer).encode() + b"\n")
        return bool(data)


def set_ways(switch: Switch, ways: list[list[Any]]) -> None:
    for origin, destination, way in ways:
        switch.set_way(origin, destination, Way(**way))


def main() -> None:
    """Serves until standard input ends."""
    with contextlib.suppress(OSError):
        os.nice(-10)  # or a busy board would lengthen all links
    first = b""
    while not first.endswith(b"\n"):  # unbuffered: what follows belongs to the door
        first += os.read(0, 1)
    document = json.loads(first)
    names = [name for name, _ in document["ports"]]
    ways = {(origin, destination): Way(**way) for origin, destination, way in document["ways"]}
    switch = Switch(names, ways, random.Random(int(sys.argv[1])).random)
    Door(switch, [tap for _, tap in document["ports"]]).run()


if __name__ == "__main__":
    main()
