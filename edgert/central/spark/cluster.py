"""A Spark cluster of its own on this machine: a master and workers on loopback, kept running until told to stop.

For more cores than one process uses, and to try what a cluster does. Whoever submits to it needs the secret, which only
this user can read: `edgert.central.spark.install.secret_of` gives it to a session.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import secrets
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from edgert.central.spark.die_with_parent import leashed
from edgert.central.spark.install import HOST, check_java, folder_of, spark_home
from edgert.core.errors import EdgertError

log = logging.getLogger("edgert.central.cluster")
START_S: Final = 90.0
LOOK_S: Final = 0.5
AGAIN_S: Final = 2.0
"""After the death of one of its processes."""
STOP_S: Final = 15.0
_DAEMON_MEMORY: Final = "256m"
_LAST_LINES: Final = 3
_WORDS_FROM: Final = 16_384
"""Bytes of a log that are searched, from its end, for the reason of an end."""


@dataclass(slots=True)
class _Daemon:
    name: str
    arguments: Sequence[str]
    log: Path
    process: subprocess.Popen[bytes] | None = None
    not_before: float = 0.0
    begins_at: int = 0
    """Where in its log the process began to write."""

    def end_of_log(self) -> str:
        """For people: what it wrote at last, without the places in Java's code, and where to read on."""
        with self.log.open("rb") as file:
            file.seek(max(self.begins_at, self.log.stat().st_size - _WORDS_FROM))
            lines = file.read().decode(errors="replace").splitlines()
        told = [line.strip() for line in lines if line.strip() and not line.startswith(("\tat ", "\t... "))]
        return f"{' | '.join(told[-_LAST_LINES:]) or 'it wrote nothing'} (all of it in {self.log})"


class Cluster:
    """`workers` with `cores` and `memory` (as Spark writes it, "1g") each. Raises `EdgertError` if Java is missing."""

    def __init__(self, port: int, workers: int, cores: int, memory: str) -> None:
        check_java()
        self.master = f"spark://{HOST}:{port}"
        self._port = port
        self.folder = folder_of(port)
        self._stopping = threading.Event()
        self._properties = self.folder / "spark.properties"
        settings = ("--properties-file", str(self._properties))
        first = ("org.apache.spark.deploy.master.Master", "--host", HOST, "--port", str(port), "--webui-port", "0")
        self._daemons = [_Daemon("master", (*first, *settings), self.folder / "master.log")]
        for number in range(1, workers + 1):
            work = self.folder / f"work-{number}"
            self._daemons.append(_Daemon(f"worker {number}", (
                "org.apache.spark.deploy.worker.Worker", self.master, "--host", HOST, "--webui-port", "0",
                "--cores", str(cores), "--memory", memory, "--work-dir", str(work), *settings,
            ), self.folder / f"worker-{number}.log"))  # fmt: skip

    def stop(self) -> None:
        """Ends `run`."""
        self._stopping.set()

    def run(self, ready: Callable[[], None]) -> None:
        """Runs until `stop`. Calls `ready` when the master listens; a process that dies is started again, and all die
        with the thread that calls this. Raises `EdgertError` if the port is not free, or the master does not come
        up."""
        with self._alone():
            self._write_secret()
            try:
                self._start(self._daemons[0])
                self._wait_for_master()
                for worker in self._daemons[1:]:
                    self._start(worker)
                ready()
                while not self._stopping.wait(LOOK_S):
                    for daemon in self._daemons:
                        self._look_after(daemon)
            finally:
                self._end()

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """The folder is ours: before that nothing in it is touched, which may be another's that runs."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.folder.chmod(0o700)
        with (self.folder / "lock").open("ab") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                raise EdgertError(f"port {self._port}: a cluster of yours runs there already; see --port") from error
            with socket.socket() as trial:
                trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                try:
                    trial.bind((HOST, self._port))
                except OSError as error:
                    raise EdgertError(
                        f"port {self._port}: expected a free port: {error.strerror}; see --port"
                    ) from error
            yield

    def _write_secret(self) -> None:
        secret = secrets.token_hex(32)
        for path, text in (
            (self.folder / "secret", secret),
            (self._properties, (
                f"spark.authenticate true\nspark.authenticate.secret {secret}\nspark.network.crypto.enabled true\n"
                "spark.master.rest.enabled false\nspark.worker.cleanup.enabled true\n"
            )),
        ):  # fmt: skip
            path.unlink(missing_ok=True)
            with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
                file.write(text)

    def _start(self, daemon: _Daemon) -> None:
        home = spark_home()
        with daemon.log.open("ab") as output:
            daemon.begins_at = output.tell()
            daemon.process = subprocess.Popen(
                leashed([str(home / "bin" / "spark-class"), *daemon.arguments]),
                env=_environment(home), stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True,
            )  # fmt: skip

    def _wait_for_master(self) -> None:
        ends = time.monotonic() + START_S
        master = self._daemons[0].process
        assert master is not None
        while time.monotonic() < ends and not self._stopping.is_set():
            if master.poll() is not None:
                break
            with socket.socket() as trial:
                if trial.connect_ex((HOST, self._port)) == 0:
                    return
            self._stopping.wait(LOOK_S)
        if not self._stopping.is_set():
            raise EdgertError(f"the master of the cluster did not come up: {self._daemons[0].end_of_log()}")

    def _look_after(self, daemon: _Daemon) -> None:
        if daemon.process is not None and (status := daemon.process.poll()) is not None:
            log.error("%s ended with status %d, started again in %.0f s: %s", daemon.name, status, AGAIN_S,
                      daemon.end_of_log())  # fmt: skip
            _kill(daemon.process)  # what it has left running
            daemon.process, daemon.not_before = None, time.monotonic() + AGAIN_S
        if daemon.process is None and time.monotonic() >= daemon.not_before:
            self._start(daemon)

    def _end(self) -> None:
        running = [daemon.process for daemon in reversed(self._daemons) if daemon.process is not None]
        for process in running:
            process.terminate()
        ends = time.monotonic() + STOP_S
        for process in running:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(0.1, ends - time.monotonic()))
            _kill(process)
        (self.folder / "secret").unlink(missing_ok=True)
        self._properties.unlink(missing_ok=True)


def _kill(process: subprocess.Popen[bytes]) -> None:
    """With all in its session: a worker's executors."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _environment(home: Path) -> Mapping[str, str]:
    import sys

    own = {
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_IP": HOST,
        "SPARK_DAEMON_MEMORY": _DAEMON_MEMORY,
        "PYSPARK_PYTHON": sys.executable,
    }
    return {**os.environ, **own}
