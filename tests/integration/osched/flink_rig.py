"""A real Flink: a job manager, and a task manager on one core. `scripts/flink` gets it."""

from __future__ import annotations

import json
import os
import subprocess
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from benchmarks.ports import free_port
from tests.waiting import wait_until

ROOT: Final = Path(__file__).parents[3]
ENTRY: Final = "org.apache.flink.runtime.entrypoint.StandaloneSessionClusterEntrypoint"
TASK_MANAGER: Final = "org.apache.flink.runtime.taskexecutor.TaskManagerRunner"
SUBMIT: Final = Path(__file__).with_name("flink_submit.java")
OPENED: Final = (
    "java.lang", "java.net", "java.io", "java.nio", "sun.nio.ch", "java.lang.reflect", "java.text", "java.time",
    "java.util", "java.util.concurrent", "java.util.concurrent.atomic", "java.util.concurrent.locks",
)  # fmt: skip
PATIENT: Final = ("-Dpekko.remote.classic.startup-timeout=120s", "-Dpekko.remote.startup-timeout=120s")
"""A busy machine is waited for; Flink has no setting for these 10 s."""
SETTINGS: Final[Mapping[str, str | int]] = {
    "jobmanager.rpc.address": "127.0.0.1",
    "jobmanager.bind-host": "127.0.0.1",
    "taskmanager.host": "127.0.0.1",
    "taskmanager.bind-host": "127.0.0.1",
    "taskmanager.numberOfTaskSlots": 8,
    "taskmanager.cpu.cores": "8.0",
    "taskmanager.memory.framework.heap.size": "64m",
    "taskmanager.memory.framework.off-heap.size": "64m",
    "taskmanager.memory.task.heap.size": "256m",
    "taskmanager.memory.task.off-heap.size": "16m",
    "taskmanager.memory.network.min": "64m",
    "taskmanager.memory.network.max": "64m",
    "taskmanager.memory.managed.size": "64m",
    "taskmanager.memory.jvm-metaspace.size": "128m",
    "taskmanager.memory.jvm-overhead.min": "64m",
    "taskmanager.memory.jvm-overhead.max": "64m",
    "rest.address": "127.0.0.1",
    "rest.bind-address": "127.0.0.1",
    "pekko.ask.timeout": "120 s",
    "heartbeat.timeout": 180_000,
    # Flink's own 10 s would hide what a policy does from one period to the next.
    "metrics.fetcher.update-interval": "50 ms",
}


def installed() -> Path | None:
    """The folder with Flink's jars; None if Flink is not here."""
    named = os.environ.get("EDGERT_FLINK_LIB")
    folders = [Path(named)] if named else ROOT.glob(".flink/lib/python*/site-packages/pyflink/lib")
    return next((folder for folder in folders if any(folder.glob("flink-dist*.jar"))), None)


class Flink:
    """A cluster of one task manager."""

    def __init__(self, folder: Path, jars: Path, cpu: int) -> None:
        self._folder, self._jars, self._cpu = folder, jars, cpu
        self.port = free_port()
        self.address = f"http://127.0.0.1:{self.port}"
        self._processes: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        """Returns when the task manager has registered."""
        conf = self._folder / "conf"
        conf.mkdir(parents=True)
        settings = {**SETTINGS, "rest.port": self.port, "jobmanager.rpc.port": free_port(), "io.tmp.dirs": self._folder}
        (conf / "config.yaml").write_text("".join(f"{key}: {value}\n" for key, value in settings.items()))
        for main_class, before in ((ENTRY, []), (TASK_MANAGER, ["taskset", "-c", str(self._cpu)])):
            with (self._folder / f"{main_class.rpartition('.')[2]}.log").open("wb") as log:
                command = [*before, *self._java(), main_class, "--configDir", str(conf)]
                self._processes.append(subprocess.Popen(command, stdout=log, stderr=log, env=self._env()))
            wait_until(self._answers, "Flink's job manager", 240.0, poll_s=0.2)
        wait_until(self._ready, "Flink's task manager", 240.0, poll_s=0.2)

    def _answers(self) -> bool:
        ended = [process.poll() is not None for process in self._processes]
        logs = [file.read_text(errors="replace")[:3000] for file in self._folder.glob("*.log")] if any(ended) else []
        assert not any(ended), f"a part of Flink ended: {logs}"
        return "taskmanagers" in self.get("/overview")

    def _ready(self) -> bool:
        return self._answers() and self.get("/overview").get("taskmanagers") == 1

    def stop(self) -> None:
        """End both."""
        for process in self._processes:
            process.kill()
            process.wait()

    @property
    def task_manager(self) -> int:
        """Its process id."""
        return self._processes[1].pid

    def submit(self, name: str, *statements: str, chained: bool = True) -> None:
        """Start a query; returns when all its tasks run."""
        command = [*self._java(), str(SUBMIT), str(self.port), name, str(chained).lower(), *statements]
        done = subprocess.run(command, check=False, capture_output=True, text=True, env=self._env())
        assert done.returncode == 0, done.stderr[-2000:]
        wait_until(lambda: self._running(name), f"the tasks of {name}", 120.0, poll_s=0.2)

    def cancel_all(self) -> None:
        """End all queries."""
        for job in self.get("/jobs/overview")["jobs"]:
            if job["state"] == "RUNNING":
                request = urllib.request.Request(f"{self.address}/jobs/{job['jid']}", method="PATCH")
                urllib.request.urlopen(request, timeout=10).close()
        wait_until(
            lambda: all(job["state"] == "CANCELED" for job in self.get("/jobs/overview")["jobs"]),
            "the end of all queries",
            poll_s=0.2,
        )

    def get(self, path: str) -> dict[str, Any]:
        """Empty while it does not answer."""
        try:
            with urllib.request.urlopen(self.address + path, timeout=10) as answer:
                found: dict[str, Any] = json.load(answer)
                return found
        except OSError:
            return {}

    def _running(self, name: str) -> bool:
        jobs = [job for job in self.get("/jobs/overview").get("jobs", ()) if job["name"] == name]
        # in no order: a query of an earlier test may have had the same name
        return any(job["tasks"]["running"] == job["tasks"]["total"] > 0 for job in jobs)

    def _java(self) -> list[str]:
        home = subprocess.run([ROOT / "scripts/java-home"], capture_output=True, text=True, check=True).stdout.strip()
        opened = [f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in OPENED]
        return [f"{home}/bin/java", "-Xmx384m", "-XX:+UseSerialGC", *PATIENT, *opened, "-cp", f"{self._jars}/*"]

    def _env(self) -> dict[str, str]:
        return {**os.environ, "FLINK_CONF_DIR": str(self._folder / "conf")}


@contextmanager
def flink(folder: Path, jars: Path, cpu: int) -> Iterator[Flink]:
    """A cluster that ends with the block."""
    made = Flink(folder, jars, cpu)
    try:
        made.start()
        yield made
    finally:
        made.stop()


def query(letter: str, expression: str) -> tuple[str, str, str]:
    """Statements: rows as fast as they are taken → `expression` over v → nowhere. Its name is in all its threads'."""
    return (
        f"CREATE TEMPORARY TABLE src_{letter} (v BIGINT) WITH ('connector'='datagen','rows-per-second'='10000000')",
        f"CREATE TEMPORARY TABLE snk_{letter} (s STRING) WITH ('connector'='blackhole')",
        f"INSERT INTO snk_{letter} SELECT {expression} FROM src_{letter}",
    )
