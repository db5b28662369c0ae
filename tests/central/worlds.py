"""Tables read back, and models, records and files that several tests of the collector write."""

from __future__ import annotations

import datetime as dt
import os
import queue
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import paho.mqtt.client as paho
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from edgert.central.tables import fsync, models
from edgert.central.tables.models import ModelVersion
from edgert.central.tables.query import query
from tests.brokers import Broker
from tests.central.results_examples import FLOW


def read(root: Path, name: str) -> list[dict[str, Any]]:
    if not DeltaTable.is_deltatable(str(root / name)):
        return []
    return query(DeltaTable(str(root / name)))


def landed_rows(root: Path) -> list[tuple[Any, ...]]:
    """(gateway, epoch, stream, sequence, source) of the contributions, sorted."""
    names = ("gateway", "epoch", "stream", "sequence", "source")
    return sorted(tuple(r[n] for n in names) for r in read(root, f"landing/{FLOW}") if not r["lineage"])


WHEN = dt.datetime(2026, 3, 1, tzinfo=dt.UTC)


def version(number: int, state: str = models.PUBLISHED, name: str = "air") -> ModelVersion:
    return ModelVersion(
        name=name, version=number, state=state, reason="rmse 1 on the holdout", pinned=False, kind="linear_regression",
        label="t", trained=WHEN + dt.timedelta(hours=number), since=WHEN, until=WHEN, rows=10, holdout_rows=2,
        left_out=0, rmse=1.0, r2=None, accuracy=None, holdout_rmse=1.5, holdout_r2=0.5, holdout_accuracy=None,
        gateways="", document=f'{{"version": {number}}}',
    )  # fmt: skip


def kept(broker: Broker, *topics: str) -> dict[str, bytes]:
    """What a broker without TLS and passwords has retained on these topics."""
    inbox: queue.Queue[paho.MQTTMessage] = queue.Queue()
    client = paho.Client(paho.CallbackAPIVersion.VERSION2, protocol=paho.MQTTv5)  # type: ignore[attr-defined]
    client.on_message = lambda _c, _d, message: inbox.put(message)
    client.connect(broker.host, broker.port)
    client.loop_start()
    client.subscribe([*((topic, 1) for topic in topics), ("end", 1)])
    found: dict[str, bytes] = {}
    client.publish("end", b"", 1)  # after what was kept
    while (message := inbox.get(timeout=60)).topic != "end":
        found[message.topic] = bytes(message.payload)
    client.disconnect()
    client.loop_stop()
    return found


DATA = pa.table({"x": [1], "day": pa.array([1], pa.date32())})


START = dt.datetime(2026, 3, 1, tzinfo=dt.UTC)


def write(root: Path, rows: Sequence[dict[str, Any]], minutes: float = 60) -> None:
    """`fleet/air`: a row every so many minutes."""
    starts = [START + dt.timedelta(minutes=minutes * at) for at in range(len(rows))]
    table = [{"window_start": s, "day": s.date(), **row} for s, row in zip(starts, rows, strict=True)]
    write_deltalake(str(root / "fleet" / "air"), pa.Table.from_pylist(table), partition_by=["day"], mode="overwrite")


def line(at: int, **more: Any) -> dict[str, Any]:
    """y = 3 + 2 a - b."""
    a, b = float(at % 7), float(at % 11)
    return {"a": a, "b": b, "y": 3 + 2 * a - b, "kind": "x" if a > 3 else "it's", "flag": a > 3, **more}


class Disk:
    """Knows what would be left if the power failed now."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.synced: dict[Path, int] = {}
        """Path -> the length that is on the disk."""
        self.calls = 0
        self.refuses = self.lies = False
        """What it is asked to keep raises, or is lost with a power cut."""

    def sync(self, opened: int) -> None:
        if self.refuses:
            raise OSError(5, "Input/output error")
        if self.lies:
            return
        path = Path(os.readlink(f"/proc/self/fd/{opened}"))
        self.synced[path] = os.stat(opened).st_size
        self.calls += 1

    def after_a_power_cut(self, to: Path) -> str:
        for path, size in self.synced.items():
            if path.is_file() and path.is_relative_to(self.root):
                assert path.parent in self.synced, "a file without its folder's entry is lost"
                copy = to / path.relative_to(self.root)
                copy.parent.mkdir(parents=True, exist_ok=True)
                copy.write_bytes(path.read_bytes()[:size])
        return str(to)


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Disk:
    made = Disk(tmp_path / "tables")
    monkeypatch.setattr(fsync, "sync", made.sync)
    return made
