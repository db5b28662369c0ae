"""A fleet table that has less than its stream wrote is noticed, whatever the stream's checkpoint says."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from deltalake import DeltaTable

from edgert.central.fleet.written_marker import Written
from edgert.central.tables.table import Table
from tests.central.worlds import DATA

APPLICATION = "edgert.fleet"


class World:
    """A fleet table as one process after the other writes it, and the checkpoint of its stream."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "fleet" / "air"
        self.copy = folder / "copy"
        self.checkpoint = folder / "checkpoint"
        self.checkpoint.mkdir()
        self.number = 0
        self.write()

    def write(self, *, noted: bool = True) -> None:
        table = Table(str(self.path))
        table.refresh()
        self.number = max(self.number, table.version(APPLICATION)) + 1
        table.append(DATA, {APPLICATION: self.number})
        if noted:
            Written(str(self.checkpoint)).note(str(DeltaTable(str(self.path)).metadata().id), self.number)

    def put_back(self) -> None:
        shutil.rmtree(self.path)
        shutil.copytree(self.copy, self.path)

    def lacks(self) -> str:
        table = Table(str(self.path))
        assert table.refresh()
        return Written(str(self.checkpoint)).why_incomplete(table, APPLICATION)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_a_table_put_back_from_an_older_copy_lacks_what_was_written_since(world: World) -> None:
    shutil.copytree(world.path, world.copy)
    assert world.lacks() == ""
    world.write()
    world.put_back()
    assert world.lacks() == "fleet/air was removed or put back from an older copy"


def test_a_copy_that_has_all_of_it_is_as_good_and_so_is_a_table_with_more(world: World) -> None:
    shutil.copytree(world.path, world.copy)
    world.write(noted=False)  # Spark's note of the batch would come later still
    assert world.lacks() == ""
    world.put_back()
    assert world.lacks() == ""


def test_a_table_that_was_removed_and_made_anew_lacks_all(world: World) -> None:
    shutil.rmtree(world.path)
    world.write(noted=False)
    assert "removed" in world.lacks()


def test_a_rebuild_that_was_interrupted_leaves_the_table_in_doubt(world: World) -> None:
    Written(str(world.checkpoint)).forget_written()
    world.write(noted=False)
    assert "put back" in world.lacks()
    world.write()
    assert world.lacks() == ""


@pytest.mark.parametrize("text", ["", "{}", "null", '{"table": "x"'])
def test_a_torn_note_says_nothing(world: World, text: str) -> None:
    (world.checkpoint / "fleet-written.json").write_text(text)
    assert world.lacks() == ""


def test_without_a_checkpoint_there_is_no_note(world: World, tmp_path: Path) -> None:
    Written(str(tmp_path / "none")).note("x", 5)
    assert not (tmp_path / "none").exists()
    table = Table(str(world.path))
    table.refresh()
    assert Written(str(tmp_path / "none")).why_incomplete(table, APPLICATION) == ""
