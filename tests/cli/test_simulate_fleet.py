"""`edgert simulate --fleet` by the real command: its plan of events, the laboratory's boards, and what is wrong."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from edgert import install_hint
from edgert.cli.main import build_parser
from edgert.cli.simulate.fleet import job_of
from edgert.core.toml import to_toml
from tests.agent.simulation.worlds import FLOW

pytestmark = pytest.mark.integration
LAB = Path(__file__).parents[1] / "lab"
ROOT = Path(__file__).parents[2]


@pytest.fixture
def flow(tmp_path: Path) -> Path:
    path = tmp_path / "air.toml"
    path.write_text(to_toml(FLOW))
    return path


def edgert(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "edgert", "simulate", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=500, check=False)


def test_the_laboratorys_eleven_boards_with_faults_end_with_a_summary(flow: Path, tmp_path: Path) -> None:
    found = tmp_path / "found.json"
    given = ("--rate", 100, "--cost", "minute=200", "--fleet", LAB / "eleven.toml", "--seconds", 30, "--seed", 5)
    done = edgert(flow, *given, "--kills", 1, "--cuts", 1, "--json", found)
    assert done.returncode == 0, done.stderr
    assert "flow air on 11 boards, 100 rows/s into each source, 30 s, seed 5" in done.stdout
    assert "the flow is deployed at root" in done.stdout
    for name in ("availability", "two owners", "gossip", "coordinates", "placement at end"):
        assert f"\n{name}:" in done.stdout, name
    run = json.loads(found.read_text())["runs"][0]
    assert run["two_owners"] == []
    assert 0 < run["availability"] <= 1
    assert 0 < run["coordinate_error_median"] < 0.5
    assert run["rows"]["came"] == pytest.approx(30 * 100, rel=0.1)


def test_the_plan_is_that_of_the_seed_and_of_the_file(flow: Path, tmp_path: Path) -> None:
    boards = tmp_path / "boards.toml"
    boards.write_text((LAB / "boards.toml").read_text() + '\n[[events]]\nat_s = 7\nkill = "g2"\nfor_s = 5\n')
    given = (flow, "--rate", 1, "--fleet", boards, "--plan", "--kills", 3, "--clock-jumps", 1, "--seed", 9)
    first, again = edgert(*given), edgert(*given)
    assert (first.returncode, first.stdout) == (0, again.stdout)
    assert len(first.stdout.splitlines()) == 5
    assert "     7.0 s  g2 loses its power for 5.0 s" in first.stdout


def test_all_heuristics_stand_in_one_table(flow: Path) -> None:
    done = edgert(flow, "--rate", 10, "--cost", "minute=5", "--fleet", LAB / "boards.toml", "--seconds", 5,
                  "--heuristic", "all")  # fmt: skip
    assert done.returncode == 0, done.stderr
    names = [line.split()[0] for line in done.stdout.splitlines() if "%" in line]
    assert names == ["hybrid", "hybrid-as-published", "hill-climbing", "ant-system", "resource-aware",
                     "locality-fairness", "even", "none"]  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["--fleet", "nowhere.toml"], 1, "edgert: nowhere.toml: No such file or directory"),
        (["--fleet", LAB / "boards.toml", "--at", "g9"], 2, "--at: expected a board of .*, got 'g9'"),
        (["--fleet", LAB / "boards.toml", "--pin", "minute=g9"], 2, "--pin: expected a board"),
        (["--fleet", LAB / "boards.toml", "--pin", "minute"], 1, "--pin: expected OPERATOR=BOARD, got 'minute'"),
        (["--fleet", LAB / "boards.toml", "--pin", "hour=g1"], 1, "cannot be deployed.*expected an operator"),
        (["--fleet", LAB / "boards.toml", "--heuristic", "best"], 2, "--heuristic: expected one of .*, got 'best'"),
        (["--fleet", LAB / "boards.toml", "--kills", "-1"], 2, "expected a whole number from 0 to 1000, got '-1'"),
        (["--fleet", LAB / "boards.toml", "--row-bytes", "0"], 2, "expected a number above 0, got '0'"),
    ],
)
def test_what_is_wrong_is_named(flow: Path, arguments: list[object], status: int, message: str) -> None:
    done = edgert(flow, "--rate", 10, "--cost", "minute=5", "--seconds", 1, *arguments)
    assert done.returncode == status, done.stdout
    assert re.search(message, done.stderr, flags=re.DOTALL), done.stderr


def test_a_fleet_is_simulated_where_only_the_gateways_packages_are(flow: Path) -> None:
    """As after `pip install .`: the program that simulates is imported without those of the extras."""
    code = (
        f"import sys; sys.modules.update(dict.fromkeys({tuple(install_hint.EXTRAS)!r})); "
        "from agent.simulation.__main__ import main; sys.exit(main())"
    )
    arguments = ["simulate", flow, "--rate", 10, "--fleet", LAB / "boards.toml", "--seconds", 1, "--cost", "minute=5"]
    job = json.dumps(job_of(build_parser().parse_args([*map(str, arguments)])))
    done = subprocess.run(
        [sys.executable, "-c", code], input=job, text=True, capture_output=True, check=False, cwd=ROOT
    )
    assert (done.returncode, done.stderr) == (0, "")
