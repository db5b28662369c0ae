"""The fleet job as any cluster gets it: by Spark's own spark-submit."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from edgert.central.landing.landing import Landing
from edgert.central.spark.session import _jars
from edgert.cli.central import submit
from tests.central.fleet_world import World
from tests.central.results_examples import Gateway

FILE: Final = submit.__file__


@pytest.mark.spark
@pytest.mark.long
@pytest.mark.xdist_group("spark")
def test_spark_submit_runs_the_fleet_job(tmp_path: Path) -> None:
    import pyspark

    world = World(None, tmp_path)  # type: ignore[arg-type]
    world.landing = Landing(str(tmp_path))
    g = Gateway("g1")
    world.landing.land([g.open()])
    for window in range(3):
        world.ship(g, window, "a", float(window), 2.0)
    delta = [part for key, value in _jars().items() for part in (f"--conf={key}={value}",)]
    command = [
        str(Path(pyspark.__file__).parent / "bin" / "spark-submit"), "--master", "local[1]", *delta,
        "--conf", "spark.sql.shuffle.partitions=1", FILE, "--once", "--root", str(tmp_path),
    ]  # fmt: skip
    own = {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    done = subprocess.run(
        command, env={**os.environ, **own}, capture_output=True, text=True, timeout=280, check=False, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr[-3000:]
    world.check()


@pytest.mark.parametrize(
    ("submitted", "arguments", "why"),
    [
        (False, ["--once"], "expected to be started by spark-submit"),
        (True, ["--master=yarn"], "an option of spark-submit"),
    ],
)
def test_a_master_behind_the_file_or_no_spark_submit_is_refused(
    submitted: bool, arguments: list[str], why: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if submitted:
        monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    else:
        monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    assert submit.main(arguments) == 2
    assert why in capsys.readouterr().err
