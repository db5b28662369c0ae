"""The form of all benchmarks: figures, ratios, bars, table, file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import machine
from benchmarks.__main__ import find, main, names
from benchmarks.report import Report


def report(repetitions: int = 3) -> Report:
    return Report("toy", "a toy", {"cpu": "none"}, repetitions)


def filled() -> Report:
    made = report()
    for ours, theirs in ((2.0, 8.0), (3.0, 10.0), (1.0, 5.0)):
        made.add("ours", ours, "µs")
        made.add("theirs", theirs, "µs")
    return made


def test_what_comes_to_no_number_is_said_and_keeps_nothing_from_being_written(tmp_path: Path) -> None:
    made = report()
    for value in (2.0, float("nan"), 4.0):
        made.add("ours", value, "ms")
        made.add("theirs", 1.0, "ms")
        made.add("none", float("nan"), "ms")
    made.ratio("ours / theirs", "ours", "theirs")
    plain = json.loads(made.write_json(tmp_path).read_text())
    ours, none = plain["figures"]["ours"], plain["figures"]["none"]
    assert (ours["median"], ours["minimum"], ours["maximum"]) == (3.0, 2.0, 4.0)
    assert (ours["values"], ours["valid"]) == ([2.0, None, 4.0], False)
    assert (none["median"], none["values"], none["valid"]) == (None, [None] * 3, False)
    assert plain["ratios"]["ours / theirs"]["values"] == [2.0, None, 4.0]
    assert "NOT VALID: a repetition came to nan" in made.table()
    assert not made.holds


def test_a_figure_tells_median_minimum_maximum_unit_and_repetitions() -> None:
    plain = filled().plain()["figures"]["ours"]
    assert (plain["median"], plain["minimum"], plain["maximum"]) == (2.0, 1.0, 3.0)
    assert (plain["unit"], plain["repetitions"], plain["values"]) == ("µs", 3, [2.0, 3.0, 1.0])


def test_a_ratio_is_taken_repetition_by_repetition() -> None:
    made = filled()
    made.ratio("ours / theirs", "ours", "theirs")
    assert made.ratios["ours / theirs"].values == [0.25, 0.3, 0.2]


@pytest.mark.parametrize(("limit", "kept"), [(0.25, True), (0.24, False)])
def test_a_bar_is_kept_up_to_its_limit(limit: float, kept: bool) -> None:
    made = filled()
    made.ratio("ours / theirs", "ours", "theirs", limit)
    assert made.holds is kept
    assert made.plain()["ratios"]["ours / theirs"]["holds"] is kept
    assert ("NOT KEPT" in made.table()) is not kept


def test_a_fault_makes_a_figure_and_its_ratios_invalid_and_is_said() -> None:
    made = filled()
    made.add("theirs", 1.0, "µs", fault="5 messages sent, 4 received")
    made.add("ours", 1.0, "µs")
    made.ratio("ours / theirs", "ours", "theirs", 9.0)
    assert not made.holds
    assert made.figures["ours"].valid
    assert not made.plain()["ratios"]["ours / theirs"]["valid"]
    assert "NOT VALID: 5 messages sent, 4 received" in made.table()


def test_a_remark_is_said_with_the_verdict_and_costs_nothing() -> None:
    made = filled()
    made.add("theirs", 4.0, "µs", remark="fell behind")
    made.add("ours", 1.0, "µs")
    made.ratio("ours / theirs", "ours", "theirs", 0.5)
    assert made.holds
    assert "bar 0.500: kept; theirs: fell behind" in made.table()
    assert made.plain()["figures"]["theirs"]["remarks"] == ["fell behind"]


def test_one_figure_has_one_unit() -> None:
    made = filled()
    with pytest.raises(ValueError, match="expected ours in µs as before, got ms"):
        made.add("ours", 1.0, "ms")


def test_the_table_is_aligned() -> None:
    lines = filled().table().splitlines()[-3:]
    assert lines[0].split() == ["median", "minimum", "maximum", "unit"]
    assert [line.index("µs") for line in lines[1:]] == [lines[0].index("unit")] * 2


def test_the_file_holds_what_was_promised_and_curves_as_they_are(tmp_path: Path) -> None:
    made = filled()
    made.curves["of ours"] = [[1, 2.5], [2, None]]
    made.ratio("ours / theirs", "ours", "theirs")
    written = json.loads(made.write_json(tmp_path).read_text())
    assert made.name == "toy"
    assert list(written) == ["name", "about", "machine", "repetitions", "figures", "ratios", "notes", "curves"]
    assert written["curves"] == {"of ours": [[1, 2.5], [2, None]]}


def test_a_figure_that_nobody_measured_is_not_valid_and_can_still_be_written(tmp_path: Path) -> None:
    made = report()
    made.add("a", 1.0, "s")
    made.figures["a"].values.clear()
    assert not made.holds
    assert json.loads(made.write_json(tmp_path).read_text())["figures"]["a"]["median"] is None


def test_the_machine_is_described(tmp_path: Path) -> None:
    described = machine.describe()
    assert {"cpu", "cores", "kernel", "python", "load_before"} <= set(described)
    assert json.dumps(described)


def test_a_board_is_named_by_its_model_line(tmp_path: Path) -> None:
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text("processor\t: 0\nModel\t\t: Raspberry Pi 4 Model B Rev 1.4\n")
    assert machine.cpu_model(cpuinfo) == "Raspberry Pi 4 Model B Rev 1.4"


def test_every_benchmark_is_listed_with_its_claim(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--list"]) == 0
    told = capsys.readouterr().out
    assert "ingest" in names()
    assert all(name in told and find(name).about in told for name in names())


def test_an_unknown_name_is_refused_with_the_known_ones(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["no-such"])
    assert ended.value.code == 2
    assert "ingest" in capsys.readouterr().err
