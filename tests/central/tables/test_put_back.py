"""A table's folder is removed, or put back from an older copy, under a process that has it open."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pyarrow as pa
import pytest

from edgert.central.landing.landing import Landing
from edgert.central.landing.lineage import counted
from edgert.central.tables.lease import TableLease
from edgert.central.tables.table import Table, TableError
from edgert.core.clock import VirtualClock
from edgert.core.results.results import RowsBatch
from tests.central.results_examples import FLOW, Gateway, contribution
from tests.central.worlds import Disk, disk, landed_rows

__all__ = ["disk"]
T = TypeVar("T")


def after_a_failure_or_two(call: Callable[[], T]) -> T:
    """What was open before may fail; it must not do so for ever."""
    for _ in range(2):
        try:
            return call()
        except TableError:
            pass
    return call()


def put_back(copy: Path, folder: Path) -> None:
    shutil.rmtree(folder)
    shutil.copytree(copy, folder)


def rows(g: Gateway) -> RowsBatch:
    return g.rows(contribution(0, "a", 1.0))


def day_rows(count: int) -> pa.Table:
    return pa.table({"day": pa.array([None] * count, pa.date32()), "n": pa.array(range(count))})


@pytest.mark.parametrize("ask", ["version", "read", "fields", "properties", "append", "replace"])
@pytest.mark.parametrize("removed", [False, True])
def test_a_table_is_looked_at_anew_after_whatever_failed(tmp_path: Path, ask: str, removed: bool) -> None:
    table = Table(str(tmp_path / "t"))
    table.append(day_rows(1), {"a": 1})
    shutil.copytree(tmp_path / "t", tmp_path / "copy")
    for number in range(2, 6):
        table.refresh()
        table.append(day_rows(1), {"a": number})
    shutil.rmtree(tmp_path / "t")
    if not removed:
        shutil.copytree(tmp_path / "copy", tmp_path / "t")
    calls: dict[str, Callable[[], object]] = {
        "version": lambda: table.version("a"),
        "read": lambda: table.read(["n"], "true"),
        "fields": table.fields,
        "properties": table.properties,
        "append": lambda: table.append(day_rows(1), {"a": 6}),
        "replace": lambda: table.replace(day_rows(1), {"a": 6}, "n = 0"),
    }

    def look() -> object:
        table.refresh()
        return calls[ask]()

    after_a_failure_or_two(look)

    def state() -> tuple[int, int]:
        table.refresh()
        return table.version("a"), table.at()

    there = Table(str(tmp_path / "t"))
    there.refresh()
    assert after_a_failure_or_two(state) == (there.version("a"), there.at())


def test_a_lease_whose_table_was_removed_is_taken_again(tmp_path: Path) -> None:
    clock = VirtualClock()
    lease = TableLease(str(tmp_path), "fleet", "me", 60.0, clock.wall, clock.monotonic)
    lease.acquire()
    for _ in range(3):
        clock.advance(40.0)
        lease.hold()
    shutil.rmtree(tmp_path / "leases")
    clock.advance(40.0)
    after_a_failure_or_two(lease.acquire)
    lease.hold()


def test_what_is_committed_after_an_older_copy_is_brought_to_the_disk(disk: Disk, tmp_path: Path) -> None:
    """Its numbers are those of commits that were brought there before."""
    g = Gateway("g1")
    landing = Landing(str(disk.root))
    landing.land([g.open()])
    shutil.copytree(disk.root, tmp_path / "copy")
    for _ in range(4):
        landing.land([rows(g)])
    put_back(tmp_path / "copy", disk.root)
    after_a_failure_or_two(lambda: landing.version(("g1", FLOW, g.epoch, 0)))
    other = Gateway("g2")
    disk.synced.clear()
    assert landing.land([other.open(), rows(other)]).failed == {}
    entry = disk.root / "landing" / FLOW / "_delta_log" / f"{1:020}.json"
    assert entry in disk.synced


def test_an_epoch_whose_opening_is_gone_again_is_not_taken_for_open(tmp_path: Path) -> None:
    """No lineage would ever count its rows."""
    g, e = Gateway("g1"), Gateway("g1", epoch=2 << 32)
    landing = Landing(str(tmp_path / "tables"))
    landing.land([g.open(), rows(g), rows(g)])
    shutil.copytree(tmp_path / "tables" / "landing", tmp_path / "copy")
    landing.land([opening := e.open(parent=g.epoch, cut={0: 3})])
    landing.land([rows(e), e.gap(), e.rows([1], columns=("x",))])
    put_back(tmp_path / "copy", tmp_path / "tables" / "landing")
    key = ("g1", FLOW, e.epoch, 0)
    assert after_a_failure_or_two(lambda: landing.version(key)) == 0
    assert landing.land([rows(e)]).versions == {key: 0}
    assert landing.land([opening]).versions == {key: 1}
    at = landing._refresh(FLOW)
    assert counted(at.first.openings) == {("g1", e.epoch): None, ("g1", g.epoch): {0: 3}}
    assert landed_rows(tmp_path / "tables")[-1][1] == g.epoch


def test_a_removed_table_keeps_nobody_from_asking_for_another_flow(tmp_path: Path) -> None:
    landing = Landing(str(tmp_path))
    for flow in ("a", "b"):
        g = Gateway("g1", flow=flow)
        landing.land([g.open(), rows(g)])
    assert {flow for _, flow, _, _ in landing.known("g1")} == {"a", "b"}
    shutil.rmtree(tmp_path / "landing" / "a")
    for _ in range(3):
        assert {flow for _, flow, _, _ in landing.known("g1", "b")} == {"b"}
