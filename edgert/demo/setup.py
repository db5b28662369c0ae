"""Preparations of the demo before it starts anything: folder, ports, names, files, commands."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import platform
import shlex
import shutil
import socket
import sys
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import IO

import edgert
from edgert.core.errors import EdgertError
from edgert.core.text_files import text_untrusted
from edgert.demo.sensors import name as sensor_name
from edgert.install_hint import command
from edgert.mqtt.address import PORT as BROKER_PORT
from edgert.mqtt.address import split_broker

FLEET = "demo"
GATEWAY_FILE = "gateway.toml"
KEEP_ALIVE_S = 10
"""Until a broker that hangs is noticed about twice as many seconds pass: a demo is watched by somebody."""
SPARK_TOOK = "spark-start-seconds"
LOOPBACK = "127.0.0.1"
_OURS = (
    "EDGERT_GATEWAY_",
    "EDGERT_SENSORS_",
    "EDGERT_CENTRAL_",
    "EDGERT_WEB_",
    "EDGERT_CONTROL_",
    "EDGERT_COLLECTOR_",
    "EDGERT_FLOWS_",
    "EDGERT_LINKS_",
    "EDGERT_AGENT_",
    "EDGERT_SCHED_",
)
_NEEDED = {"amqtt": "the embedded broker", "rich": "the summary", "deltalake": "the collector", "pyspark": "the job"}


@dataclass(frozen=True, slots=True)
class Options:
    """Options of the command line."""

    data: Path = Path("demo-data")
    broker: str = ""
    """host:port of a broker that runs already; empty: the embedded one."""
    trace: Path | None = None
    rate: float = 100.0
    repeat: bool = False
    original_times: bool = False
    flow: Path | None = None
    broker_port: int = BROKER_PORT
    """Wanted for the embedded broker; 0: any free one."""
    web_port: int = 8080
    for_s: float | None = None
    plain: bool = False
    gateways: int = 1
    """Boards, each with a gateway and (where there is more than one) an agent."""


@dataclass(frozen=True, slots=True)
class Setup:
    """Prepared names, addresses and files."""

    options: Options
    data: Path
    """Absolute."""
    gateway: str
    broker_host: str
    broker_port: int
    web_port: int
    flow_name: str
    document: str

    @property
    def tables(self) -> Path:
        return self.data / "tables"

    @property
    def logs(self) -> Path:
        return self.data / "logs"

    def spark_took_s(self) -> float | None:
        """Returns how long the last start of Spark in this folder took until there were rows; None: there was none."""
        try:
            seconds = float((self.logs / SPARK_TOOK).read_text())
        except (OSError, ValueError):
            return None
        return seconds if 0 < seconds < 3600 else None

    def note_spark_took(self, seconds: float) -> None:
        """For the next start."""
        with contextlib.suppress(OSError):
            self.logs.mkdir(exist_ok=True)
            (self.logs / SPARK_TOOK).write_text(f"{seconds:.0f}\n")

    @property
    def url(self) -> str:
        return f"http://{LOOPBACK}:{self.web_port}/"

    @property
    def protocol(self) -> str:
        """The embedded broker speaks 3.1.1 and leaves a connection of version 5 without an answer."""
        return "auto" if self.options.broker else "3.1.1"

    @property
    def broker(self) -> str:
        return f"{self.broker_host}:{self.broker_port}"


def missing_parts(embedded_broker: bool) -> str:
    """Names missing packages and the remedy; empty when all are there."""
    needed = dict(_NEEDED)
    if not embedded_broker:
        del needed["amqtt"]
    absent = [f"{module} ({purpose})" for module, purpose in needed.items() if find_spec(module) is None]
    if not absent:
        return ""
    return f"the demo needs {', '.join(absent)}; install it with: {command('demo')}"


def prepare(options: Options) -> Setup:
    """Makes the folder and the programs' files. Raises `EdgertError` for anything that cannot be used."""
    lacking = missing_parts(embedded_broker=not options.broker)
    if lacking:
        raise EdgertError(lacking)
    flow_name, document = load_flow(options)
    if options.trace is not None and not options.trace.is_file():
        raise EdgertError(f"{options.trace}: expected a trace file, found none")
    data = options.data.absolute()
    data.mkdir(parents=True, exist_ok=True)
    if options.broker:
        host, port = split_broker(options.broker)
    else:
        host, port = LOOPBACK, free_port(options.broker_port)
    setup = Setup(options, data, gateway_name(data), host, port, free_port(options.web_port), flow_name, document)
    (data / GATEWAY_FILE).write_text(gateway_toml(setup))
    (data / "central.toml").write_text(central_toml(setup))
    return setup


