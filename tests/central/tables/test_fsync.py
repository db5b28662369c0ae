"""What was acknowledged outlives a power cut: of all files those alone that were brought to the disk."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from edgert.central.landing.landing import Landing
from edgert.central.landing.rounds import key_of
from edgert.central.tables import fsync
from edgert.central.tables.query import query
from edgert.central.tables.table import Table
from edgert.central.upkeep.table import KeptTable
from tests.central.results_examples import FLOW, Gateway, contribution
from tests.central.worlds import Disk, disk

__all__ = ["disk"]


def test_what_was_acknowledged_outlives_a_power_cut(disk: Disk, tmp_path: Path) -> None:
    g = Gateway("g1")
    landing = Landing(str(disk.root))
    landing.land([g.open()])
    landing.land([g.rows(contribution(0, "a", 1.0), contribution(2_000, "a", 1.0)), g.gap(), g.rows(["short"])])
    landing.land([last := g.rows(contribution(1, "a", 1.0)), g.rows([1], columns=("x",)), g.drops()])
    assert landing.version(key_of(last)) == 7
    left = Landing(disk.after_a_power_cut(tmp_path / "left"))
    assert left.version(key_of(last)) == 7
    rows = query(DeltaTable(f"{left.root}/landing/{FLOW}"), ["sequence"], "day IS NOT NULL")
    assert sorted(r["sequence"] for r in rows) == [2, 2, 5]
    assert len(query(DeltaTable(f"{left.root}/gaps"))) == 1
    assert len(query(DeltaTable(f"{left.root}/drops"))) == 2
    assert len(query(DeltaTable(f"{left.root}/quarantine"))) == 2


def test_a_number_is_noted_after_what_stands_elsewhere_is_on_the_disk(
    disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The power may fail when the kernel has written out the landing table alone: the gap would be lost."""
    g = Gateway("g1")
    landing = Landing(str(disk.root))
    landing.land([g.open()])
    append = Table.append
    noted: list[int] = []

    def looked(table: Table, data: pa.Table, versions: Mapping[str, int]) -> None:
        if table.uri.endswith(FLOW):
            noted.extend(versions.values())
            for entry in disk.root.glob("[gq]*/_delta_log/*.json"):
                assert entry in disk.synced
        append(table, data, versions)

    monkeypatch.setattr(Table, "append", looked)
    wrong = contribution(2_000, "a", 1.0)
    wrong[3] = -1
    landing.land([g.gap(), g.rows([1], columns=("x",)), g.rows(wrong), g.gap()])
    assert noted == [2, 3, 4, 5]


def test_folders_up_to_the_root_are_on_the_disk_with_a_table_s_first_commit(disk: Disk) -> None:
    Landing(str(disk.root)).land([Gateway("g1").open()])
    table = disk.root / "landing" / FLOW
    assert {table, table / "_delta_log", table.parent, disk.root} <= disk.synced.keys()


def test_what_another_landed_is_told_when_it_is_on_the_disk(disk: Disk, tmp_path: Path) -> None:
    """He may have died before he came to that."""
    g = Gateway("g1")
    one, other = Landing(str(disk.root)), Landing(str(disk.root))
    disk.lies = True
    one.land([g.open()])
    disk.lies = False
    assert not disk.synced
    assert other.known("g1", FLOW) == {("g1", FLOW, g.epoch, 0): 1}
    left = Landing(disk.after_a_power_cut(tmp_path / "left"))
    assert left.known("g1", FLOW) == {("g1", FLOW, g.epoch, 0): 1}


def test_each_file_is_brought_to_the_disk_once_and_a_look_costs_nothing(disk: Disk) -> None:
    g = Gateway("g1")
    landing = Landing(str(disk.root))
    landing.land([g.open()])
    disk.calls = 0
    landing.land([g.rows(contribution(0, "a", 1.0))])
    assert disk.calls == 5, "the file, the commit, and three folders"
    landing.known("g1", FLOW)
    assert disk.calls == 5


