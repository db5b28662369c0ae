"""A web server with a status of our own, and requests to it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from gateway.web.server import WebServer
from tests.status_example import example_status

TIMEOUT_S = 60.0


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes


async def connect(server: WebServer) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", int(server.url.rstrip("/").rpartition(":")[2]))


def request(path: str, host: str, *more: str) -> bytes:
    return "\r\n".join([f"GET {path} HTTP/1.1", f"Host: {host}", *more, "", ""]).encode()


async def read_head(reader: asyncio.StreamReader) -> tuple[int, dict[str, str]]:
    first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode().rstrip().split("\r\n")
    pairs = (line.split(": ", 1) for line in lines)
    return int(first.split()[1]), {name.lower(): value for name, value in pairs}


async def get(server: WebServer, path: str, *more: str, host: str = "localhost") -> Answer:
    reader, writer = await connect(server)
    writer.write(request(path, host, "Connection: close", *more))
    status, headers = await read_head(reader)
    body = await reader.read()
    writer.close()
    return Answer(status, headers, body)


async def get_another(server: WebServer, path: str, before: Answer) -> Answer:
    """The first answer with another body: an answer is shared for a moment."""
    while (answer := await get(server, path)).body == before.body:
        pass
    return answer


def serve(
    check: Callable[[WebServer], Awaitable[None]],
    status: Callable[[], dict[str, Any]] = example_status,
    host: str = "127.0.0.1",
) -> None:
    """Runs `check` against a started server, which is stopped afterwards."""

    async def main() -> None:
        server = WebServer(host, 0, status)
        assert await server.start()
        try:
            await asyncio.wait_for(check(server), TIMEOUT_S)
        finally:
            await server.stop()

    asyncio.run(main())
