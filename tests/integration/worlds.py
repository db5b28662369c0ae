"""Flows, packages and messages that several tests give to a real gateway, and what they read back."""

from __future__ import annotations

import itertools
import json
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.integration import truth
from tests.integration.rig import Gateway, Message

AIR: dict[str, Any] = {
    "name": "air",
    "checkpoint": {"interval_s": 0.5},
    "operators": {
        "readings": {"type": "mqtt_source", "topic": "s/{source}"},
        "by-sensor": {"type": "key_by", "input": "readings", "keys": ["source"]},
        "minute": {"type": "tumbling_window", "input": "by-sensor", "size_s": 60, "aggregates": {"n": "count()"}},
        "central": {"type": "ship", "input": "minute"},
    },
}


def socket_of(gateway: Gateway) -> Path:
    return gateway.data / "control.sock"


NOW = float(int(time.time()))


def document(name: str, *, retained: bool, qos: int = 1) -> dict[str, Any]:
    """Counts messages per device."""
    options = {"qos": qos, "retained": retained}
    return {
        "name": name,
        "checkpoint": {"interval_s": 0.2},
        "operators": {
            "in": {"type": "mqtt_source", "topic": "city/{source}/sense", "codec": "json", **options},
            "by": {"type": "key_by", "input": "in", "keys": ["source"]},
            "ever": {"type": "tumbling_window", "input": "by", "size_s": 1e7, "aggregates": {"n": "count()"}},
            "central": {"type": "ship", "input": "ever"},
        },
    }


def message(device: str) -> tuple[str, bytes]:
    return f"city/{device}/sense", json.dumps({"time": NOW, "v": 1.0}).encode()


def messages_until(ended: threading.Event, packs: list[dict[str, Any]]) -> Iterator[Message]:
    """Messages until that is set, so that all that is done before is done under load. `packs` takes what they hold."""
    base = truth.packs()
    for n in itertools.count():
        for pack in truth.shifted(base, 120 * n):
            if ended.is_set():
                return
            packs.append(pack)
            yield from truth.as_messages([pack])


def counted(packs: list[dict[str, Any]], size_s: float = 10.0) -> dict[tuple[float, str], int]:
    return {key: row["n"] for key, row in truth.expected(packs, size_s).items()}


COUNTING: dict[str, Any] = {
    "name": "counting",
    "checkpoint": {"interval_s": 0.5},
    "operators": {
        "readings": {"type": "mqtt_source", "topic": "s/{source}", "idle_timeout_s": 600.0},
        "by_source": {"type": "key_by", "input": "readings", "keys": ["source"]},
        "seconds": {
            "type": "tumbling_window", "input": "by_source", "size_s": 10.0, "late": "ship",
            "aggregates": {"n": "count()"},
        },
        "central": {"type": "ship", "input": "seconds"},
    },
}  # fmt: skip


WAITING = """
import time
from pathlib import Path
from edgert.flow.spec import OperatorSpec, Parameter
from edgert.operators.base.logic import Emission, Logic


class Waiting(Logic):
    def __init__(self, path):
        super().__init__()
        self.path = Path(path)

    def process(self, batch, source, now):
        if self.path.exists():
            self.path.with_suffix(".begun").touch()
        while self.path.exists():
            time.sleep(0.02)
        return [Emission(0, batch)]


SPEC = OperatorSpec(
    "waiting", "Ends no turn while a file is there.",
    parameters=(Parameter("path", "string", "The file."),), logic=lambda build: Waiting(build.node.parameters["path"]),
)
"""


def package(folder: Path, name: str = "waiting", code: str = WAITING) -> dict[str, str]:
    """An installed package that adds the operator `name`; the environment in which it is one."""
    info = folder / f"{name}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[edgert.operators]\n{name} = {name}_operator:SPEC\n")
    (folder / f"{name}_operator.py").write_text(code)
    return {"PYTHONPATH": f"{folder}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}


def with_waiting(path: Path) -> dict[str, Any]:
    made = truth.document("stuck", size_s=3600.0, interval_s=0.5)
    operators = made["operators"]
    operators["waits"] = {"type": "waiting", "input": "valid", "path": str(path)}
    operators["by-sensor"]["input"] = "waits"
    return made


def state(status: dict[str, Any], flow: str) -> str:
    return next((f["state"] for f in status.get("flows", ()) if f["name"] == flow), "")
