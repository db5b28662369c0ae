"""Routes of the kernel, taken away from single addresses of loopback: what a pulled cable does to those who talk.

All of 127/8 is this machine, so each hop listens on an address of its own, and nobody else's packets are touched.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from random import SystemRandom
from typing import Literal

Kind = Literal["blackhole", "unreachable"]
"""Packets vanish; or whoever sends learns it."""
_IP = shutil.which("ip", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")


def address() -> str:
    """One of loopback that, most likely, nobody uses."""
    draw = SystemRandom()
    return f"127.{draw.randint(64, 191)}.{draw.randrange(256)}.{draw.randint(1, 254)}"


class Routes:
    """`close` gives back what was taken."""

    def __init__(self) -> None:
        self._lost: dict[str, list[str]] = {}
        """Address → the command that gives it back, newest last."""

    def lose(self, host: str, kind: Kind) -> bool:
        """False where that cannot be done: it needs root and `ip` (iproute2). Lost twice is lost once."""
        if host in self._lost:
            return True
        if _IP is None or os.geteuid():
            return False
        route = [kind, f"{host}/32", "table", "local"]
        done = subprocess.run([_IP, "route", "add", *route], check=False, capture_output=True)
        if done.returncode == 0:
            self._lost[host] = [_IP, "route", "del", *route]
        return done.returncode == 0

    def give_back(self, host: str) -> bool:
        """False if it was not lost, or is given back already."""
        command = self._lost.pop(host, None)
        if command is not None:
            subprocess.run(command, check=True, capture_output=True)
        return command is not None

    def close(self) -> None:
        for host in list(self._lost):
            self.give_back(host)