def test_a_start_brings_only_young_commits_to_the_disk(disk: Disk) -> None:
    """The others are there long since, and each would take a millisecond."""
    g = Gateway("g1")
    landing = Landing(str(disk.root))
    landing.land([g.open()])
    for n in range(12):
        landing.land([g.rows(contribution(n, "a", 1.0))])
    KeptTable(str(disk.root), f"landing/{FLOW}").checkpoint()
    landing.land([g.rows(contribution(12, "a", 1.0))])
    log = disk.root / "landing" / FLOW / "_delta_log"
    for path in sorted(log.glob("*.json"))[:12]:
        os.utime(path, (0.0, 0.0))
    disk.synced.clear()
    assert Landing(str(disk.root)).known("g1", FLOW) == {("g1", FLOW, g.epoch, 0): 14}
    assert sorted(path.name for path in disk.synced if path.parent == log) == [
        f"{12:020}.checkpoint.parquet", f"{12:020}.json", f"{13:020}.json", "_last_checkpoint"
    ]  # fmt: skip


def test_a_standby_brings_only_young_commits_to_the_disk_when_it_takes_over(disk: Disk) -> None:
    g = Gateway("g1")
    active, standby = Landing(str(disk.root)), Landing(str(disk.root))
    active.land([g.open()])
    standby.known("g1", FLOW)
    for n in range(66):
        active.land([g.rows(contribution(n, "a", 1.0))])
    log = disk.root / "landing" / FLOW / "_delta_log"
    for path in sorted(log.glob("*.json"))[:66]:
        os.utime(path, (0.0, 0.0))
    disk.synced.clear()
    assert standby.known("g1", FLOW) == {("g1", FLOW, g.epoch, 0): 67}
    assert [path.name for path in disk.synced if path.parent == log] == [f"{66:020}.json"]


def test_how_young_a_commit_is_is_told_by_the_newest_not_by_the_clock(disk: Disk) -> None:
    """The machine may have been without power for hours, or its clock may have been set."""
    g = Gateway("g1")
    Landing(str(disk.root)).land([g.open(), g.rows(contribution(0, "a", 1.0))])
    Landing(str(disk.root)).land([g.rows(contribution(1, "a", 1.0))])
    log = disk.root / "landing" / FLOW / "_delta_log"
    for path, written in zip(sorted(log.glob("*.json")), (1000.0, 1300.0), strict=True):
        os.utime(path, (written, written))
    disk.synced.clear()
    Landing(str(disk.root)).known("g1", FLOW)
    assert {path.name for path in disk.synced if path.parent == log} == {f"{0:020}.json", f"{1:020}.json"}


def test_malformed_messages_are_on_the_disk_at_once_and_torn_they_stop_nobody(disk: Disk) -> None:
    g = Gateway("g1")
    landing = Landing(str(disk.root))
    landing.land([g.open()])
    landing.quarantine_payloads([("t", b"x", "no map")])
    (junk,) = (disk.root / "quarantine").glob("day=*/*.parquet")
    assert junk in disk.synced
    junk.unlink()
    last = g.rows(contribution(0, "a", 1.0))
    assert Landing(str(disk.root)).land([last]).versions == {key_of(last): 2}


def test_what_is_committed_to_a_table_that_is_made_anew_is_brought_to_the_disk(disk: Disk) -> None:
    landing, g = Landing(str(disk.root)), Gateway("g1")
    landing.land([g.open()])
    for n in range(5):
        landing.land([g.rows(contribution(n, "a", 1.0))])
    shutil.rmtree(disk.root / "landing" / FLOW)
    again = Gateway("g1", epoch=2 << 32)
    opened = again.open()
    while not landing.land([opened]).versions:
        pass  # what was open before fails once
    disk.synced.clear()
    landing.land([again.rows(contribution(0, "a", 1.0))])
    assert landing.version(key_of(opened)) == 2
    assert disk.root / "landing" / FLOW / "_delta_log" / f"{1:020}.json" in disk.synced


