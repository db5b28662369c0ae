"""The gateway's control socket: what the agent and the command line ask of it.

To add a verb, add a line to `verbs`, or an entry to `Daemon.control.handlers`.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from edgert.control.messages import ControlError
from edgert.control.server import ControlServer, Handler
from edgert.core.settings import control_socket
from gateway.control.commands import Commands
from gateway.control.figures import figures, flows

if TYPE_CHECKING:
    from gateway.daemon import Daemon

log = logging.getLogger(__name__)


MAX_REQUEST_BYTES = 67_108_864
"""Of a request: state of operators that come from other gateways is the greatest."""


def verbs(daemon: Daemon) -> dict[str, Handler]:
    """Verb → handler, of what every gateway answers: the commands of the control plane (`cmd/<verb>`), and figures."""

    async def raw_figures(args: Mapping[str, Any]) -> Any:
        return figures(daemon)

    async def all_flows(args: Mapping[str, Any]) -> Any:
        return flows(daemon)

    return {**daemon.deployment.commands, **Commands(daemon).of_agent(), "figures": raw_figures, "flows": all_flows}


class AgentSocket:
    """Serves `handlers` for as long as the daemon runs; nothing, where the settings say so."""

    def __init__(self, daemon: Daemon) -> None:
        settings = daemon.settings
        self.handlers: dict[str, Handler] = verbs(daemon)
        self.path = control_socket(settings, os.environ, os.geteuid() == 0) if settings.control.enabled else ""
        self._server: ControlServer | None = None

    async def start(self) -> None:
        """Where the socket cannot be made the gateway goes on without, and says so: the sensors' rows matter more."""
        if not self.path:
            return
        server = ControlServer(self.path, self.handlers, max_request_bytes=MAX_REQUEST_BYTES)
        try:
            await server.start()
        except ControlError as error:
            log.error("%s; this gateway cannot be asked or steered from this board (control.socket)", error)
            return
        self._server = server
        log.info("control socket: %s", self.path)

    async def stop(self) -> None:
        if self._server is not None:
            await self._server.stop()
