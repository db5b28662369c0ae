"""A root is one fleet's: a collector of another does not begin."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from edgert.central.collector.main import Program
from edgert.central.tables import fleet_claim
from edgert.central.tables.fleet_claim import AnothersRoot, claim
from edgert.central.tables.table import Table, TableError
from edgert.core.settings.central import CollectorSettings


def program(root: Path, fleet: str) -> Program:
    settings = CollectorSettings()
    return Program(replace(settings, collector=replace(settings.collector, fleet=fleet)), str(root))


def test_the_first_fleet_has_it_for_good(tmp_path: Path) -> None:
    claim(str(tmp_path), "farm")
    claim(str(tmp_path), "farm")
    with pytest.raises(AnothersRoot, match="expected those of fleet plant, got those of fleet farm"):
        claim(str(tmp_path), "plant")


def test_of_two_that_come_at_the_same_time_one_has_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read, others = Table.read, iter(["farm"])

    def late(table: Table, columns: list[str], where: str) -> list[dict[str, object]]:
        rows = read(table, columns, where)
        if not rows and (other := next(others, None)):
            claim(str(tmp_path), other)
        return rows

    monkeypatch.setattr(Table, "read", late)
    with pytest.raises(AnothersRoot):
        claim(str(tmp_path), "plant")


def test_a_collector_of_another_fleet_ends_before_it_hears_anything(tmp_path: Path) -> None:
    claim(str(tmp_path), "farm")
    other = program(tmp_path, "plant")
    with pytest.raises(AnothersRoot):
        other.run()


def test_a_storage_that_is_away_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    tries = []

    def away(root: str, fleet: str) -> None:
        tries.append(fleet)
        if len(tries) < 4:
            raise TableError("no such host")

    monkeypatch.setattr(fleet_claim, "claim", away)
    collector = program(tmp_path, "farm")
    collector.retry_s = 0.0
    collector._claim_root()
    assert tries == ["farm"] * 4
    assert [r.getMessage() for r in caplog.records] == ["no such host; trying again"]


@pytest.mark.parametrize("damage", ["a file in place of the table", "an empty commit", "a torn commit"])
def test_damaged_owner_is_told_with_a_way_out(damage: str, tmp_path: Path) -> None:
    if damage.startswith("a file"):
        (tmp_path / "owner").touch()
        named = "owner"
    else:
        claim(str(tmp_path), "farm")
        commit = next(tmp_path.rglob("*.json"))
        commit.write_bytes(commit.read_bytes()[:100] if "torn" in damage else b"")
        named = rf"{commit.name} is (empty|damaged)"
    with pytest.raises(TableError, match=rf"{named}.* if they are those of fleet farm, remove it"):
        claim(str(tmp_path), "farm")
