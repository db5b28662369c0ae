"""How far a job's streams have read, from their checkpoints: without Spark."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from edgert.central.landing.landing import Landing
from edgert.central.spark.stream_reader import StreamReader, position
from edgert.central.tables.readers import Reach, Readers
from tests.central.results_examples import FLOW, Gateway, contribution
from tests.central.upkeep_examples import Site

IDLE: Any = SimpleNamespace(lastProgress=None)
"""A query that has told nothing yet."""


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


@pytest.mark.parametrize(
    ("version", "start", "reach"), [(7, False, Reach(6, 6)), (7, True, Reach(7, 0)), (0, False, Reach(0, 0))]
)
def test_an_offset_of_a_stream_says_what_is_still_needed(version: int, start: bool, reach: Reach) -> None:
    assert position(offset(version, start)) == reach


def offset(version: int, start: bool) -> str:
    """A file of a stream's checkpoint."""
    told = {"sourceVersion": 1, "reservoirVersion": version, "index": -1, "isStartingVersion": start}
    return f"v1\n{{}}\n{json.dumps(told)}"


def test_a_stream_whose_checkpoint_cannot_be_read_leaves_the_register_as_it_is_and_the_others_are_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    landing, reader = Landing(str(tmp_path)), StreamReader(str(tmp_path))
    for flow in ("bad", "good"):
        gateway = Gateway("g1", flow=flow)
        landing.land([gateway.open()])
        landing.land([gateway.rows(contribution(0, "a", 1.0))])
        reader.ready(flow)
        for name, text in (("offsets", offset(2, False)), ("commits", "v1")):
            (Path(reader.checkpoint(flow)) / name).mkdir(parents=True)
            (Path(reader.checkpoint(flow)) / name / "0").write_text(text)
    unreadable = Path(reader.checkpoint("bad")) / "offsets" / "0"
    unreadable.unlink()
    unreadable.mkdir()
    assert reader.tell({"bad": IDLE, "good": IDLE}) == set()
    reaches = {r.table: r.reach for r in Readers(str(tmp_path)).all()}
    assert reaches == {"landing/bad": Reach(0, 0), "landing/good": Reach(1, 1)}
    assert "the register was not told how far landing/bad is" in caplog.text


def test_a_stream_whose_checkpoint_was_deleted_is_waited_for_until_it_has_read_all_of_it_again(site: Site) -> None:
    site.ship(5)
    reader = StreamReader(str(site.root), "fleet-job", wall=site.wall)
    folder = Path(reader.checkpoint(FLOW))

    def batch(number: int, version: int, start: bool) -> None:
        for name, text in (("offsets", offset(version, start)), ("commits", "v1")):
            (folder / name).mkdir(parents=True, exist_ok=True)
            (folder / name / str(number)).write_text(text)

    def reach() -> Reach:
        (known,) = Readers(str(site.root), site.wall).all()
        return known.reach

    assert not reader.ready(FLOW)
    batch(0, 6, False)
    reader.tell_end(FLOW, site.version)
    assert reach() == Reach(5, 5)
    assert not reader.ready(FLOW)
    assert reach() == Reach(5, 5)
    shutil.rmtree(folder)
    assert not reader.ready(FLOW)
    assert reach() == Reach(0, 0)
    for number in range(3):
        batch(number, 5, True)
        reader.tell({FLOW: IDLE})
        assert reach() == Reach(5, 0)
    batch(3, 6, False)
    reader.tell({FLOW: IDLE})
    assert reach() == Reach(5, 5)
