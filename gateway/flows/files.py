"""Flows whose documents are files named in the settings."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from pathlib import Path

from edgert.core.errors import EdgertError
from edgert.flow.document import load
from edgert.flow.graph import Flow
from edgert.flow.spec import Registry
from gateway.flows.flows import Flows

log = logging.getLogger(__name__)


async def deploy_files(flows: Flows, files: Sequence[str]) -> None:
    """Deploys the documents named in the settings. A faulty document is logged and does not affect the others. A
    document deployed over MQTT since takes precedence over its file. A flow whose file is no longer named is
    removed."""
    named: list[str] = []
    for name in files:
        try:
            flow = await asyncio.to_thread(_read, name, flows.registry)
            named.append(flow.name)
            if flows.origin(flow.name) == "mqtt":
                log.info("flow file %s is not used: flow %s was deployed over MQTT since", name, flow.name)
            else:
                await flows.deploy(flow, "file")
        except Exception as error:  # an operator of a package that cannot be made may raise anything
            foreseen = isinstance(error, OSError | EdgertError)
            log.error("flow file %s is not deployed: %s", name, error, exc_info=not foreseen)
    if len(named) < len(files):
        return  # one that cannot be read may be that of any flow
    known = (*flows.runs, *flows.failed)
    for left in [n for n in known if n not in named and flows.origin(n) == "file"]:
        log.info("flow %s is removed: its file is no longer named in flows.files", left)
        try:
            await flows.remove(left)
        except EdgertError as error:
            log.error("flow %s is not removed: %s", left, error)


def _read(name: str, registry: Registry) -> Flow:
    return load(Path(name).read_bytes(), registry, what=name)
