"""The gateway under measurement: the real program, with its defaults but for what is said here."""

from __future__ import annotations

import json
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.ingest.flows import FLOW, measured, probe
from benchmarks.ports import free_port
from benchmarks.processes import Child, child, wait_for
from edgert.core.toml import to_toml

READY = " is ready"


@dataclass(frozen=True, slots=True)
class Gateway:
    """A gateway that is ready."""

    process: Child
    web: int
    ready_s: float
    """From the start of the process to its word that it is ready, seconds."""

    def status(self) -> dict[str, Any]:
        """As its page shows it."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.web}/api/status", timeout=10.0) as answer:
            status: dict[str, Any] = json.load(answer)
        return status

    def received(self) -> int:
        """Messages taken in so far, probes included."""
        return int(self.status()["ingest"]["messages"])

    def processed(self) -> int:
        """Messages that the measured flow has taken from its queue so far."""
        flow = next(flow for flow in self.status()["flows"] if flow["name"] == FLOW)
        return int(flow["operators"][0]["rows_in"])


@contextmanager
def gateway(folder: Path, port: int, qos: int, budget_s: float | None = None) -> Iterator[Gateway]:
    """Started, with sensors and central side at the broker on `port`; ends with the block."""
    folder.mkdir()
    files = []
    for document in (measured(qos), probe()):
        files.append(folder / f"{document['name']}.toml")
        files[-1].write_text(to_toml(document), encoding="utf-8")
    web = free_port()
    settings: dict[str, Any] = {
        "gateway": {"id": "bench", "data_dir": str(folder / "data")},
        "sensors": {"port": port} | ({} if budget_s is None else {"latency_budget_s": budget_s}),
        "central": {"port": port},
        "web": {"port": web},
        "flows": {"files": [str(file) for file in files]},
    }
    config, log = folder / "gateway.toml", folder / "gateway.log"
    config.write_text(to_toml(settings), encoding="utf-8")
    with child([sys.executable, "-m", "gateway", "--config", config], log) as process:
        wait_for(lambda: READY in process.said() or not process.alive, "the gateway to be ready")
        ready_s = time.monotonic() - process.started
        if not process.alive:
            raise RuntimeError(f"expected a gateway, got: {process.said()[-2000:]}")
        yield Gateway(process, web, ready_s)
