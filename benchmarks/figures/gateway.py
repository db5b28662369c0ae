"""A gateway process with many instances, asked over its control socket. No row flows: figures cost the same then."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from benchmarks.ingest.gateway import READY
from benchmarks.processes import Child, child, wait_for
from edgert.control.client import BlockingClient
from edgert.core.toml import to_toml

FLOWS: Final = 10
LINE: Final = 30
"""Instances of a flow."""


def document(number: int) -> dict[str, Any]:
    """A source, a line of operators, and a sink: `LINE` instances without fusion."""
    operators: dict[str, Any] = {"readings": {"type": "mqtt_source", "topic": f"line{number}/{{source}}"}}
    last = "readings"
    for at in range(LINE - 2):
        operators[name := f"step{at}"] = {"type": "map", "input": last, "set": {"value": "value + 1"}}
        last = name
    operators["out"] = {"type": "publish", "input": last, "topic": f"out{number}/{{source}}"}
    return {"name": f"line{number}", "operators": operators}


@contextmanager
def gateway(folder: Path, slots: int) -> Iterator[tuple[Child, BlockingClient]]:
    """Started, with all flows running and all slots reporting; ends with the block."""
    folder.mkdir()
    files = [folder / f"line{number}.toml" for number in range(FLOWS)]
    for number, file in enumerate(files):
        file.write_text(to_toml(document(number)), encoding="utf-8")
    settings: dict[str, Any] = {
        "gateway": {"id": "bench", "data_dir": str(folder / "data")},
        "sensors": {"port": 1},
        "central": {"enabled": False},
        "web": {"enabled": False},
        "pool": {"slots": slots, "fusion": "none"},
        "flows": {"files": list(map(str, files))},
    }
    config = folder / "gateway.toml"
    config.write_text(to_toml(settings), encoding="utf-8")
    with child([sys.executable, "-m", "gateway", "--config", config], folder / "gateway.log") as process:
        wait_for(lambda: READY in process.said() or not process.alive, "the gateway to be ready", 60.0)
        with BlockingClient(folder / "data" / "control.sock") as client:
            wait_for(lambda: _all_read(client), "the figures of all instances", 60.0)
            yield process, client


def _all_read(client: BlockingClient) -> bool:
    flows = client.call("figures")["flows"].values()
    return all(one["at"] for flow in flows for one in flow["instances"].values())
