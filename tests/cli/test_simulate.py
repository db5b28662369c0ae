"""`edgert simulate`: a flow on a virtual clock."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from benchmarks.riotbench.flows import pred
from edgert.cli.main import main
from edgert.core.settings.gateway import GatewaySettings
from edgert.scheduling.policies import POLICIES
from tests.cli.worlds import CHAINS, DOCUMENT, SPLIT, rows


@pytest.fixture
def file(tmp_path: Path) -> Path:
    made = tmp_path / "city-air.toml"
    made.write_text(DOCUMENT)
    return made


def test_every_policy_is_tried_on_the_same_arrivals(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", str(file), *CHAINS, "--rate", "1000", "--seconds", "1"]) == 0
    told = rows(capsys.readouterr().out)
    assert set(POLICIES) <= set(told)
    for policy in POLICIES:
        out, p50, p99, *_ = (float(cell.rstrip("%").replace(",", "")) for cell in told[policy])
        assert out == pytest.approx(2_000, rel=0.2), "two sinks take each row"
        assert 0 < p50 <= p99
    assert main(["simulate", str(file), *CHAINS, "--rate", "50", "--seconds", "5"]) == 0
    told = rows(capsys.readouterr().out)
    assert len({told[policy][0] for policy in POLICIES}) == 1, "where nothing waits all give out the same"


def test_the_same_seed_gives_the_same_figures(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told = []
    for seed in ("7", "7", "8"):
        assert main(["simulate", str(file), *CHAINS, "--rate", "1000", "--seconds", "1", "--seed", seed]) == 0
        told.append(rows(capsys.readouterr().out)["random"])
    assert told[0] == told[1] != told[2]


JOINED = """
name = "joined"
[operators.readings]
type = "mqtt_source"
topic = "city/{source}/sense"
[operators.by_sensor]
type = "key_by"
input = "readings"
keys = ["source"]
[operators.tenth]
type = "count_window"
input = "by_sensor"
size = 10
aggregates = { mean_t = "mean(t)" }
[operators.beside]
type = "join_latest"
inputs = ["readings", "tenth"]
fields = ["mean_t"]
[operators.jobs]
type = "join_observations"
inputs = ["readings", "beside"]
fields = ["t", "u", "v"]
[operators.one]
type = "join_observations"
input = "jobs"
fields = ["t", "u"]
[operators.fit]
type = "train_regression"
input = "one"
target = "t"
fields = ["u"]
size = 50
[operators.tell]
type = "publish"
input = "fit"
topic = "told/{source}"
"""


@pytest.mark.parametrize("trains", ["train_regression", "train_tree"])
def test_what_a_row_gives_is_taken_from_the_document_and_told(
    trains: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = tmp_path / "joined.toml"
    made.write_text(JOINED.replace("train_regression", trains))
    arguments = [
        "simulate",
        str(made),
        "--rate",
        "10000",
        "--seconds",
        "1",
        "--policy",
        "random",
        "--cost",
        "readings=5",
    ]
    assert main(arguments) == 0
    told = capsys.readouterr().out
    for line in (
        "readings: 5.0 µs per row, 5.0% of a worker; a row gives 1 (assumed: a message is a row)",
        "tenth: 10.0 µs per row (assumed), 10.0% of a worker; a row gives 0.1 (one of 10 rows: its size)",
        "beside: 10.0 µs per row (assumed), 11.0% of a worker; a row gives 0.909 (one for each row of its first input)",
        "jobs: 10.0 µs per row (assumed), 20.0% of a worker; a row gives 0.5 (assumed: each input has its",
        "one: 10.0 µs per row (assumed), 10.0% of a worker; a row gives 0.5 (assumed: each row brings one",
        "fit: 10.0 µs per row (assumed), 5.0% of a worker; a row gives 0.02 (one of 50 rows: its size)",
    ):
        assert f"\n  {line}" in told
    assert float(rows(told)["random"][0]) == pytest.approx(100, rel=0.2)
    assert main([*arguments, "--cost", "tenth=10,0.2", "--cost", "one=10,0"]) == 0
    told = capsys.readouterr().out
    assert "tenth: 10.0 µs per row, 10.0% of a worker; a row gives 0.2 (as said)" in told
    assert "beside: 10.0 µs per row (assumed), 12.0% of a worker; a row gives 0.833" in told
    assert rows(told)["random"][:3] == ["0", "-", "-"]


def test_more_than_the_worker_bears_is_said(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--rate", "20000", "--seconds", "0.2", "--policy", "random", "--cost", "readings=100"]
    assert main(["simulate", str(file), *arguments]) == 1
    assert "20000 rows/s are more than one worker bears" in capsys.readouterr().err


def test_rows_that_have_not_come_out_count_as_late_as_they_are(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """At twice what is borne half of the rows wait at the end."""
    arguments = ["--rate", "2000", "--seconds", "2", "--cost", "readings=900", "--cost", "minute=100"]
    assert main(["simulate", str(file), *CHAINS, *arguments]) == 1
    told = rows(capsys.readouterr().out)
    for policy in POLICIES:
        p99 = told[policy][2]
        assert p99.startswith("≥"), "they have not come out"
        assert float(p99[1:]) > 800.0, policy


def test_a_space_is_before_every_figure_however_long_it_is(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--rate", "15", "--seconds", "3000", "--policy", "random", "--cost", "readings=200000"]
    assert main(["simulate", str(file), *CHAINS, *arguments]) == 1
    told = rows(capsys.readouterr().out)["random"]
    assert len(told) == len(rows("policy out p50 p99 longest waiting busy balance")["policy"])
    assert told[2].startswith("≥")
    assert len(told[2]) >= 10


def test_a_latency_budget_is_what_a_gateway_takes(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for text in ("3", "-1", "nan", "long"):
        with pytest.raises(SystemExit):
            main(["simulate", str(file), "--rate", "1", "--latency-budget", text])
        assert f"--latency-budget: expected a number from 0 to 1, got '{text}'" in capsys.readouterr().err
    assert main(["simulate", str(file), "--rate", "1000", "--seconds", "0.5", "--latency-budget", "1"]) == 0
    told = rows(capsys.readouterr().out)["any"]
    assert told[1].startswith("≥"), "hardly any were read"
    assert float(told[4]) == pytest.approx(550, rel=0.15)


def test_costs_that_nobody_has_said_are_told(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["simulate", str(file), "--rate", "100", "--seconds", "1", "--policy", "random"]
    assert main(arguments) == 0
    told = capsys.readouterr()
    assert "readings: 10.0 µs per row (assumed), " in told.out
    assert "rows/s at most (Σ q c, turns not counted; with costs that are assumed)" in told.out
    assert "without --status or --cost every row is taken to cost 10 µs" in told.err
    names = re.findall(r"^  (\S+): ", told.out, re.MULTILINE)
    assert main([*arguments, *(part for name in names for part in ("--cost", f"{name}=5"))]) == 0
    told = capsys.readouterr()
    assert told.err == ""
    assert "turns not counted)" in told.out


def test_more_workers_bear_more_but_run_an_instance_one_at_a_time(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--seconds", "0.5", "--policy", "random", "--cost", "readings=300", "--cost", "minute=300"]
    assert main(["simulate", str(file), *CHAINS, *arguments, "--rate", "2500"]) == 1
    assert "are more than one worker bears" in capsys.readouterr().err
    assert main(["simulate", str(file), *CHAINS, *arguments, "--rate", "2500", "--workers", "4"]) == 0
    told = capsys.readouterr().out
    assert "4 workers bear 3,333 rows/s at most" in told
    assert main(["simulate", str(file), *CHAINS, *arguments, "--rate", "4000", "--workers", "4"]) == 1
    assert "are more than 4 workers bear: queues grow" in capsys.readouterr().err


@pytest.mark.parametrize("consumption", ["all", "half"])
def test_no_worker_is_busy_for_more_than_all_of_the_time(
    file: Path, consumption: str, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--rate", "9000", "--seconds", "0.3", "--cost", "readings=400", "--consumption", consumption]
    assert main(["simulate", str(file), *CHAINS, *arguments]) == 1
    told = rows(capsys.readouterr().out)
    assert {told[policy][5] for policy in POLICIES} == {"100%"}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--cost", "x=3"], "expected INSTANCE=MICROSECONDS[,SELECTIVITY] with one of readings"),
        (["--cost", "readings=-3"], "expected INSTANCE=MICROSECONDS"),
        (["--cost", "readings"], "expected INSTANCE=MICROSECONDS"),
        (["--cost", "readings=inf"], "expected INSTANCE=MICROSECONDS"),
        (["--cost", "readings=nan"], "expected INSTANCE=MICROSECONDS"),
        (["--cost", "readings=3,"], "expected INSTANCE=MICROSECONDS"),
        (["--cost", "readings=3,nan"], "expected INSTANCE=MICROSECONDS"),
        (["--cost", "readings=3,1e9"], "expected a simulation of at most 50,000,000 rows in all queues"),
        (["--seconds", "1e300"], "expected a simulation of at most 50,000,000 rows in all queues"),
        (["--status", "/does/not/exist"], "expected a readable file"),
    ],
)
def test_what_cannot_be_used_is_named(
    file: Path, arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["simulate", str(file), "--rate", "10", *arguments]) == 1
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    "bad",
    [["--rate", "0"], ["--rate", "many"], ["--rate", "1", "--workers", "0"]],
)
def test_wrong_arguments_end_with_status_2(file: Path, bad: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["simulate", str(file), *bad])
    assert ended.value.code == 2


PRED = (
    "readings=3", "classify+brief_class=.5", "regress=.6", "average=1", "classes=.6", "beside=.5",
    "error+brief_error=.4", "errors=.3",
)  # fmt: skip
"""µs per row, warm: 6.9 together, shared out roughly as measured."""


@pytest.mark.parametrize("fusion", ["full", "chains"])
@pytest.mark.parametrize(("rate", "used"), [(1_000, 0.08), (5_000, 0.11), (20_000, 0.20)])
def test_the_load_is_that_of_the_engine(
    tmp_path: Path, fusion: str, rate: int, used: float, capsys: pytest.CaptureFixture[str]
) -> None:
    """`used`: about the CPU of `python -m benchmarks.riotbench.engine --application pred`, where rows cost about that.
    It varied by a third from run to run, more than from one fusion to the other."""
    flow = tmp_path / "pred.json"
    flow.write_text(json.dumps(pred()))
    said = [part for cost in PRED for part in ("--cost", cost)]
    arguments = ["--rate", str(rate), "--seconds", "1", "--policy", "congestion-aware", "--fusion", fusion, *said]
    assert main(["simulate", str(flow), *arguments]) == 0
    busy = float(rows(capsys.readouterr().out)["congestion-aware"][5].rstrip("%")) / 100
    assert used / 1.5 < busy < used * 1.5


def test_by_default_it_is_simulated_as_a_gateway_runs_it(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["simulate", str(file), "--rate", "1000", "--seconds", "1"]
    assert main(arguments) == 0
    told = capsys.readouterr().out
    settings = GatewaySettings()
    as_set = ["--fusion", settings.pool.fusion, "--latency-budget", str(settings.sensors.latency_budget_s)]
    assert main([*arguments, *as_set]) == 0
    assert capsys.readouterr().out == told
    assert "in reads at least 5 ms apart" in told
    assert main(["simulate", str(file), "--rate", "390", "--seconds", "1"]) == 0
    assert "each read by itself" in capsys.readouterr().out, "a pause would save nothing"
    assert main([*arguments, "--latency-budget", "0"]) == 0
    assert "each read by itself" in capsys.readouterr().out


def test_of_one_instance_it_is_said_that_there_is_nothing_to_schedule(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["simulate", str(file), "--rate", "1000", "--seconds", "1", "--cost", "readings=3"]
    assert main(arguments) == 0
    told = capsys.readouterr().out
    assert "nothing to schedule, and policies are alike (--fusion chains leaves more apart)" in told
    assert "valid+kelvin+by_place: 10.0 µs per row" in told, "costs stand at operators all the same"
    results = rows(told)
    assert "any" in results
    assert not set(POLICIES) & set(results)
    assert float(results["any"][0].replace(",", "")) == pytest.approx(2_000, rel=0.2), "two sinks in it"
    assert main([*arguments, *CHAINS]) == 0
    assert "nothing to schedule" not in capsys.readouterr().out


def test_copies_share_the_work_of_one(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text(SPLIT)
    arguments = ["simulate", str(file), *CHAINS, "--rate", "1000", "--seconds", "1", "--policy", "round-robin"]
    assert main([*arguments, "--cost", "minute=60", "--cost", "readings#2=30"]) == 0
    told = capsys.readouterr().out
    assert "readings#1: 10.0 µs per row (assumed), 0.5% of a worker" in told
    assert "readings#2: 30.0 µs per row, 1.5% of a worker" in told
    assert [line for line in told.splitlines() if "minute#" in line] == [
        f"  minute#{n}: 60.0 µs per row, 2.0% of a worker; a row gives 1 "
        "(assumed: as many results as rows, the most there can be)"
        for n in (1, 2, 3)
    ]
    assert float(rows(told)["round-robin"][0].replace(",", "")) == pytest.approx(2_000, rel=0.2), "no row is doubled"
    assert main([*arguments, "--cost", "minute=60", "--fission", "off"]) == 0
    assert "minute: 60.0 µs per row, 6.0% of a worker" in capsys.readouterr().out
