"""The fleet job on a standalone cluster: a worker dies in the midst of it, then the driver; the table is exact."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from benchmarks.ports import free_port
from edgert.central.spark.install import folder_of, secret_of
from tests.central.fleet_world import World
from tests.central.results_examples import FLOW, Gateway
from tests.waiting import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(1200), pytest.mark.xdist_group("spark")]
PATIENCE_S = 400.0


@pytest.fixture
def cluster() -> Iterator[tuple[subprocess.Popen[str], str]]:
    port = free_port()
    command = [sys.executable, "-m", "edgert", "central", "cluster", "--port", str(port), "--workers", "2"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout
    assert process.stdout.readline().startswith(f"Spark cluster: spark://127.0.0.1:{port}, 2 workers")
    yield process, f"spark://127.0.0.1:{port}"
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 0
    assert not (folder_of(port) / "secret").exists()


def fleet_job(root: Path, master: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "edgert", "central", "run", "--once", "--root", str(root), "--master", master]
    return subprocess.Popen(command)


def test_a_worker_and_the_driver_die_and_the_table_is_exact(
    cluster: tuple[subprocess.Popen[str], str], tmp_path: Path
) -> None:
    process, master = cluster
    mode = (folder_of(int(master.rpartition(":")[2])) / "secret").stat().st_mode
    assert stat.S_IMODE(mode) == 0o600
    assert secret_of(master)
    assert secret_of("spark://other:7077") is None
    world = World(None, tmp_path)  # type: ignore[arg-type]
    gateways = [Gateway("g1"), Gateway("g2")]
    world.landing.land([gateway.open() for gateway in gateways])
    for window in range(6):
        for gateway in gateways:
            world.ship(gateway, window, "a", float(window), 2.0)
    job = fleet_job(tmp_path, master)
    wait_until(lambda: _in_a_batch(tmp_path), "a batch under way", PATIENCE_S)
    executor = _executor(process)
    worker = executor.parent()
    assert worker
    executor.kill()
    worker.kill()  # the cluster starts it again
    assert job.wait(PATIENCE_S) == 0
    world.check()

    for window in range(4, 9):
        world.ship(gateways[0], window, "b", 1.0, float(window))
    job = fleet_job(tmp_path, master)
    wait_until(lambda: _in_a_batch(tmp_path), "a batch under way", PATIENCE_S)
    os.kill(job.pid, signal.SIGKILL)
    assert _in_a_batch(tmp_path), "it was not killed in the midst of one"
    job.wait()
    for child in psutil.process_iter(["cmdline"]):  # its Java process, which may have outlived it for a moment
        if str(tmp_path) in " ".join(child.info["cmdline"] or ()):
            child.kill()
    wait_until(lambda: fleet_job(tmp_path, master).wait(PATIENCE_S) == 0, "its lease to run out", PATIENCE_S)
    world.check()


def _in_a_batch(root: Path) -> bool:
    """Whether a trigger of the fleet job has begun, and not ended."""
    checkpoint = root / "_spark" / "fleet" / FLOW
    begun, ended = ({path.name for path in (checkpoint / name).glob("[0-9]*")} for name in ("offsets", "commits"))
    return bool(begun - ended)


def _executor(cluster: subprocess.Popen[str]) -> psutil.Process:
    """The first that runs on the cluster."""
    found: list[psutil.Process] = []

    def look() -> bool:
        children = psutil.Process(cluster.pid).children(recursive=True)
        found[:] = [c for c in children if "CoarseGrainedExecutorBackend" in " ".join(_command(c))]
        return bool(found)

    wait_until(look, "an executor", PATIENCE_S)
    return found[0]


def _command(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []
