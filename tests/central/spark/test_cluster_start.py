"""What a cluster does before and while its processes start: in the place of Spark's, small ones of Python."""

from __future__ import annotations

import logging
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from benchmarks.ports import free_port
from edgert.central.spark import cluster as clusters
from edgert.central.spark.cluster import Cluster
from edgert.central.spark.install import folder_of, secret_of
from edgert.cli.main import main
from edgert.core.errors import EdgertError
from tests.waiting import wait_until

SPARK_CLASS = """#!{python}
import socket, sys, time
arguments = sys.argv[1:]
if arguments[0].endswith("Master"):
    with socket.create_server(("127.0.0.1", int(arguments[arguments.index("--port") + 1]))):
        time.sleep(600)
print("Exception in thread main: no worker today\\n\\tat org.apache.Somewhere(Some.scala:7)")
sys.exit(3)
"""


@pytest.fixture
def port() -> int:
    return free_port()


@pytest.fixture
def start(port: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], Cluster]]:
    """A cluster that runs, with one worker that cannot start."""
    (tmp_path / "bin").mkdir()
    script = tmp_path / "bin" / "spark-class"
    script.write_text(SPARK_CLASS.format(python=sys.executable))
    script.chmod(0o755)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(clusters, "check_java", lambda: None)
    monkeypatch.setattr(clusters, "spark_home", lambda: tmp_path)
    started: list[tuple[Cluster, threading.Thread]] = []

    def begin() -> Cluster:
        ready = threading.Event()
        found = Cluster(port, 1, 1, "1g")
        thread = threading.Thread(target=found.run, args=(ready.set,))
        thread.start()
        started.append((found, thread))
        assert ready.wait(60)
        return found

    yield begin
    for found, thread in started:
        found.stop()
        thread.join(60)


def test_a_second_one_on_its_port_touches_nothing_of_the_one_that_runs(port: int, start: Callable[[], Cluster]) -> None:
    first = start()

    def files() -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in folder_of(port).iterdir() if path.suffix != ".log"}

    before = files()
    assert before.keys() == {"lock", "secret", "spark.properties"}
    with pytest.raises(EdgertError, match=f"port {port}: a cluster of yours runs there already; see --port"):
        Cluster(port, 2, 1, "1g").run(lambda: None)
    assert files() == before
    assert secret_of(first.master)


def test_a_port_that_something_else_has_is_refused_before_anything_is_written(
    port: int, start: Callable[[], Cluster]
) -> None:
    with socket.create_server(("127.0.0.1", port)):
        with pytest.raises(EdgertError, match=f"port {port}: expected a free port: Address already in use"):
            Cluster(port, 2, 1, "1g").run(lambda: None)
        assert {path.name for path in folder_of(port).iterdir()} == {"lock"}
    start()  # which is free again


def test_why_a_worker_does_not_start_is_said(
    port: int, start: Callable[[], Cluster], caplog: pytest.LogCaptureFixture
) -> None:
    start()
    wait_until(lambda: "worker 1 ended with status 3" in caplog.text, "a word about the worker")
    (told, *_) = [r.getMessage() for r in caplog.records if r.levelno == logging.ERROR]
    assert "Exception in thread main: no worker today" in told
    assert "Some.scala" not in told
    assert str(folder_of(port) / "worker-1.log") in told


CLUSTER = """
import sys, pathlib, signal
from edgert.central.spark import cluster, leased_job
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # whoever runs the tests may have it ignored
cluster.check_java, cluster.spark_home = (lambda: None), (lambda: pathlib.Path(sys.argv[2]))
found = cluster.Cluster(int(sys.argv[1]), 1, 1, "1g")
leased_job.stop_on_signal(found.stop)
found.run(lambda: print("ready", flush=True))
"""


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGKILL])
def test_however_it_ends_its_processes_end_with_it(
    number: signal.Signals, port: int, start: Callable[[], Cluster], tmp_path: Path
) -> None:
    command = [sys.executable, "-c", CLUSTER, str(port), str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        assert process.stdout.readline() == "ready\n"
        master = psutil.Process(process.pid).children()[0]
        process.send_signal(number)
        try:
            assert process.wait(60) == (0 if number == signal.SIGHUP else -number)
        finally:
            process.kill()
    wait_until(lambda: not master.is_running() or master.status() == psutil.STATUS_ZOMBIE, "the master's end")
    start()  # on the same port


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("--port", "99999"), "expected a whole number from 1 to 65535, got '99999'"),
        (("--port", "0"), "expected a whole number from 1 to 65535, got '0'"),
        (("--port", "x"), "expected a whole number from 1 to 65535, got 'x'"),
        (("--memory", "abc"), "expected a size such as 2g, or 512m at least, got abc"),
        (("--memory", "1024"), "expected a size such as 2g"),
        (("--memory", "511m"), "expected a size such as 2g"),
        (("--workers", "0"), "--workers: expected a whole number from 1 to 1000000000000, got '0'"),
        (("--cores", "-1"), "--cores: expected a whole number from 1 to 1000000000000, got '-1'"),
    ],
)
def test_wrong_arguments_are_refused_before_anything_starts(
    arguments: tuple[str, str], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["central", "cluster", *arguments])
    assert ended.value.code == 2
    assert why in capsys.readouterr().err
