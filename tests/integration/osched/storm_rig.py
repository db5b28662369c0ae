"""A real Storm 1.2.4: ZooKeeper, Nimbus, UI, and a supervisor whose workers run on one core; see `scripts/storm`."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final
from zipfile import ZipFile

from benchmarks.ports import free_port
from tests.waiting import wait_until

ROOT: Final = Path(__file__).parents[3]
TOPOLOGY: Final = Path(__file__).with_name("TwoBolts.java")
ZOOKEEPER: Final = "org.apache.storm.shade.org.apache.zookeeper.server.ZooKeeperServerMain"
OPENED: Final = ("java.lang", "java.util", "java.nio", "sun.nio.ch", "java.net")
LOGGING: Final = (
    "<configuration><appenders><Console name='c'><PatternLayout pattern='%d %c [%t] %p %m%n'/></Console></appenders>"
    "<loggers><root level='info'><appender-ref ref='c'/></root></loggers></configuration>"
)


def installed() -> Path | None:
    """The folder with Storm's jars; None if Storm is not here."""
    folder = ROOT / ".storm/lib"
    return folder if any(folder.glob("storm-core*.jar")) else None


class Storm:
    """A cluster of one supervisor with four slots: a worker takes seconds to give back its own."""

    def __init__(self, folder: Path, jars: Path, cpu: int) -> None:
        self._folder, self._jars, self._cpu = folder, jars, cpu
        self._port, self._zookeeper, self._nimbus = free_port(), free_port(), free_port()
        self.address = f"http://127.0.0.1:{self._port}"
        self._processes: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        """Returns when the supervisor has registered."""
        self._write_files()
        self._run("zookeeper", ZOOKEEPER, str(self._folder / "zoo.cfg"))
        wait_until(self._has_zookeeper, "ZooKeeper", 120.0, poll_s=0.2)
        self._run("nimbus", "org.apache.storm.daemon.nimbus")
        self._run("ui", "org.apache.storm.ui.core")
        self._run("supervisor", "org.apache.storm.daemon.supervisor.Supervisor", cpu=self._cpu)
        wait_until(
            lambda: self.get("/cluster/summary").get("supervisors") == 1, "Storm's supervisor", 240.0, poll_s=1.0
        )

    def stop(self) -> None:
        """End all of it: the supervisor before its workers, or it would start them again."""
        for process in reversed(self._processes):
            process.kill()
            process.wait()
        for pid in self._workers():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def submit(self, name: str, *arguments: int) -> None:
        """Start a topology; returns when its worker has counted rows."""
        jar = self._compiled()
        command = [
            *self._java(f"{self._jars}/*:{jar}:{self._folder}/conf"),
            f"-Dstorm.jar={jar}",
            "TwoBolts",
            name,
            *map(str, arguments),
        ]
        done = subprocess.run(command, check=False, capture_output=True, text=True, env=self._env())
        assert done.returncode == 0, (done.stdout + done.stderr)[-2000:]
        wait_until(lambda: self._counts(name), f"rows of {name}", 300.0, poll_s=1.0)

    def kill_all(self) -> None:
        """End all topologies."""
        for topology in self.get("/topology/summary").get("topologies", ()):
            request = urllib.request.Request(f"{self.address}/api/v1/topology/{topology['id']}/kill/0", method="POST")
            urllib.request.urlopen(request, timeout=30).close()
        wait_until(lambda: self.get("/topology/summary").get("topologies") == [], "no topologies", 120.0, poll_s=1.0)

    def get(self, path: str) -> dict[str, Any]:
        """Empty while it does not answer."""
        for process in self._processes:
            assert process.poll() is None, f"a part of Storm ended: {process.args!r}"
        try:
            with urllib.request.urlopen(f"{self.address}/api/v1{path}", timeout=30) as answer:
                found: dict[str, Any] = json.load(answer)
                return found
        except OSError:
            return {}

    def _has_zookeeper(self) -> bool:
        with suppress(OSError), socket.create_connection(("127.0.0.1", self._zookeeper), timeout=1):
            return True
        return False

    def _counts(self, name: str) -> bool:
        found = [t["id"] for t in self.get("/topology/summary").get("topologies", ()) if t["name"] == name]
        page = self.get(f"/topology/{found[0]}?window=:all-time") if found else {}
        bolts = page.get("bolts", ())
        return bool(bolts) and all(bolt["executed"] for bolt in bolts)

    def _write_files(self) -> None:
        for folder in ("conf", "log4j2", "logs"):
            (self._folder / folder).mkdir(parents=True)
        (self._folder / "lib").symlink_to(self._jars)
        for name in ("cluster", "worker"):
            (self._folder / f"log4j2/{name}.xml").write_text(LOGGING)
        # Its ZooKeeper client looks up "127.0.0.1/<unresolved>" on Java 14 and newer (ZOOKEEPER-3779).
        names = ("localhost", "127.0.0.1", socket.gethostname())
        (self._folder / "hosts").write_text("".join(f"127.0.0.1 {name} {name}/<unresolved>\n" for name in names))
        (self._folder / "zoo.cfg").write_text(
            f"dataDir={self._folder}/zk\nclientPort={self._zookeeper}\nclientPortAddress=127.0.0.1\nmaxClientCnxns=0\n"
        )
        (self._folder / "conf/storm.yaml").write_text("".join(f"{k}: {json.dumps(v)}\n" for k, v in self._settings()))

    def _settings(self) -> list[tuple[str, Any]]:
        return [
            ("storm.zookeeper.servers", ["127.0.0.1"]),
            ("storm.zookeeper.port", self._zookeeper),
            ("storm.zookeeper.session.timeout", 120_000),
            ("storm.local.hostname", "127.0.0.1"),
            ("storm.local.dir", str(self._folder / "data")),
            ("nimbus.seeds", ["127.0.0.1"]),
            ("nimbus.thrift.port", self._nimbus),
            # A busy machine is waited for.
            ("nimbus.task.timeout.secs", 300),
            ("nimbus.task.launch.secs", 300),
            ("nimbus.supervisor.timeout.secs", 300),
            ("supervisor.worker.start.timeout.secs", 300),
            ("supervisor.worker.timeout.secs", 300),
            ("supervisor.slots.ports", [free_port() for _ in range(4)]),
            ("ui.host", "127.0.0.1"),
            ("ui.port", self._port),
            # Storm's own 3 s would hide what a policy does from one period to the next.
            ("task.heartbeat.frequency.secs", 1),
            # Storm's own has options that Java 17 does not know.
            ("worker.childopts", " ".join(self._options())),
            ("topology.worker.logwriter.childopts", "-Xmx16m"),
        ]

    def _run(self, name: str, main_class: str, *arguments: str, cpu: int | None = None) -> None:
        before = [] if cpu is None else ["taskset", "-c", str(cpu)]
        command = [*before, *self._java(f"{self._jars}/*:{self._folder}/conf"), f"-Ddaemon.name={name}", main_class]
        with (self._folder / f"logs/{name}.log").open("wb") as log:
            self._processes.append(
                subprocess.Popen([*command, *arguments], stdout=log, stderr=log, env=self._env(), cwd=self._folder)
            )

    def _workers(self) -> list[int]:
        """Processes that name this cluster's folder: workers and those that write their logs."""
        found = []
        for name in filter(str.isdigit, os.listdir("/proc")):
            with suppress(OSError):
                if f"-Dstorm.home={self._folder}".encode() in Path(f"/proc/{name}/cmdline").read_bytes().split(b"\0"):
                    found.append(int(name))
        return found

    def _options(self) -> list[str]:
        opened = [f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in OPENED]
        own = (f"-Djdk.net.hosts.file={self._folder}/hosts", "-Dzookeeper.jmx.log4j.disable=true")
        return ["-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", *own, *opened]

    def _java(self, classes: str) -> list[str]:
        where = (f"-Dstorm.home={self._folder}", f"-Dstorm.log.dir={self._folder}/logs", "-Dstorm.options=")
        logging = f"-Dlog4j.configurationFile={self._folder}/log4j2/cluster.xml"
        return [f"{self._home()}/bin/java", *self._options(), *where, "-Dstorm.conf.file=", logging, "-cp", classes]

    def _home(self) -> str:
        return subprocess.run([ROOT / "scripts/java-home"], capture_output=True, text=True, check=True).stdout.strip()

    def _env(self) -> dict[str, str]:
        return {**os.environ, "STORM_CONF_DIR": str(self._folder / "conf"), "JAVA_HOME": self._home()}

    def _compiled(self) -> Path:
        """A jar with the topology's classes."""
        jar, classes = self._folder / "topology.jar", self._folder / "classes"
        if not jar.exists():
            made = ["-d", str(classes), str(TOPOLOGY)]
            command = [f"{self._home()}/bin/javac", "-nowarn", "-cp", f"{self._jars}/*", *made]
            done = subprocess.run(command, check=False, capture_output=True, text=True)
            assert done.returncode == 0, done.stderr[-2000:]
            with ZipFile(jar, "w") as into:
                for file in classes.glob("*.class"):
                    into.write(file, file.name)
        return jar


@contextmanager
def storm(folder: Path, jars: Path, cpu: int) -> Iterator[Storm]:
    """A cluster that ends with the block."""
    made = Storm(folder, jars, cpu)
    try:
        made.start()
        yield made
    finally:
        made.stop()
