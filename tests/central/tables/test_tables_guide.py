"""docs/tables.md: every line runs, and every way gives the same."""

from __future__ import annotations

import json
import re
import statistics
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from edgert.central.fleet.job import FleetJob
from edgert.central.landing.arrow_rows import LandingBatch
from edgert.central.landing.flow_table import FlowTable
from edgert.central.landing.landing import Landing
from edgert.central.landing.lineage import counted
from edgert.central.tables.query import query
from edgert.cli.main import main
from edgert.core.results.result_schema import Schema
from edgert.core.settings.central import FleetJob as Settings
from edgert.core.settings.central import Upkeep as UpkeepSettings
from tests.central.results_examples import DAY_S, FLOW, SCHEMA, START, Gateway, contribution
from tests.central.sketch_examples import KIND_OF, sketch
from tests.central.upkeep_examples import Site

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]
TEXT = (Path(__file__).parents[3] / "docs" / "tables.md").read_text(encoding="utf-8")
VALUES = {"a": [20.0, 21.0, 22.0], "b": [30.0, 35.5]}
VISITS = {"a": ([1.0, 2.0, 3.0], [3.0, 4.0]), "b": ([3.0, 4.0], [5.0])}
"""Badges at a door, by minute."""


def examples(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", TEXT, re.DOTALL | re.MULTILINE)


@pytest.fixture(scope="module")
def root(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Two gateways; each sensor's first value in a window of its own, the others in the next. One fell back between the
    two sensors: it shipped the second once more."""
    folder = str(tmp_path_factory.mktemp("tables"))
    one, again, other = Gateway("g1"), Gateway("g1", epoch=2 << 32), Gateway("g2")
    a, b = (contribution(0, source, first) for source, (first, *_) in VALUES.items())
    Landing(folder).land([one.open(), other.open(), one.rows(a), one.rows(b)])
    Landing(folder).land([again.open(one.epoch, {0: 2}), again.rows(b)])
    FleetJob(spark, folder, Settings()).run_once()
    Landing(folder).land([other.rows(*(contribution(1, source, *more) for source, (_, *more) in VALUES.items()))])
    doors = Schema(60.0, SCHEMA.keys, (("people", "distinct"), ("visitors", "distinct_set"), ("wait", "quantiles")))
    for name, window in (("g1", 0), ("g2", 1)):
        gateway = Gateway(name, schema=doors, flow="doors")
        seen = [at_door(window, source, VISITS[source][window]) for source in VISITS]
        Landing(folder).land([gateway.open(), gateway.rows(*seen)])
    FleetJob(spark, folder, Settings()).run_once()
    return folder


def at_door(window: int, source: str, seen: list[float]) -> list[Any]:
    """A row of the flow `doors`: each badge waits as many seconds as its number."""
    bounds = [START + window * 60, START + window * 60 + 60]
    return [*bounds, source, *(sketch(how, seen) for how in KIND_OF)]


def is_the_truth(found: Any) -> bool:
    truth = [(source, len(v), statistics.fmean(v), max(v)) for source, v in VALUES.items()]
    return [(s, n, pytest.approx(t), hi) for s, n, t, hi in truth] == [tuple(row) for row in found]


@pytest.mark.parametrize("code", examples("python"), ids=lambda code: code.split("\n", 1)[0])
def test_every_example_runs_and_gives_the_truth(code: str, root: str, spark: SparkSession, tmp_path: Path) -> None:
    space: dict[str, Any] = {"root": root, "spark": spark, "checkpoint": str(tmp_path)}
    exec(code, space)  # noqa: S102 - our own guide
    if "found" in space:
        assert is_the_truth(space["found"])
    elif "minutes" in space:
        wanted = [("a", 3, 3, 2.0), ("b", 2, 2, 3.0), ("a", 2, 2, 3.0), ("b", 1, 1, 5.0)]
        assert [tuple(row.values()) for row in space["minutes"]] == wanted
    elif "estimates" in space:
        assert space["estimates"] == [("a", 4, 4.0), ("b", 3, 5.0)]
        assert (space["both"], space["any_door"]) == (2, 5)
    elif "people" in space:
        assert space["people"] == 5
    elif "seen" in space:
        assert sorted(space["seen"]) == [("a", 1, 20.0), ("a", 2, 22.0), ("b", 1, 30.0), ("b", 1, 30.0), ("b", 1, 35.5)]
    else:
        assert len(query(space["before"])) == 2, "before the second window"
        assert len(space["changes"]) == 4, "of each run the empty one and that of its windows"


def test_what_counts_by_the_guide_is_what_counts(tmp_path: Path) -> None:
    """Gateways that fell back again and again, to an epoch that was void, in one of two streams, to nothing, and to an
    epoch that is not there: (epoch, parent, cut) each."""
    histories: dict[str, list[tuple[int, int | None, dict[int, int]]]] = {
        "g1": [(1, None, {}), (2, 1, {0: 2}), (3, 1, {0: 3, 1: 1}), (4, 2, {0: 2, 1: 2})],
        "g2": [(1, None, {}), (2, 1, {0: 3})],
        "g3": [(1, None, {}), (2, None, {})],
        "g4": [(1, None, {}), (3, 2, {0: 3, 1: 3})],
    }
    batches: list[LandingBatch] = []
    at: dict[str, tuple[str, int, int, int]] = {}
    for name, history in histories.items():
        for epoch, parent, cut in history:
            gateway = Gateway(name, epoch)
            batches.append(gateway.open(parent, cut))
            for stream in (0, 0, 1, 1):
                place = (name, epoch, stream, gateway.sequences.get(stream, 0) + 1)
                at[str(place)] = place
                batches.append(gateway.rows(contribution(0, str(place), 1.0), stream=stream))
    Landing(str(tmp_path)).land(batches)
    table = FlowTable(str(tmp_path), FLOW)
    table.refresh()
    valid = counted(table.openings)
    wanted = set()
    for text, (name, epoch, stream, sequence) in at.items():
        cut_of = valid.get((name, epoch), {})
        if cut_of is None or sequence <= cut_of.get(stream, 0):
            wanted.add(text)
    (code,) = (code for code in examples("python") if "RECURSIVE" in code)
    space: dict[str, Any] = {"root": str(tmp_path)}
    exec(code, space)  # noqa: S102 - our own guide
    assert {source for source, *_ in space["found"]} == wanted
    assert len(wanted) < len(at)


def test_a_stream_as_the_guide_has_it_outlives_upkeep(spark: SparkSession, tmp_path: Path) -> None:
    (code,) = (code for code in examples("python") if "readStream" in code)
    site = Site(tmp_path / "tables", UpkeepSettings(compact_files=2, retention_days=2))
    site.tell("dashboard", 0)

    def seen() -> list[Any]:
        space: dict[str, Any] = {"root": str(site.root), "spark": spark, "checkpoint": str(tmp_path / "checkpoint")}
        exec(code, space)  # noqa: S102 - our own guide
        site.tell("dashboard", space["version"])
        rows: list[Any] = space["seen"]
        return rows

    site.ship(3)
    assert len(seen()) == 3
    site.ship(1, window=4 * 1440)
    site.now = START + 4 * DAY_S
    assert len(seen()) == 1
    dropped = 0
    for _ in range(3):
        dropped += site.keep().days
        assert seen() == []
    assert dropped == 1
    site.ship(2, window=4 * 1440)
    assert len(seen()) == 2


def test_the_command_gives_the_truth(root: str, capsys: pytest.CaptureFixture[str]) -> None:
    (command,) = examples("sh")
    sql = re.search(r'"(SELECT.*)"', command, re.DOTALL)
    assert sql
    assert main(["central", "query", "--root", root, "--json", sql[1]]) == 0
    assert is_the_truth(list(json.loads(line).values()) for line in capsys.readouterr().out.splitlines())