@pytest.mark.parametrize("left", [0.0, 0.5, None])
def test_a_commit_whose_file_is_not_there_in_full_is_not_acknowledged(tmp_path: Path, left: float | None) -> None:
    """The collector died before it came to the disk, then the power failed: the kernel had written the commit alone."""
    g, other = Gateway("g1"), Gateway("g2", flow="other")
    Landing(str(tmp_path)).land([g.open(), g.rows(contribution(0, "a", 1.0))])
    before = set(tmp_path.rglob("*.parquet"))
    Landing(str(tmp_path)).land([last := g.rows(contribution(1, "b", 1.0))])
    torn = (set(tmp_path.rglob("*.parquet")) - before).pop()
    size = torn.stat().st_size
    if left is None:
        torn.unlink()
    else:
        os.truncate(torn, int(size * left))
    landing = Landing(str(tmp_path))
    for _ in range(2):
        report = landing.land([last, opening := other.open()])
        other = Gateway("g2", flow="other")
        assert report.versions == {key_of(opening): 1}
        assert f"expected {size} bytes, as commit 1 says, got {int(size * (left or 0))}" in report.failed[FLOW]
    (tmp_path / "landing" / FLOW / "_delta_log" / f"{1:020}.json").unlink()  # as the error says
    assert landing.land([last]).versions == {key_of(last): 3}
    rows = query(DeltaTable(str(tmp_path / "landing" / FLOW)), ["source"], "day IS NOT NULL")
    assert sorted(r["source"] for r in rows) == ["a", "b"]


def test_a_file_that_a_later_commit_removed_may_be_gone(tmp_path: Path) -> None:
    g = Gateway("g1")
    landing = Landing(str(tmp_path))
    landing.land([g.open()])
    for n in range(3):
        landing.land([g.rows(contribution(n, "a", 1.0))])
    kept = KeptTable(str(tmp_path), f"landing/{FLOW}")
    assert sum(kept.compact(2, 1e12)) == 3
    assert kept.delete_files(kept.version)[0] == 3
    assert Landing(str(tmp_path)).known("g1", FLOW) == {("g1", FLOW, g.epoch, 0): 4}


def test_upkeep_deletes_nothing_that_is_not_replaced_on_the_disk(disk: Disk, tmp_path: Path) -> None:
    g = Gateway("g1")
    landing = Landing(str(disk.root))
    landing.land([g.open()])
    for n in range(12):
        landing.land([g.rows(contribution(n, "a", 1.0))])
    kept = KeptTable(str(disk.root), f"landing/{FLOW}")
    assert sum(kept.compact(2, 1e12)) == 12
    kept.checkpoint()
    kept.delete_log(kept.version)
    kept.delete_files(kept.version)
    left = disk.after_a_power_cut(tmp_path / "left")
    shutil.rmtree(disk.root)
    rows = query(DeltaTable(f"{left}/landing/{FLOW}"), ["sequence"], "day IS NOT NULL")
    assert sorted(r["sequence"] for r in rows) == list(range(2, 14))


def test_nothing_is_acknowledged_that_the_disk_refuses(disk: Disk) -> None:
    g = Gateway("g1")
    disk.refuses = True
    report = Landing(str(disk.root)).land([g.open()])
    assert "could not be brought to the disk: [Errno 5] Input/output error" in report.failed[FLOW]


def test_a_store_needs_none_of_this() -> None:
    assert fsync.folder_of("s3://bucket/tables/gaps") is None
    assert fsync.folder_of("file:///srv/my%20tables") == Path("/srv/my tables")
    assert fsync.folder_of("file:///srv/tables") == fsync.folder_of("/srv/tables") == Path("/srv/tables")
    fsync.Durable("s3://bucket/tables/gaps").reach(7)
