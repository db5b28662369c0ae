"""What rows cost in `edgert simulate`, as a gateway's status has it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from edgert.cli.main import main
from tests.cli.worlds import CHAINS, DOCUMENT, rows


@pytest.fixture
def file(tmp_path: Path) -> Path:
    made = tmp_path / "city-air.toml"
    made.write_text(DOCUMENT)
    return made


def test_costs_come_from_a_gateways_status_and_from_the_command_line(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    operators = [{"name": "readings", "rows_in": 1_000, "rows_out": 500, "turns": 0, "busy_s": 0.004}]
    status = tmp_path / "status.json"
    status.write_text(json.dumps({"flows": [{"name": "city-air", "operators": operators}]}))
    arguments = ["--rate", "1000", "--seconds", "1", "--policy", "round-robin", "--status", str(status)]
    assert main(["simulate", str(file), *arguments, "--cost", "minute=50,0.1", "--board", "pi4"]) == 0
    told = capsys.readouterr().out
    assert "readings: 16.0 µs per row, 1.6% of a worker" in told
    assert "minute: 200.0 µs per row, 10.0% of a worker" in told, "half of the rows reach it"


def test_what_was_computed_in_one_function_with_the_source_costs_nothing_more(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    operators = [
        {"name": "readings", "rows_in": 1_000, "rows_out": 500, "turns": 0, "busy_s": 0.004},
        {"name": "minute", "rows_in": 500, "rows_out": 5, "turns": 0, "busy_s": 0.0},
    ]
    status = tmp_path / "status.json"
    status.write_text(json.dumps({"flows": [{"name": "city-air", "operators": operators}]}))
    arguments = ["--rate", "1000", "--seconds", "1", "--policy", "round-robin", "--status", str(status)]
    assert main(["simulate", str(file), *arguments]) == 0
    told = capsys.readouterr().out
    assert "readings: 4.0 µs per row" in told
    assert "minute: 0.0 µs per row" in told


def test_a_status_from_before_an_operator_was_added_serves_for_the_others(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Measured without `kelvin` and `by_place`, which now end a chain that `valid` begins."""
    operators = [
        {"name": "readings", "rows_in": 1_000, "rows_out": 1_000, "turns": 0, "busy_s": 0.01},
        {"name": "valid", "rows_in": 1_000, "rows_out": 900, "turns": 0, "busy_s": 0.002},
        {"name": "minute", "rows_in": 0, "rows_out": 0, "turns": 0, "busy_s": 0.0},
    ]
    status = tmp_path / "status.json"
    status.write_text(json.dumps({"flows": [{"name": "city-air", "operators": operators}]}))
    arguments = ["--rate", "100", "--seconds", "1", "--policy", "random", "--status", str(status)]
    assert main(["simulate", str(file), *arguments]) == 0
    told = capsys.readouterr()
    assert "valid+kelvin+by_place: 2.0 µs per row, 0.0% of a worker; a row gives 0.9 (measured)" in told.out
    assert "minute: 10.0 µs per row (assumed), 0.1% of a worker; a row gives 1 (assumed: as many results" in told.out
    assert "the status says nothing of kelvin in valid+kelvin+by_place: no cost, and a row for a row" in told.err
    assert "the status says nothing of central: its rows cost what is the default" in told.err


APART = """
name = "city-air"
operators.in = { type = "mqtt_source", topic = "city/{source}/sense" }
operators.a = { type = "filter", input = "in", where = "x > 0" }
operators.smooth = { type = "kalman", input = "a", field = "y", output = "z" }
operators.b = { type = "filter", input = "smooth", where = "y > 0" }
operators.out = { type = "publish", input = "b", topic = "o/{source}" }
"""


