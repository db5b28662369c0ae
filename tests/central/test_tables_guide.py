"""docs/tables.md: every line runs, and every way gives the same."""

from __future__ import annotations

import json
import re
import statistics
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from edgert.central.fleet_job import FleetJob
from edgert.central.landing import Landing
from edgert.central.query import query
from edgert.cli.main import main
from edgert.core.settings import FleetJob as Settings
from tests.central.results_examples import Gateway, contribution

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(240), pytest.mark.xdist_group("spark")]
TEXT = (Path(__file__).parents[2] / "docs" / "tables.md").read_text(encoding="utf-8")
VALUES = {"a": [20.0, 21.0, 22.0], "b": [30.0, 35.5]}


def examples(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", TEXT, re.DOTALL | re.MULTILINE)


@pytest.fixture(scope="module")
def root(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Two gateways; each sensor's first value in a window of its own, the others in the next."""
    folder = str(tmp_path_factory.mktemp("tables"))
    one, other = Gateway("g1"), Gateway("g2")
    rows = [contribution(0, source, first) for source, (first, *_) in VALUES.items()]
    Landing(folder).land([one.open(), other.open(), one.rows(*rows)])
    FleetJob(spark, folder, Settings()).run_once()
    Landing(folder).land([other.rows(*(contribution(1, source, *more) for source, (_, *more) in VALUES.items()))])
    FleetJob(spark, folder, Settings()).run_once()
    return folder


def is_the_truth(found: Any) -> bool:
    truth = [(source, len(v), statistics.fmean(v), max(v)) for source, v in VALUES.items()]
    return [(s, n, pytest.approx(t), hi) for s, n, t, hi in truth] == [tuple(row) for row in found]


@pytest.mark.parametrize("code", examples("python"), ids=lambda code: code.split("\n", 1)[0])
def test_every_example_runs_and_gives_the_truth(code: str, root: str, spark: SparkSession) -> None:
    space: dict[str, Any] = {"root": root, "spark": spark}
    exec(code, space)  # noqa: S102 - our own guide
    if "found" in space:
        assert is_the_truth(space["found"])
    else:
        assert len(query(space["before"])) == 2, "before the second window"
        assert len(space["changes"]) == 2


def test_the_command_gives_the_truth(root: str, capsys: pytest.CaptureFixture[str]) -> None:
    (command,) = examples("sh")
    sql = re.search(r'"(SELECT.*)"', command, re.DOTALL)
    assert sql
    assert main(["central", "query", "--root", root, "--json", sql[1]]) == 0
    assert is_the_truth(list(json.loads(line).values()) for line in capsys.readouterr().out.splitlines())
