"""Figures of operators elsewhere, for the page of this board: of flows that have a part here and a part there."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import msgspec

from agent.fleet.flows import FleetFlows
from agent.fleet.local_gateway import LocalGateway
from edgert.control.board_figures import BoardFigures, figures_untrusted
from edgert.control.server import Handler
from edgert.core.errors import EdgertError


class FleetOperators:
    """Asks the other boards when the page asks, and never else."""

    def __init__(self, gateway: LocalGateway, flows: FleetFlows) -> None:
        self._gateway, self._flows = gateway, flows
        self.control: dict[str, Handler] = {"fleet.operators": self._operators}

    async def _operators(self, _: Mapping[str, Any]) -> Mapping[str, Any]:
        """Gateway → the figures that it tells (`BoardFigures`), of all that answer and make sense."""
        boards = {
            location[0]
            for part in self._gateway.parts.values()
            for location in part.get("assignment", {}).values()
            if location[0] != self._flows.name
        }
        told = dict[str, BoardFigures]()
        answers = await self._flows.ask_all(boards.intersection(self._flows.alive()), "part.figures")
        for board, answer in answers.items():
            with suppress(EdgertError):
                told[board] = figures_untrusted(answer)
        found: Mapping[str, Any] = {"boards": msgspec.to_builtins(told)}
        return found
