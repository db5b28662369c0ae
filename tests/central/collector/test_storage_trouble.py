"""A storage that fails for a while: whatever it raises, the collector and the fleet job wait and go on."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from deltalake.fs import DeltaStorageHandler
from pyarrow import fs
from pyspark.errors import AnalysisException

from edgert.central.alerts.job import READER, AlertJob
from edgert.central.alerts.rules import parse
from edgert.central.collector.collector import Collector
from edgert.central.collector.inbox import ResultMessage
from edgert.central.fleet import job as fleet_job
from edgert.central.landing.landing import Landing
from edgert.central.spark.streams import FAILURE
from edgert.central.tables import table as tables
from edgert.central.tables.lease import TableLease
from edgert.central.tables.table import Table, TableError, list_tables
from edgert.central.upkeep.table import KeptTable
from edgert.core.clock import VirtualClock
from edgert.core.results.results import EpochHello, pack_result, results_topic
from edgert.core.settings.central import Alerts
from edgert.core.settings.central import FleetJob as Settings
from tests.central.results_examples import FLOW, Gateway, contribution
from tests.central.worlds import DATA
from tests.waiting import wait_until


def fails(*_: object, **__: object) -> Any:
    raise OSError(5, "Input/output error")


def breaks(*_: object, **__: object) -> Any:
    raise ValueError("what a library says of a log it cannot read")


@pytest.mark.parametrize("failure", [fails, breaks])
@pytest.mark.parametrize(
    ("where", "name", "act"),
    [
        (DeltaTable, "is_deltatable", lambda t: Table(t.uri).refresh()),
        (DeltaTable, "update_incremental", lambda t: t.refresh()),
        (DeltaTable, "transaction_version", lambda t: t.version("a")),
        (DeltaTable, "get_add_actions", lambda t: list(KeptTable(*t.uri.rsplit("/", 1)).compact(1, 0.0))),
        (DeltaTable, "vacuum", lambda t: KeptTable(*t.uri.rsplit("/", 1)).delete_files(0)),
        (DeltaStorageHandler, "get_file_info_selector", lambda t: KeptTable(*t.uri.rsplit("/", 1)).delete_log(0)),
        (DeltaTable, "metadata", lambda t: t.properties()),
        (DeltaTable, "schema", lambda t: t.append(DATA, {"a": 2})),
        (tables, "_in_schema", lambda t: t.append(DATA, {"a": 2})),
        (tables, "write_deltalake", lambda t: t.append(DATA, {"a": 2})),
        (tables, "write_deltalake", lambda t: t.replace(DATA, {"a": 2}, "x = 1")),
        (tables, "write_deltalake", lambda t: Table(f"{t.uri}2").append(DATA, {"a": 1})),
        (tables, "DeltaTable", lambda t: Table(f"{t.uri}2").append(DATA, {"a": 1})),
        (fs, "FileSelector", lambda t: list_tables(t.uri, "landing")),
    ],
)
def test_whatever_a_storage_raises_is_a_table_error_that_names_the_place(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    failure: Callable[..., Any],
    where: object,
    name: str,
    act: Callable[[Table], object],
) -> None:
    table = Table(str(tmp_path / "t"))
    table.append(DATA, {"a": 1})
    monkeypatch.setattr(where, name, failure)
    with pytest.raises(TableError, match=str(tmp_path / "t")):
        act(table)
    monkeypatch.undo()
    assert table.refresh()
    assert table.version("a") == 1


def test_refused_cast_is_a_table_error(tmp_path: Path) -> None:
    table = Table(str(tmp_path / "t"))
    table.append(DATA, {"a": 1})
    with pytest.raises(TableError, match="could not be written"):
        table.append(pa.table({"x": ["no number"], "day": pa.array([1], pa.date32())}), {"a": 2})


def test_collector_whose_landing_folder_cannot_be_listed_waits_and_then_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Landing(str(tmp_path)).land([Gateway("g1").open()])
    collector = Collector("c1", Landing(str(tmp_path)), VirtualClock(), 10.0, 10_000)
    hello = ResultMessage(results_topic("f", "g1", FLOW), pack_result(EpochHello(gateway="g1", flow=FLOW)))
    monkeypatch.setattr(fs, "FileSelector", fails)
    assert collector.handle([hello]) == []
    assert collector.waits
    assert "Input/output error" in collector.counters.last_error
    monkeypatch.undo()
    (said,) = collector.handle([])
    assert said.acks == {(FLOW, 1 << 32, 0): 1}
    assert not collector.waits


@pytest.mark.parametrize("lineage", ["no json", "{}", "[]", '{"schema": 5, "parent": null, "cut": {}}'])
def test_opening_row_that_a_stranger_wrote_is_an_error_of_its_table_each_time(tmp_path: Path, lineage: str) -> None:
    g = Gateway("g1")
    Landing(str(tmp_path)).land([g.open()])
    table = Table(str(tmp_path / "landing" / FLOW))
    table.refresh()
    row = {"gateway": ["x"], "epoch": pa.array([2], pa.int64()), "lineage": [lineage]}
    table.append(pa.table(row), {})
    landing = Landing(str(tmp_path))
    for _ in range(2):
        report = landing.land([g.rows(contribution(0, "a", 1.0))])
        assert f"landing/{FLOW}: opening row of" in report.failed[FLOW]


class Storage:
    """A lease on a storage that can be switched off."""

    def __init__(self, lease: TableLease) -> None:
        self._lease = lease
        self.away = True
        self.tried = 0

    def _reach(self) -> None:
        self.tried += 1
        if self.away:
            raise TableError("the storage is away")

    def acquire(self) -> None:
        self._reach()
        self._lease.acquire()

    def hold(self) -> None:
        self._reach()
        self._lease.hold()

    def kept(self) -> AbstractContextManager[None]:
        return self._lease.kept()

    def release(self) -> None:
        self._lease.release()


class NoStreams:
    """A Spark session that cannot start a stream."""

    @property
    def readStream(self) -> Any:  # noqa: N802
        raise AnalysisException("no such file")


def test_fleet_job_outlives_a_storage_that_is_away(tmp_path: Path) -> None:
    """At its start, while it holds its lease, and when a stream cannot be started."""
    storage = Storage(TableLease(str(tmp_path), "fleet", "me"))
    job = fleet_job.FleetJob(cast(Any, NoStreams()), str(tmp_path), Settings(), cast(TableLease, storage))
    job.look_s = job.retry_s = 0.01
    job.streams.on_failure = lambda: None
    thread = threading.Thread(target=job.run, daemon=True)
    thread.start()

    def tries_again() -> None:
        before = storage.tried
        wait_until(lambda: storage.tried > before + 2, "more tries")

    tries_again()
    storage.away = False
    tries_again()
    storage.away = True
    tries_again()
    storage.away = False
    Landing(str(tmp_path)).land([Gateway("g1").open()])
    wait_until(lambda: job.streams.restarts == {(f"landing/{FLOW}", FAILURE): 1}, "a stream that could not be started")
    tries_again()
    job.stop()
    thread.join(60.0)
    assert not thread.is_alive()


def test_a_table_that_cannot_be_read_is_the_failure_of_its_rule_and_the_others_go_on(tmp_path: Path) -> None:
    Landing(str(tmp_path)).land([Gateway("g1", flow=flow).open() for flow in ("bad", "good")])
    table = Table(str(tmp_path / "landing" / "bad"))
    table.refresh()
    table.append(pa.table({"gateway": ["x"], "epoch": pa.array([2], pa.int64()), "lineage": ["no json"]}), {})
    rules = parse("".join(f'[rules.{f}]\nflow = "{f}"\nkind = "silent"\nafter_s = 60\n' for f in ("bad", "good")))
    job = AlertJob(cast(Any, NoStreams()), str(tmp_path), rules, Alerts())
    job.streams.on_failure = lambda: None
    job.start()
    try:
        wait_until(lambda: len(job.streams.restarts) == 2, "a start of each rule's stream")
        assert job.streams.states() == {f"{READER}bad": False, f"{READER}good": False}
    finally:
        job.close()
    assert job.streams.restarts.keys() == {(f"{READER}bad", FAILURE), (f"{READER}good", FAILURE)}
