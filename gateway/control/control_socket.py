"""The gateway's control socket: what the agent and the command line ask of it.

To add a verb, add an entry to `Commands.of_control_plane` or `Commands.of_agent` (`gateway/control/commands.py`).
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping

from edgert.control.messages import MAX_STATE_BYTES, ControlError
from edgert.control.server import ControlServer, Handler
from edgert.core.settings.gateway import GatewaySettings, control_socket
from gateway.control.agent_link import AgentLink
from gateway.status.status import Status

log = logging.getLogger(__name__)


class ControlSocket:
    """Serves `handlers` for as long as the daemon runs; nothing, where the settings say so."""

    def __init__(self, settings: GatewaySettings, handlers: Mapping[str, Handler], status: Status) -> None:
        """`handlers`: by verb; those of `AgentLink` are added."""
        self.agent = AgentLink(settings, status)
        self.handlers = {**handlers, **self.agent.verbs()}
        self.path = control_socket(settings, os.environ, os.geteuid() == 0) if settings.control.enabled else ""
        self._server: ControlServer | None = None

    async def start(self) -> None:
        """Opens the socket. If it cannot be opened, an error is logged and the gateway runs without it: the sensors'
        rows take precedence."""
        if not self.path:
            return
        server = ControlServer(self.path, self.handlers, max_request_bytes=MAX_STATE_BYTES)
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
