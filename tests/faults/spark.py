"""The fleet job as a process with its JVM, and a Spark cluster on this machine."""

from __future__ import annotations

import contextlib
import resource
import signal
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import psutil

from benchmarks.ports import free_port
from edgert.core.toml import to_toml
from tests.faults import large_batches
from tests.integration.rig import Process
from tests.waiting import wait_until

LEASE_S: Final = 15.0
"""Of the fleet job: shorter than by default, since after each kill the next one waits for it."""
READY_S: Final = 90.0
WORKERS: Final = 2


class Job(Process):
    """`edgert central run`: Python, and a JVM that is Spark's driver and, without a cluster, its executor."""

    def __init__(self, folder: Path, tables: Path, master: str, env: Mapping[str, str], many: int = 0) -> None:
        """`many`: from how many contributions on a batch is large (0: as in the product)."""
        config = folder / "fleet-job.toml"
        settings = {"trigger_s": 1.0, "lease_s": LEASE_S, "master": master}
        config.write_text(to_toml({"collector": {"table_root": str(tables)}, "fleet_job": settings}))
        program = ["tests.faults.large_batches", str(many)] if many else ["edgert.cli.main"]
        arguments = [*program, "central", "run", "--config", str(config)]
        super().__init__(arguments, folder / "fleet-job.log", env, own_session=True)
        self._orphans: list[psutil.Process] = []
        self._before = 0

    def start(self) -> None:
        self._before = len(self.text())
        super().start()

    @property
    def follows(self) -> bool:
        """Whether this life of it has come to its streams."""
        return "following" in self.text()[self._before :]

    def large_batches(self) -> tuple[int, int]:
        """How many it has begun and done, as its log says; only of a seed that lowers what is large."""
        text = self.text()
        return text.count(large_batches.BEGUN), text.count(large_batches.DONE)

    def kill_python(self) -> None:
        """Alone: the JVM learns of it from its input, and may end what it is about."""
        assert self.process is not None
        self._orphans += _descendants(self.process.pid)
        self.process.kill()
        self.process.wait()

    @property
    def left_behind(self) -> bool:
        """Whether something lives that it had started and did not end."""
        return any(map(_lives, self._orphans))

    def kill_java(self) -> bool:
        """Alone; false if there is none yet."""
        return self._to_java(psutil.Process.kill)

    def limit_files(self, size: int) -> bool:
        """Neither Java nor Python may write a file beyond so many bytes; false if there is no Java."""

        def limit(process: psutil.Process) -> None:
            _, hard = process.rlimit(psutil.RLIMIT_FSIZE)
            process.rlimit(psutil.RLIMIT_FSIZE, (hard if size == resource.RLIM_INFINITY else size, hard))

        if not self._to_java(limit):
            return False
        assert self.process is not None
        with contextlib.suppress(psutil.Error):
            limit(psutil.Process(self.process.pid))
        return True

    def _to_java(self, do: Callable[[psutil.Process], None]) -> bool:
        for child in _descendants(self.process.pid) if self.process is not None else []:
            with contextlib.suppress(psutil.Error):
                if child.name() == "java":
                    do(child)
                    return True
        return False

    def close(self) -> None:
        """Ends all that is left."""
        if self.running:
            self.kill()
        _kill(self._orphans)


class Cluster(Process):
    """`edgert central cluster`, which starts again what is killed of it."""

    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        arguments = ["edgert.cli.main", "central", "cluster", "--port", str(self.port), "--workers", str(WORKERS)]
        super().__init__(arguments, folder / "cluster.log")

    @property
    def master(self) -> str:
        return f"spark://127.0.0.1:{self.port}"

    def start_ready(self) -> None:
        self.start()
        wait_until(lambda: "Spark cluster:" in self.text(), "the cluster's master", READY_S, lambda: int(self.cpu_s))

    def of(self, class_name: str) -> list[psutil.Process]:
        """Its processes that run a class of Spark, by age."""
        assert self.process is not None
        found = []
        for child in _descendants(self.process.pid):
            with contextlib.suppress(psutil.Error):
                if class_name in " ".join(child.cmdline()):
                    found.append(child)
        return sorted(found, key=lambda p: (p.create_time(), p.pid))

    def close(self) -> None:
        if self.process is None or not self.running:
            return
        below = _descendants(self.process.pid)
        self.process.send_signal(signal.SIGTERM)
        with contextlib.suppress(Exception):
            self.process.wait(READY_S)
        _kill(below)
        if self.running:
            self.kill()


def _descendants(pid: int) -> list[psutil.Process]:
    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.Error:
        return []


def _lives(process: psutil.Process) -> bool:
    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return False


def _kill(processes: list[psutil.Process]) -> None:
    """Those that still run; psutil knows them from others that got their number."""
    for process in processes:
        with contextlib.suppress(psutil.Error):
            process.kill()
