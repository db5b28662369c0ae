"""Loops of running flows: flows that read what they publish, also by way of others."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping

from edgert.core.errors import DocumentError
from edgert.flow.check import loop_problem
from edgert.flow.graph import Flow
from edgert.flow.loops import POSSIBLE_LOOP, Search, loops
from edgert.runtime.flow_run import FlowRun

log = logging.getLogger(__name__)


class LoopChecks:
    """`runs`: the running flows, at any time."""

    def __init__(self, runs: Mapping[str, FlowRun]) -> None:
        self._runs = runs

    async def refuse(self, flow: Flow) -> None:
        """Raises `DocumentError` for a flow that certainly reads what it publishes, also by way of other flows; warns
        where it only may."""
        others = [run.flow for name, run in self._runs.items() if name != flow.name]
        found = await asyncio.to_thread(loops, [flow, *others], flow.name)
        if certain := [loop_problem(loop) for loop in found if loop.certain]:
            raise DocumentError(f"flow {flow.name}", certain)
        for loop in found:
            log.warning("flow %s: %s", flow.name, POSSIBLE_LOOP.format(loop))

    async def cautions(self, name: str) -> list[str]:
        """Sentences about risks of a flow that runs."""
        flows = [run.flow for run in self._runs.values()]
        return [POSSIBLE_LOOP.format(loop) for loop in await asyncio.to_thread(loops, flows, name)]

    def possible(self) -> dict[str, list[str]]:
        """Loops by which running flows may read their own messages, in words, by flow."""
        flows = [run.flow for run in list(self._runs.values())]
        search = Search(flows)
        return {flow.name: [str(loop) for loop in search.loops(flow.name)] for flow in flows}
