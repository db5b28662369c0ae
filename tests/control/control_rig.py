"""A control server with handlers of our own, and raw connections to it."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

from edgert.control.messages import (
    Splitter,
    answer_untrusted,
)
from edgert.control.server import ControlServer, Handler
from edgert.core.errors import EdgertError


async def echo(args: Mapping[str, Any]) -> Any:
    return dict(args)


async def refuse(args: Mapping[str, Any]) -> Any:
    raise EdgertError("flow: expected one that runs, got 'x'")


async def fault(args: Mapping[str, Any]) -> Any:
    raise KeyError("our own")


async def odd(args: Mapping[str, Any]) -> Any:
    return object()


class Gate:
    """A handler that answers when it is told to."""

    def __init__(self) -> None:
        self.began = 0
        self.open = asyncio.Event()

    async def __call__(self, args: Mapping[str, Any]) -> Any:
        self.began += 1
        await self.open.wait()
        return self.began


@contextlib.asynccontextmanager
async def serving(path: Path, **more: Handler) -> AsyncIterator[ControlServer]:
    server = ControlServer(path, {"echo": echo, "refuse": refuse, "fault": fault, "odd": odd, **more})
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


def _has(server: ControlServer, connections: int) -> bool:
    return len(server.connections) == connections


def _began(gate: Gate, requests: int) -> bool:
    return gate.began == requests


def raw(path: Path) -> socket.socket:
    """A client that does as the test says."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    sock.settimeout(60.0)
    sock.connect(str(path))
    return sock


def said(sock: socket.socket) -> str:
    """The error that ends a connection; empty where it ends without."""
    splitter, errors = Splitter(10_000), ""
    with contextlib.suppress(ConnectionError):
        while chunk := sock.recv(1000):
            for body in splitter.feed_untrusted(chunk):
                answer = answer_untrusted(body)
                assert not answer.id
                errors += answer.error
    return errors
