"""Where a Spark stream of a landing table goes on, and when it must not: then it begins anew."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from deltalake import DeltaTable

from edgert.central.landing.landing import Landing
from edgert.central.spark.stream_reader import StreamReader
from edgert.central.tables.readers import Reach, Readers
from edgert.central.upkeep.table import KeptTable
from tests.central.results_examples import FLOW, Gateway, contribution

IDLE: Any = SimpleNamespace(lastProgress=None)


class World:
    """A landing table, and a stream's checkpoint as Spark leaves it."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "tables"
        self.table = self.root / "landing" / FLOW
        self.copy = folder / "copy"
        self.gateway = Gateway("g1")
        self.land(opening=True)
        self.start()

    def start(self) -> None:
        """The job, with nothing in mind."""
        self.reader = StreamReader(str(self.root))

    @property
    def checkpoint(self) -> Path:
        return Path(self.reader.checkpoint(FLOW))

    def land(self, commits: int = 1, *, opening: bool = False) -> None:
        landing = Landing(str(self.root))
        if opening:
            landing.land([self.gateway.open()])
        for n in range(commits):
            landing.land([self.gateway.rows(contribution(n, "a", 1.0))])

    def take_copy(self) -> None:
        shutil.copytree(self.table, self.copy)

    def put_back(self) -> None:
        shutil.rmtree(self.table)
        shutil.copytree(self.copy, self.table)
        self.gateway = Gateway("g2")

    def read_all(self) -> None:
        """A batch of the stream, which then tells."""
        table = DeltaTable(str(self.table))
        place = {
            "reservoirId": str(table.metadata().id),
            "reservoirVersion": table.version() + 1,
            "index": -1,
            "isStartingVersion": False,
        }
        number = len(list(self.checkpoint.glob("offsets/*")))
        for name, text in (("offsets", json.dumps(place)), ("commits", "{}")):
            (self.checkpoint / name).mkdir(parents=True, exist_ok=True)
            (self.checkpoint / name / str(number)).write_text(f"v1\n{{}}\n{text}")
        assert self.reader.tell({FLOW: IDLE}) == set()

    def reach(self) -> Reach:
        (known,) = Readers(str(self.root)).all()
        return known.reach


@pytest.fixture
def world(tmp_path: Path) -> World:
    made = World(tmp_path)
    assert made.reader.ready(FLOW) == ""
    made.read_all()
    made.start()
    assert made.reader.ready(FLOW) == "", "all is well"
    return made


@pytest.mark.parametrize("later", [0, 2, 5])
def test_a_landing_table_put_back_from_an_older_copy_is_read_anew(world: World, later: int) -> None:
    """Its next commits have the numbers of those that were read before: Spark would take them for read."""
    world.take_copy()
    world.land(3)
    world.read_all()
    world.put_back()
    if later:
        world.land(later, opening=True)
    world.start()
    assert "put back from an older copy" in world.reader.ready(FLOW)
    assert not world.checkpoint.exists()
    assert world.reach() == Reach(0, 0), "nothing of it may be deleted meanwhile"
    world.read_all()
    world.start()
    assert world.reader.ready(FLOW) == ""


@pytest.mark.parametrize("later", [0, 5])
def test_a_stream_that_runs_begins_anew_when_its_table_is_put_back(world: World, later: int) -> None:
    world.take_copy()
    world.land(3)
    world.read_all()
    before = world.reach()
    world.put_back()
    if later:
        world.land(later, opening=True)
    told = [world.reader.tell({FLOW: IDLE}) for _ in range(3)]  # the first may fail to read the table as it knows it
    assert told[-1] == {FLOW}
    assert world.reach() == before, "what was read of another table is not told of this one"


def test_a_copy_that_has_all_that_was_read_is_as_good(world: World) -> None:
    world.land(3)
    world.read_all()
    world.land()
    world.take_copy()
    world.land()
    world.put_back()
    world.land(3, opening=True)
    world.start()
    assert world.reader.ready(FLOW) == ""


def test_a_landing_table_that_was_begun_anew_is_read_anew(world: World) -> None:
    (world.checkpoint / "landing-commit.json").unlink()  # a checkpoint of before
    shutil.rmtree(world.table)
    world.gateway = Gateway("g1", epoch=2 << 32)
    world.land(5, opening=True)
    world.start()
    assert "removed" in world.reader.ready(FLOW)


def test_a_log_that_was_cleaned_up_behind_the_stream_is_no_reason(world: World) -> None:
    world.land(12)
    kept = KeptTable(str(world.root), f"landing/{FLOW}")
    kept.checkpoint()
    kept.delete_log(kept.version)
    world.start()
    assert world.reader.ready(FLOW) == ""


@pytest.mark.parametrize(("torn", "left"), [("offsets/0", ""), ("offsets/0", "v1\n{}"), ("commits/0", "")])
def test_a_torn_checkpoint_is_begun_anew(world: World, torn: str, left: str) -> None:
    (world.checkpoint / torn).write_text(left)
    world.start()
    assert "checkpoint is torn" in world.reader.ready(FLOW)
    assert not world.checkpoint.exists()
    world.read_all()


@pytest.mark.parametrize("text", ["", "{}", "null"])
def test_a_torn_note_of_the_commit_is_no_reason(world: World, text: str) -> None:
    (world.checkpoint / "landing-commit.json").write_text(text)
    world.start()
    assert world.reader.ready(FLOW) == ""


def test_a_job_may_have_a_reason_of_its_own(world: World) -> None:
    assert world.reader.ready(FLOW, "there is no fleet/air") == "there is no fleet/air"
    assert not world.checkpoint.exists()
    assert world.reader.ready(FLOW, "there is no fleet/air") == "", "it begins for the first time"
