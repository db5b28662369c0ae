"""Collectors as processes, and one Spark session for all tests that need it: its start takes longer than they do."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.central.collector_rig import Start, collector

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.central.fleet_world import World


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A session as the fleet job makes it."""
    from edgert.central.spark.session import make_session

    session = make_session("edgert-tests")
    yield session
    session.stop()


@pytest.fixture
def world(spark: SparkSession, tmp_path: Path) -> World:
    from tests.central.fleet_world import World

    return World(spark, tmp_path)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts collectors; all are ended after the test."""
    started: list[subprocess.Popen[str]] = []
    log = (tmp_path / "collector.log").open("a")

    def run(port: int, root: str = str(tmp_path / "tables"), **env: str) -> subprocess.Popen[str]:
        started.append(collector(root, log, port, **env))
        return started[-1]

    yield run
    for process in started:
        process.kill()
        process.wait()
    log.close()
