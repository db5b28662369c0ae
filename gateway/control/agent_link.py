"""The way from a gateway to the agent of its board, and what the pages of other boards get to know by it."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec

from edgert.control.board_figures import BoardFigures, OperatorFigures, PageAddress
from edgert.core.errors import EdgertError, show
from edgert.core.settings.gateway import GatewaySettings, agent_socket
from gateway.status.status import Status


class AgentLink:
    """The agent finds the gateway, and says where it can be asked itself: its socket may be anywhere."""

    def __init__(self, settings: GatewaySettings, status: Status) -> None:
        self._settings, self._status = settings, status
        self._told = ""
        self._page: PageAddress | None = None

    def verbs(self) -> dict[str, Callable[[Mapping[str, Any]], Awaitable[Mapping[str, Any]]]]:
        """For the agent of this board only."""
        return {"agent.here": self._agent_is_here, "part.figures": self._figures}

    def socket(self) -> str:
        """Path of the agent's control socket: of the settings, else as the agent said, else the default."""
        default = agent_socket(self._settings, os.environ, os.geteuid() == 0)
        return default if self._settings.web.agent_socket else self._told or default

    def serves_page(self, host: str, port: int) -> None:
        """The page listens there."""
        self._page = PageAddress(host, port)

    async def _agent_is_here(self, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """`{"socket": path}`."""
        path = arguments.get("socket")
        if not isinstance(path, str) or not os.path.isabs(path):
            raise EdgertError(f"expected socket: the whole path of the agent's control socket, got {show(path)}")
        self._told = path
        return {}

    async def _figures(self, _: Mapping[str, Any]) -> Mapping[str, Any]:
        """Figures of what runs here of flows that other boards share."""
        found: Mapping[str, Any] = msgspec.to_builtins(shared_flows(self._status.object(), self._page))
        return found


def shared_flows(status: Mapping[str, Any], page: PageAddress | None) -> BoardFigures:
    """Figures of the operators on this board, of flows with operators elsewhere, from a status of the gateway."""
    shared = [flow for flow in status["flows"] if any(one["gateway"] for one in flow["operators"])]
    flows = {
        flow["name"]: {
            one["name"]: OperatorFigures(**{field: one[field] for field in OperatorFigures.__struct_fields__})
            for one in flow["operators"]
            if one["gateway"] is None
        }
        for flow in shared
    }
    return BoardFigures(flows, {flow["name"]: flow["units"] for flow in shared if flow["units"]}, page)
