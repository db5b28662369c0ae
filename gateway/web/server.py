"""The web server's life inside the gateway's own event loop."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Callable, Iterator
from typing import Any

import uvicorn

from gateway.web.agent import AgentClient
from gateway.web.app import AskPlot, Results, make, no_plot, no_results
from gateway.web.connections import Connection

log = logging.getLogger("gateway.web")

STOP_S = 3.0
"""Longest wait for open requests at a stop; a page that reads nothing must not hold the gateway."""


class _Server(uvicorn.Server):
    """uvicorn as a guest: signals belong to the gateway, and it sleeps until its end instead of 0.1 s at a time."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.ended = asyncio.Event()

    async def main_loop(self) -> None:
        await self.on_tick(0)
        await self.ended.wait()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class WebServer:
    """Serves page, status and metrics. A gateway works without it: trouble here is said, never raised."""

    def __init__(
        self,
        host: str,
        port: int,
        status: Callable[[], dict[str, Any]],
        results: Results = no_results,
        plot: AskPlot = no_plot,
        agent_socket: Callable[[], str] = lambda: "",
    ) -> None:
        """`agent_socket`: path of the control socket of this board's agent as of now; empty: it has none."""
        self._host, self.port = host, port
        self._agent = AgentClient(agent_socket)
        self._app, self._events = make(status, host, results=results, plot=plot, agent=self._agent.ask)
        self._server: _Server | None = None
        self._task: asyncio.Task[None] | None = None
        self.url = ""
        """Where the page is, once started; port 0 is replaced by the port that was given."""
        self.error = ""
        """Why there is no page, if there is none."""

    def section(self) -> dict[str, str]:
        """The page's part of the status."""
        return {"url": self.url, "error": self.error}

    async def start(self, served: Callable[[str, int], None] = lambda host, port: None) -> bool:
        """Binds and serves, and calls `served` with host and port. False (and `error`, and a log line) when that is
        not possible."""
        try:
            listener = _bind(self._host, self.port)
        except OSError as problem:
            self.error = (
                f"expected to listen on {self._host}:{self.port}, got: {problem.strerror or problem}; "
                "set another [web] port (0 takes a free one), or enabled = false"
            )
            log.error("web page: %s. The gateway goes on without it.", self.error)
            return False
        config = uvicorn.Config(
            self._app,
            http=Connection,
            ws="none",
            interface="asgi3",
            lifespan="off",
            access_log=False,
            log_config=None,
            log_level="warning",
            server_header=False,
            date_header=False,  # which would have to be made anew each second
            proxy_headers=False,
            timeout_keep_alive=15,
            timeout_graceful_shutdown=int(STOP_S),
        )
        self._server = _Server(config)
        self._task = asyncio.create_task(self._server.serve(sockets=[listener]), name="web")
        self._task.add_done_callback(self._ended)
        shown = f"[{self._host}]" if ":" in self._host else self._host
        self.port = listener.getsockname()[1]
        self.url = f"http://{shown}:{self.port}/"
        log.info("web page on %s", self.url)
        served(self._host, self.port)
        return True

    def _ended(self, task: asyncio.Task[None]) -> None:
        """A server that ends by itself is a fault of the page, not of the gateway."""
        if task.cancelled() or self._server is None or self._server.should_exit:
            return
        self.error = f"it ended: {task.exception()!r}"
        log.error("web page: %s. The gateway goes on without it.", self.error)

    async def stop(self) -> None:
        """Ends streams and connections, and frees the port. Safe to call twice, or without a start."""
        if self._server is None or self._task is None:
            return
        self._events.close()
        await self._agent.close()
        self._server.should_exit = True
        self._server.ended.set()
        done, _ = await asyncio.wait({self._task}, timeout=STOP_S + 2)
        if not done:
            self._task.cancel()
            await asyncio.wait({self._task})
        self._server = self._task = None


def _bind(host: str, port: int) -> socket.socket:
    """A bound TCP socket. `OSError` if the name is unknown, the port taken or not allowed."""
    family, kind, protocol, _, address = socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(64)
        listener.setblocking(False)
    except OSError:
        listener.close()
        raise
    return listener