def lock(data: Path) -> IO[str]:
    """The folder belongs to this demo until the file returned is closed. Raises `EdgertError` if another has it."""
    try:
        data.mkdir(parents=True, exist_ok=True)
        holder = (data / ".lock").open("a")
    except OSError as problem:
        raise EdgertError(f"--data {data}: expected a folder that can be written, got: {problem.strerror}") from problem
    try:
        fcntl.flock(holder, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as problem:
        holder.close()
        raise EdgertError(f"{data}: another demo runs in this folder; end it, or take another with --data") from problem
    return holder


def load_flow(options: Options) -> tuple[str, str]:
    """Name and text of the flow to deploy, checked here so that errors come before anything starts."""
    from edgert.flow import document
    from edgert.operators.registry import with_installed

    file = options.flow or Path(__file__).with_name("city.toml" if options.trace else "machine.toml")
    try:
        text = text_untrusted(file.read_bytes(), str(file))
    except OSError as problem:
        raise EdgertError(f"{file}: expected a readable flow document: {problem.strerror}") from problem
    registry, _ = with_installed()
    return document.load(text, registry, what=str(file)).name, text


def free_port(wanted: int) -> int:
    """`wanted` if it is free on loopback, else any free one."""
    for port in (wanted, 0):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((LOOPBACK, port))
            except (OSError, OverflowError):
                continue
            return int(probe.getsockname()[1])
    raise EdgertError("expected a free TCP port on loopback, got none")


def gateway_name(data: Path) -> str:
    """The name given at the first start in this folder (results are counted under it), else this host's."""
    try:
        known = tomllib.loads((data / GATEWAY_FILE).read_text())["gateway"]["id"]
        if isinstance(known, str) and known:
            return known
    except (OSError, ValueError, KeyError, TypeError):
        pass
    return sensor_name(platform.node().partition(".")[0] or "gateway")[:40]


def gateway_toml(setup: Setup, name: str = "", folder: Path | None = None, web_port: int = 0) -> str:
    """The file of a gateway, by default the first. Paths and names are written as JSON strings, which TOML reads
    alike."""
    text = json.dumps
    return f"""# Written by `edgert demo` at each start.
[gateway]
id = {text(name or setup.gateway)}
fleet = "{FLEET}"
data_dir = {text(str(folder or setup.data / "gateway"))}

[sensors]
host = {text(setup.broker_host)}
port = {setup.broker_port}
protocol = "{setup.protocol}"
keep_alive_s = {KEEP_ALIVE_S}

[central]
host = {text(setup.broker_host)}
port = {setup.broker_port}
protocol = "{setup.protocol}"
keep_alive_s = {KEEP_ALIVE_S}

[web]
host = "{LOOPBACK}"
port = {web_port or setup.web_port}
"""


def central_toml(setup: Setup) -> str:
    """The file of collector and fleet job."""
    text = json.dumps
    return f"""# Written by `edgert demo` at each start.
[collector]
id = "demo"
fleet = "{FLEET}"
table_root = {text(str(setup.tables))}

[central]
host = {text(setup.broker_host)}
port = {setup.broker_port}
protocol = "{setup.protocol}"
"""


def commands(setup: Setup) -> dict[str, list[str]]:
    """Command lines of the children, in order of start. `broker` is missing when one is there already."""
    python, options = [sys.executable, "-m"], setup.options
    publisher = [*python, "edgert.demo.publisher", "--broker", setup.broker, "--host", setup.gateway]
    if options.trace is not None:
        publisher += ["--trace", str(options.trace.absolute()), "--rate", str(options.rate)]
        publisher += ["--repeat"] * options.repeat + ["--original-times"] * options.original_times
    central = ["--config", str(setup.data / "central.toml")]
    found = {
        "broker": [*python, "edgert.demo.broker", "--port", str(setup.broker_port)],
        "gateway": [*python, "gateway", "--config", str(setup.data / GATEWAY_FILE)],
        "collector": [*python, "edgert.central.collector", *central],
        "spark": [*python, "edgert.cli.main", "central", "run", *central],
        "publisher": publisher,
    }
    if options.broker:
        del found["broker"]
    return found


def further(setup: Setup, program: str) -> list[str]:
    """Commands to try next, as lines that can be pasted. `program` is how this one was called (`sys.argv[0]`)."""
    edgert = "edgert"
    if Path(program).name != edgert:
        edgert = f"{shlex.quote(sys.executable)} -m edgert"
    elif shutil.which(edgert) is None:
        edgert = shlex.quote(program)
    data = setup.options.data
    root, config = (shlex.quote(str(data / name)) for name in (setup.tables.name, GATEWAY_FILE))
    lines = (
        (f"{edgert} central show {setup.flow_name} --root {root}", "the fleet table, without Spark"),
        (f"{edgert} deploy FLOW.toml --config {config}", "a flow of your own"),
        (setup.url, "the page"),
    )
    width = max(len(line) for line, _ in lines)
    return [f"  {line:{width}}  # {what}" for line, what in lines]


def child_environment(env: Mapping[str, str]) -> dict[str, str]:
    """The environment of the children: ours, less what would override the demo's files, and Python found alike."""
    kept = {key: value for key, value in env.items() if not key.startswith(_OURS)}
    root = str(Path(edgert.__file__).parents[1])
    kept["PYTHONPATH"] = os.pathsep.join(filter(None, [root, env.get("PYTHONPATH", "")]))
    kept["PYTHONUNBUFFERED"] = "1"
    kept["PYSPARK_PYTHON"] = sys.executable
    return kept
