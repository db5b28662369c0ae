"""The routes: page, status, events, results, OS scheduling, fleet, metrics, health."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from gateway.status.history import Plot
from gateway.web.agent import AskAgent, no_agent
from gateway.web.exposition import render
from gateway.web.guard import App, WebGuard
from gateway.web.health import answer
from gateway.web.page_view import PageView
from gateway.web.snapshots import MakeView, Snapshots

JSON = "application/json"
PAGE_MOVES = 10
"""Moves of operators that the page shows, the newest."""
STATIC = Path(__file__).parent / "static"
CONTENT_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}
EVENT_INTERVAL_S = 1.0
MAX_STREAMS = 32
"""Open event streams at a time. Each costs one status a second on the gateway's own loop."""

MAX_RESULTS = 100
"""Rows in one answer about results."""

AskStatus = Callable[[], dict[str, Any]]
Results = Callable[[str, int, int], dict[str, Any] | None]
"""(flow, offset, limit): rows of the flow's newest window; None where there is no such flow."""


AskPlot = Callable[[str, str], Plot | None]
"""(flow, column): values of the last hour; None where there is no such flow."""
MAX_WHOLE = 64
"""Flows that one page may have open."""


def no_plot(flow: str, column: str) -> Plot:
    """Answers for a gateway without results."""
    return Plot(flow, [], [], "", [], [], 0)


def no_results(flow: str, offset: int, limit: int) -> None:
    """Answers for a gateway without flows."""


class Events:
    """The event streams, and their end."""

    def __init__(self, snapshots: Snapshots, interval_s: float) -> None:
        self._snapshots = snapshots
        self._interval_s = interval_s
        self._closing = asyncio.Event()
        self.streams = 0

    def close(self) -> None:
        """Ends every stream, so that a stop of the server need not wait for any page."""
        self._closing.set()

    def full(self) -> bool:
        return self.streams >= MAX_STREAMS

    async def stream(self, make_json: MakeView[bytes]) -> AsyncIterator[bytes]:
        """One status each interval, in the form that `make_json` gives it, until the page goes or the server stops."""
        self.streams += 1
        try:
            yield b"retry: 2000\n\n"
            while not self._closing.is_set():
                yield b"data: " + self._snapshots.view(make_json) + b"\n\n"
                try:
                    async with asyncio.timeout(self._interval_s):
                        await self._closing.wait()
                except TimeoutError:
                    pass
        finally:
            self.streams -= 1


def make(
    status: AskStatus,
    bound_host: str,
    interval_s: float = EVENT_INTERVAL_S,
    results: Results = no_results,
    plot: AskPlot = no_plot,
    agent: AskAgent = no_agent,
) -> tuple[App, Events]:
    """The application, and its event streams (to be closed before the server stops)."""
    snapshots = Snapshots(status)
    events = Events(snapshots, interval_s)

    async def api_status(request: Request) -> Response:
        return Response(snapshots.view(msgspec.json.encode), media_type=JSON, headers=_NO_STORE)

    async def api_events(request: Request) -> Response:
        if events.full():
            return PlainTextResponse(f"{MAX_STREAMS} pages are open already; close one.\n", 503, _NO_STORE)
        asked = request.query_params
        whole = PageView(frozenset(asked.getlist("whole")[:MAX_WHOLE])) if "whole" in asked else msgspec.json.encode
        return StreamingResponse(events.stream(whole), media_type="text/event-stream", headers=_NO_STORE)

    async def metrics(request: Request) -> Response:
        text, content_type = snapshots.view(render)
        return Response(text, headers={"content-type": content_type, **_NO_STORE})

    async def healthz(request: Request) -> Response:
        text, ready = snapshots.view(answer)
        return PlainTextResponse(text, 200 if ready else 503, _NO_STORE)

    async def livez(request: Request) -> Response:
        return PlainTextResponse("alive\n", headers=_NO_STORE)

    async def api_results(request: Request) -> Response:
        asked = request.query_params
        flow, offset, limit = asked.get("flow", ""), _number(asked.get("offset"), 0), _number(asked.get("limit"), 20)
        found = results(flow, offset, min(limit, MAX_RESULTS))
        if found is None:
            return PlainTextResponse("expected a flow that runs here: /api/results?flow=NAME\n", 404, _NO_STORE)
        return Response(msgspec.json.encode(found), media_type=JSON, headers=_NO_STORE)

    async def api_plot(request: Request) -> Response:
        asked = request.query_params
        found = plot(asked.get("flow", ""), asked.get("column", ""))
        if found is None:
            return PlainTextResponse("expected a flow that runs here: /api/plot?flow=NAME\n", 404, _NO_STORE)
        return Response(msgspec.json.encode(found), media_type=JSON, headers=_NO_STORE)

    async def api_scheduling(request: Request) -> Response:
        return Response(msgspec.json.encode(await agent("sched.status")), headers=_NO_STORE, media_type=JSON)

    async def api_fleet(request: Request) -> Response:
        told = await agent("fleet.status")
        if "members" in told:
            flows, moves, operators = await asyncio.gather(
                *map(agent, ("fleet.flows", "fleet.moves", "fleet.operators"))
            )
            told = {**told, "flows": flows.get("flows", {}), "flows_error": flows.get("error", "")}
            told |= {"moves": moves.get("moves", [])[-PAGE_MOVES:], "loads": moves.get("loads", {})}
            told["boards"] = operators.get("boards", {})
        return Response(msgspec.json.encode(told), headers=_NO_STORE, media_type=JSON)

    routes = [
        Route("/api/results", api_results),
        Route("/api/plot", api_plot),
        Route("/api/scheduling", api_scheduling),
        Route("/api/fleet", api_fleet),
        Route("/livez", livez),
        Route("/api/status", api_status),
        Route("/api/events", api_events),
        Route("/metrics", metrics),
        Route("/healthz", healthz),
        *(_static(path) for path in sorted(STATIC.iterdir()) if path.suffix in CONTENT_TYPES),
    ]
    return WebGuard(Starlette(routes=routes), bound_host), events


def _number(text: str | None, default: int) -> int:
    """A number of the query; the default for what is none."""
    return int(text) if text and text.isascii() and text.isdigit() and len(text) < 10 else default


_NO_STORE = {"cache-control": "no-store"}


def _static(path: Path) -> Route:
    """A route that serves one file from memory; the browser asks again each time and mostly gets a 304."""
    body = path.read_bytes()
    tag = f'"{hashlib.sha256(body).hexdigest()[:16]}"'
    headers = {"etag": tag, "cache-control": "no-cache", "content-type": CONTENT_TYPES[path.suffix]}

    async def serve(request: Request) -> Response:
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers=headers)
        return Response(body, headers=headers)

    return Route("/" if path.name == "index.html" else f"/{path.name}", serve)
