"""Windows that are merged when they are read, without Spark."""

from __future__ import annotations

import random
import statistics
import subprocess
import sys
from pathlib import Path

import pytest

from edgert.central.fleet import on_reading
from edgert.central.landing.landing import Landing
from edgert.cli.main import main
from edgert.core.errors import EdgertError
from edgert.core.results.result_schema import Schema
from tests.central.results_examples import FLOW, Gateway, contribution
from tests.central.sketch_examples import KIND_OF, sketch

NOW = 2_000_000_000.0
SKETCHED = Schema(60.0, (("source", "string"),), (("n", "count"), ("u", "distinct"), ("q", "quantiles")))


def told(root: Path, name: str = FLOW, limit: int = 20, where: str = "") -> list[dict[str, object]]:
    found = on_reading.read(str(root), name, NOW, limit, where)
    return [dict(zip(found.columns, row, strict=True)) for row in found.rows]


def test_contributions_of_all_gateways_are_one_window_with_its_mean(tmp_path: Path) -> None:
    landing, one, two = Landing(str(tmp_path)), Gateway("g1"), Gateway("g2")
    landing.land([one.open(), two.open()])
    landing.land([one.rows(contribution(0, "a", 1.0, 2.0), contribution(0, None, 7.0), contribution(1, "a", 4.0))])
    landing.land([two.rows(contribution(0, "a", 6.0))])
    newest, *others = told(tmp_path)
    assert (newest["n"], newest["t"], newest["v"], newest["gateways"]) == (1, 4.0, None, 1)
    [row] = [row for row in others if row["source"] == "a"]
    assert (row["n"], row["t"], row["lo"], row["hi"], row["total"], row["gateways"]) == (3, 3.0, 1.0, 6.0, 9.0, 2)
    assert row["v"] == pytest.approx(statistics.variance([1.0, 2.0, 6.0]))
    assert [row["t"] for row in others if row["source"] is None] == [7.0]
    assert [row["t"] for row in told(tmp_path, limit=1)] == [4.0]
    assert [row["t"] for row in told(tmp_path, where="t < 5 AND source = 'a'")] == [4.0, 3.0], "of whole windows"


def test_what_a_fallback_has_given_up_does_not_count(tmp_path: Path) -> None:
    landing, old = Landing(str(tmp_path)), Gateway("g1")
    landing.land([old.open(), old.rows(contribution(0, "a", 1.0)), old.rows(contribution(1, "a", 5.0))])
    new = Gateway("g1", epoch=2 << 32)
    landing.land([new.open(old.epoch, {0: 2}), new.rows(contribution(2, "a", 9.0))])
    assert [row["t"] for row in told(tmp_path)] == [9.0, 1.0]


def test_a_site_without_spark_sees_means_and_is_told_who_made_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    landing, gateway = Landing(str(tmp_path)), Gateway("g1")
    landing.land([gateway.open(), gateway.rows(*(contribution(n, "a", 1.0) for n in range(30)))])
    assert main(["central", "show", FLOW, "--root", str(tmp_path), "--limit", "2"]) == 0
    shown = capsys.readouterr()
    assert shown.out.split()[:5] == ["window_start", "window_end", "source", "n", "t"]
    assert f"fleet/{FLOW} is not there yet" in shown.err
    assert "merged here, as it is read" in shown.err
    assert main(["central", "show", f"landing/{FLOW}", "--root", str(tmp_path)]) == 0
    shown = capsys.readouterr()
    assert "t__sum" in shown.out
    assert shown.err == ""


def test_results_of_sketches_are_united_and_no_condition_leaves_them_out_silently(tmp_path: Path) -> None:
    landing, rng = Landing(str(tmp_path)), random.Random(1)
    parts = [[rng.gauss(0, 1) for _ in range(50)], [rng.gauss(5, 1) for _ in range(30)]]
    for number, values in enumerate(parts):
        gateway = Gateway(f"g{number}", schema=SKETCHED)
        bounds = contribution(0, "a", 1.0)[:3]
        sketches = [sketch(how, values) for how in KIND_OF if how != "distinct_set"]
        landing.land([gateway.open(), gateway.rows([*bounds, len(values), *sketches])])
    [row] = told(tmp_path)
    assert (row["n"], row["u"]) == (80, 80)
    assert row["q__p50"] == pytest.approx(statistics.median(parts[0] + parts[1]), abs=0.2)
    with pytest.raises(EdgertError, match="--where: q__p50 come from sketches"):
        told(tmp_path, where="q__p50 > 1")
    with pytest.raises(EdgertError, match=f"{FLOW}: expected a condition over window_start, window_end, source, n, u"):
        told(tmp_path, where="nope > 1")


def test_reading_needs_no_spark(tmp_path: Path) -> None:
    landing, gateway = Landing(str(tmp_path)), Gateway("g1")
    landing.land([gateway.open(), gateway.rows(contribution(0, "a", 1.0))])
    code = (
        "import sys; sys.modules.update(dict.fromkeys(('pyspark', 'delta', 'datasketches'))); "
        "from edgert.cli.main import main; sys.exit(main(sys.argv[1:]))"
    )
    command = [sys.executable, "-c", code, "central", "show", FLOW, "--root", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