def test_of_a_chain_that_was_measured_as_one_and_is_apart_now_the_last_part_gives_what_the_whole_gave(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    operators = [
        {"name": "in", "rows_in": 1_000, "rows_out": 1_000, "turns": 0, "busy_s": 0.01},
        {"name": "a+b", "rows_in": 1_000, "rows_out": 250, "turns": 0, "busy_s": 0.002},
        {"name": "out", "rows_in": 250, "rows_out": 0, "turns": 0, "busy_s": 0.001},
    ]
    flow, status = tmp_path / "flow.toml", tmp_path / "status.json"
    flow.write_text(APART)
    status.write_text(json.dumps({"flows": [{"name": "city-air", "operators": operators}]}))
    assert main(["simulate", str(flow), *CHAINS, "--rate", "1000", "--seconds", "2", "--status", str(status)]) == 0
    told = capsys.readouterr().out
    assert "a: 2.0 µs per row, 0.2% of a worker; a row gives 1 (assumed: only a+b as a whole was measured)" in told
    assert "a row gives 0.25 (assumed: only a+b as a whole was measured)" in told
    assert float(rows(told)["round-robin"][0]) == pytest.approx(250, rel=0.2)


def of_operators(*operators: str) -> str:
    return f'{{"flows": [{{"name": "city-air", "operators": [{", ".join(operators)}]}}]}}'


@pytest.mark.parametrize(
    "text",
    [
        "{", "[]", "{}", "[" * 100_000, '{"flows": []}', '{"flows": [{"name": "city-air"}]}', of_operators("7"),
        of_operators('{"name": "readings", "rows_in": -5, "rows_out": 10, "turns": 0, "busy_s": 0.1}'),
        of_operators('{"name": "readings", "rows_in": 5, "rows_out": -1, "turns": 0, "busy_s": 0.1}'),
        of_operators('{"name": "readings", "rows_in": 5, "rows_out": 5, "turns": 0, "busy_s": -1}'),
        of_operators('{"name": "readings", "rows_in": 5, "rows_out": 5, "turns": 0, "busy_s": 1e400}'),
        of_operators('{"name": "readings", "rows_in": 5, "rows_out": 5, "turns": 0, "busy_s": NaN}'),
        of_operators('{"name": "readings", "rows_in": 5, "rows_out": 5, "turns": 0, "busy_s": "1"}'),
        of_operators('{"name": "readings", "rows_in": 5, "rows_out": 5, "turns": 1, "busy_s": 1, "idle_s": -1}'),
        of_operators('{"name": "readings", "rows_in": 5, "rows_out": 5, "turns": 1, "busy_s": 1, "idle_s": NaN}'),
        of_operators('{"name": "readings", "rows_in": true, "rows_out": 5, "turns": 0, "busy_s": 1}'),
        of_operators('{"name": "readings", "rows_in": "7", "rows_out": 5, "turns": 0, "busy_s": 1}'),
        of_operators('{"name": "readings", "rows_in": 1, "rows_out": %s, "turns": 0, "busy_s": 1}' % ("9" * 400)),
        of_operators('{"name": 5, "rows_in": 5, "rows_out": 5, "turns": 0, "busy_s": 1}'),
    ],
    ids=range(19),
)  # fmt: skip
def test_a_status_that_is_none_is_named(
    file: Path, tmp_path: Path, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    status = tmp_path / "status.json"
    status.write_text(text)
    assert main(["simulate", str(file), "--rate", "10", "--status", str(status)]) == 1
    assert "status.json: expected" in capsys.readouterr().err


def measured(file: Path, *operators: tuple[str, int, int, float | None, float]) -> int:
    """Simulates with a status of these: name, rows, turns, seconds of rest (None: not said) and of computing."""
    status = file.with_name("status.json")
    keys = ("name", "rows_in", "rows_out", "turns", "busy_s")
    said = [
        dict(zip(keys, (name, rows, rows, turns, busy_s), strict=True)) | ({} if idle_s is None else {"idle_s": idle_s})
        for name, rows, turns, idle_s, busy_s in operators
    ]
    status.write_text(json.dumps({"flows": [{"name": "city-air", "operators": said}]}))
    return main(["simulate", str(file), "--rate", "100", "--seconds", "1", "--status", str(status)])


def test_what_turns_cost_beside_rows_is_taken_off_a_status(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Cold caches: 90 µs for each turn of a source, 20 µs for any other part of its region."""
    whole = [("valid+kelvin+by_place", 1_000, 0, 0.0, 0.003), ("minute", 1_000, 0, 0.0, 0.005)]
    assert measured(file, ("readings", 1_000, 100, 1.0, 0.013), *whole) == 0
    told = capsys.readouterr()
    for line in ("readings: 4.0 µs", "valid+kelvin+by_place: 1.0 µs", "minute: 3.0 µs"):
        assert f"  {line} per row, " in told.out
    assert "rested" not in told.err


def test_of_turns_that_follow_each_other_hardly_anything_is_taken_off(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """0.3 ms of rest before each of 1,000 turns: a tenth of what makes caches cold."""
    whole = [("valid+kelvin+by_place", 1_000, 0, 0.0, 0.012), ("minute", 1_000, 0, 0.0, 0.005)]
    assert measured(file, ("readings", 1_000, 1_000, 0.3, 0.033), *whole) == 0
    told = capsys.readouterr().out
    for line in ("readings: 24.0 µs", "valid+kelvin+by_place: 10.0 µs", "minute: 3.0 µs"):
        assert f"  {line} per row, " in told


def test_a_part_that_few_rows_reach_had_no_more_turns_than_rows(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole = [("valid+kelvin+by_place", 1_000, 0, 0.0, 0.012), ("minute", 10, 0, 0.0, 0.001)]
    assert measured(file, ("readings", 1_000, 100, 1.0, 0.013), *whole) == 0
    assert "minute: 80.0 µs per row, " in capsys.readouterr().out


def test_where_turns_may_have_cost_all_of_the_time_that_is_told(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole = [("valid+kelvin+by_place", 1_000, 0, 0.0, 0.003), ("minute", 1_000, 0, 0.0, 0.002)]
    assert measured(file, ("readings", 1_000, 100, 1.0, 0.013), *whole) == 0
    told = capsys.readouterr().out
    assert "minute: 0.2 µs per row (assumed: a tenth of what was measured, turns may have cost the rest), " in told
    assert "with costs that are assumed" in told


def test_of_a_status_that_does_not_tell_of_rests_nothing_is_taken_off(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = [("valid+kelvin+by_place", 1_000, 0, None, 0.003), ("minute", 1_000, 0, None, 0.002)]
    assert measured(file, ("readings", 1_000, 100, None, 0.013), *whole) == 0
    told = capsys.readouterr()
    assert "readings: 13.0 µs per row, " in told.out
    assert "the status does not say how long instances rested: what cold caches cost is in what rows" in told.err
