"""Connections of the web server that stay open, come without end, or say nothing."""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import Any

import pytest

from gateway.web import connections
from gateway.web.connections import PLACES
from gateway.web.server import WebServer
from tests.gateway.web.web_rig import TIMEOUT_S, connect, get, read_head, request, serve
from tests.status_example import example_status, judged


async def next_event(reader: asyncio.StreamReader) -> dict[str, Any]:
    while True:
        line = await reader.readline()
        assert line, "the stream ended"
        if line.startswith(b"data: "):
            found: dict[str, Any] = json.loads(line[6:])
            return found


def test_events_bring_a_new_status_again_and_again() -> None:
    status = example_status()

    async def check(server: WebServer) -> None:
        reader, writer = await connect(server)
        writer.write(request("/api/events", "localhost"))
        code, headers = await read_head(reader)
        assert code == 200
        assert headers["content-type"].startswith("text/event-stream")
        assert (await next_event(reader))["ingest"]["messages"] == 100
        status["ingest"]["messages"] = 101
        assert (await next_event(reader))["ingest"]["messages"] == 101
        writer.close()

    serve(check, lambda: judged(status))


def test_a_stop_ends_open_event_streams_instead_of_waiting_for_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.web.server.STOP_S", 10 * TIMEOUT_S)

    async def main() -> None:
        server = WebServer("127.0.0.1", 0, example_status)
        assert await server.start()
        reader, writer = await connect(server)
        writer.write(request("/api/events", "localhost"))
        await read_head(reader)
        await next_event(reader)
        await asyncio.wait_for(server.stop(), TIMEOUT_S)
        assert b"data" not in await asyncio.wait_for(reader.read(), TIMEOUT_S)
        writer.close()

    asyncio.run(main())


async def silent(server: WebServer, count: int) -> list[asyncio.StreamWriter]:
    """Connections that send half a request, and then nothing."""
    writers = [(await connect(server))[1] for _ in range(count)]
    for writer in writers:
        writer.write(b"GET /healthz HT")
        await writer.drain()
    return writers


def test_silent_connections_do_not_keep_anybody_from_health_metrics_and_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "REQUEST_S", 10 * TIMEOUT_S)  # none of them ends by itself

    async def check(server: WebServer) -> None:
        writers = await silent(server, 3 * PLACES)
        for path in ("/healthz", "/metrics", "/"):
            assert (await get(server, path)).status == 200
        for writer in writers:
            writer.close()

    serve(check)


def test_open_event_streams_do_not_keep_this_machine_from_health() -> None:
    async def check(server: WebServer) -> None:
        streams = []
        for _ in range(PLACES):
            reader, writer = await connect(server)
            writer.write(request("/api/events", "localhost"))
            await read_head(reader)
            streams.append(writer)
        assert (await get(server, "/healthz")).status == 200
        for writer in streams:
            writer.close()

    serve(check)


@pytest.mark.parametrize("begun", [b"", b"GET / HTTP/1.1\r\nHost: localhost\r\n"])
def test_a_request_that_does_not_come_whole_ends_its_connection(monkeypatch: pytest.MonkeyPatch, begun: bytes) -> None:
    monkeypatch.setattr(connections, "REQUEST_S", 0.1)

    async def check(server: WebServer) -> None:
        reader, writer = await connect(server)
        writer.write(begun)
        with contextlib.suppress(ConnectionResetError):
            assert await asyncio.wait_for(reader.read(), TIMEOUT_S) == b""
        writer.close()

    serve(check)
