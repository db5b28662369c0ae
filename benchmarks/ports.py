"""Ports of loopback for processes that are about to be started."""

from __future__ import annotations

import random
import socket

PORTS = range(20_000, 32_768)
"""Below Linux's range for outgoing connections: one of those took a port between its choice and its use."""
_CHOICE = random.SystemRandom()
_claims: list[socket.socket] = []


def free_port() -> int:
    """A port of 127.0.0.1, free in TCP and UDP; no other process that asks here gets it while this one lives.

    Raises OSError where 1,000 tries found none.
    """
    for port in _CHOICE.sample(PORTS, 1000):
        claim = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            claim.bind(f"\0edgert-port-{port}")
            for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
                with socket.socket(socket.AF_INET, kind) as probe:
                    probe.bind(("127.0.0.1", port))
        except OSError:
            claim.close()
            continue
        _claims.append(claim)
        return port
    raise OSError(f"expected a free port of 127.0.0.1 in {PORTS.start} to {PORTS.stop - 1}: 1,000 tries found none")
