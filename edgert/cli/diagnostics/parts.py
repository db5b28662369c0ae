"""The parts of the diagnostics: each a file of its own, made by one function."""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import shlex
import sqlite3
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import asdict
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any, Final

import edgert
from edgert.bounded import MOST_BYTES, output, text
from edgert.cli._control import AGENT_CONFIG, CONFIG, ask, ask_agent
from edgert.cli.board import requests, slots
from edgert.cli.diagnostics.redaction import without_payloads, without_secrets
from edgert.core.config import load
from edgert.core.errors import EdgertError
from edgert.core.settings.agent import AgentSettings
from edgert.core.settings.folders import data_folder
from edgert.core.settings.gateway import GatewaySettings

LOG_LINES: Final = "2000"
ANSWER_S: Final = 10.0
QUERY_S: Final = 5.0
MODEL: Final = Path("/proc/device-tree/model")
DATABASE: Final = "gateway.db"
WAITING: Final = "SELECT flow, sum(batches) batches, sum(rows) rows, sum(bytes) bytes FROM stream GROUP BY flow"
FLOWS: Final = "SELECT name, version, origin, removed, epoch, plan, document FROM flow"
UNIT: Final = (
    "Id", "LoadState", "ActiveState", "SubState", "Result", "NRestarts", "ExecMainStatus", "ActiveEnterTimestamp",
    "MemoryCurrent", "CPUUsageNSec",
)  # fmt: skip
UNITS: Final = ("edgert*", "mosquitto.service", "rauc.service")


class Sources:
    """This machine, its gateway and its agent, as the command line names them."""

    def __init__(self, args: argparse.Namespace) -> None:
        self._args = args
        self._environments: dict[str, dict[str, str]] = {}
        self._configs = {
            "gateway": args.config or (CONFIG if os.path.exists(CONFIG) else None),
            "agent": args.agent_config or (AGENT_CONFIG if os.path.exists(AGENT_CONFIG) else None),
        }

    @property
    def configs(self) -> list[Path]:
        return [path for path in self._configs.values() if path]

    def environment(self, program: str) -> dict[str, str]:
        """Our environment, and that of the program's service unless other settings than the service's are meant."""
        if program not in self._environments:
            self._environments[program] = self._environment(program)
        return self._environments[program]

    def _environment(self, program: str) -> dict[str, str]:
        if {"gateway": self._args.config, "agent": self._args.agent_config}.get(program):
            return dict(os.environ)
        try:
            said = output("systemctl", "show", "--property=Environment", "--value", f"edgert-{program}.service")
            pairs = [word.partition("=") for word in shlex.split(said)]
        except (EdgertError, ValueError):
            return dict(os.environ)
        return {**os.environ, **{name: value for name, _, value in pairs if name.startswith("EDGERT_")}}

    def parts(self) -> dict[str, Callable[[], str]]:
        """Name of a file -> its text. Each may raise whatever it meets."""
        return {
            "machine.json": lambda: _json(_machine()),
            "clock.txt": lambda: output("timedatectl", "show"),
            "units.txt": lambda: output("systemctl", "show", f"--property={','.join(UNIT)}", *UNITS),
            "slots.json": lambda: _json(without_payloads(_slots())),
            "settings-gateway.json": lambda: _json(self._settings("gateway", GatewaySettings)),
            "settings-agent.json": lambda: _json(self._settings("agent", AgentSettings)),
            "status.json": lambda: _json(without_payloads(self._gateway("status"))),
            "figures.json": lambda: _json(without_payloads(self._gateway("figures"))),
            "flow-parts.json": lambda: _json(self._gateway("part.status")),
            "metrics.txt": self._metrics,
            "fleet.json": lambda: _json(self._agent("fleet.status")),
            "sched.json": lambda: _json(self._agent("sched.status")),
            "database.json": lambda: _json(self._database()),
            "log-edgert.txt": lambda: without_payloads(_journal("--unit=edgert*")),
            "log-mosquitto.txt": lambda: _journal("--unit=mosquitto"),
            "log-rauc.txt": lambda: _journal("--unit=rauc"),
            "log-kernel.txt": lambda: _journal("--dmesg"),
        }

    def _load(self, program: str, cls: type[Any]) -> Any:
        return load(cls, self._config(program), self.environment(program))

    def _config(self, program: str) -> Path | None:
        path = self._configs[program]
        if path and os.path.exists(path) and not path.is_file():  # reading a pipe would not end
            raise EdgertError(f"{path}: expected a file, got something else")
        return path

    def _settings(self, program: str, cls: type[Any]) -> Mapping[str, Any]:
        return {"file": str(self._configs[program] or ""), **asdict(self._load(program, cls))}

    def _gateway(self, verb: str) -> Any:
        self._config("gateway")
        return ask(self._args, verb, timeout_s=ANSWER_S)

    def _agent(self, verb: str) -> Any:
        self._config("agent")
        return ask_agent(verb, timeout_s=ANSWER_S, socket=self._args.agent_socket, config=self._args.agent_config)

    def _metrics(self) -> str:
        web = self._load("gateway", GatewaySettings).web
        if not (web.enabled and web.port):
            raise EdgertError("expected a page with a fixed port (web.enabled, web.port), got none")
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(web.host, web.host)
        url = f"http://{f'[{host}]' if ':' in host else host}:{web.port}/metrics"
        direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with direct.open(url, timeout=ANSWER_S) as answer:
            return text(answer.read(MOST_BYTES))

    def _database(self) -> dict[str, Any]:
        settings, root = self._load("gateway", GatewaySettings), os.geteuid() == 0
        folder = Path(settings.gateway.data_dir or data_folder(os.environ, root))
        found: dict[str, Any] = {"folder": str(folder), "files": {p.name: p.lstat().st_size for p in folder.iterdir()}}
        try:
            found |= _tables(folder / DATABASE)
        except (sqlite3.Error, ValueError) as error:
            found["error"] = str(error)
        return found


def _tables(path: Path) -> Iterator[tuple[str, Any]]:
    """Facts of a gateway's database, which the gateway may have open: rows of each table, what waits, and flows."""
    # without a log there is no other reader or writer, and a reader would leave one
    way = "mode=ro" if path.with_name(f"{path.name}-wal").exists() else "immutable=1"
    with closing(sqlite3.connect(f"{path.absolute().as_uri()}?{way}", uri=True, timeout=QUERY_S)) as db:
        db.row_factory = sqlite3.Row
        ends = time.monotonic() + QUERY_S
        db.set_progress_handler(lambda: time.monotonic() > ends, 10_000)
        names = [name for (name,) in db.execute("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name")]
        yield "flows", [{**row, "document": json.loads(row["document"])} for row in db.execute(FLOWS)]
        yield "waiting", [dict(row) for row in db.execute(WAITING)]
        yield "rows", {name: db.execute(f'SELECT count(*) FROM "{name}"').fetchone()[0] for name in names}


def _slots() -> Any:
    slot, pending = slots.slot(), slots.pending()
    return {
        "slot": slot,
        "pending": pending and asdict(pending),
        "history": slots.history(),
        "told": _known(requests.STATE.read_text),
        "rauc": _known(lambda: json.loads(output("rauc", "status", "--detailed", "--output-format=json"))),
    }


def _known(make: Callable[[], Any]) -> Any:
    try:
        return make()
    except (OSError, AttributeError, ValueError, EdgertError) as error:
        return f"not known: {error}"


def _machine() -> Mapping[str, Any]:
    import psutil

    disks = ("/", "/var", "/var/edgert", "/var/lib/edgert")
    return {
        "edgert": edgert.__version__,
        "python": sys.version,
        "system": _known(platform.freedesktop_os_release),
        "kernel": " ".join(platform.uname()),
        "board": _known(lambda: MODEL.read_text(errors="replace").rstrip("\0")),
        "image": slots.about(),
        "packages": {one.name: one.version for one in metadata.distributions()},
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "uptime_s": round(time.time() - psutil.boot_time()),
        "cores": os.cpu_count(),
        "load": os.getloadavg(),
        "memory": psutil.virtual_memory()._asdict(),
        "swap": psutil.swap_memory()._asdict(),
        "disks": {path: psutil.disk_usage(path)._asdict() for path in disks if os.path.isdir(path)},
        "temperatures": _known(psutil.sensors_temperatures),
        "throttled": _known(lambda: output("vcgencmd", "get_throttled").strip()),
    }


def _journal(chosen: str) -> str:
    """The last lines of this start, the newest first where they are too many bytes."""
    said = output("journalctl", "--boot", "--no-pager", "--quiet", "--reverse", f"--lines={LOG_LINES}", chosen)
    if not said:
        raise EdgertError("no entry in this start's journal (a program that is no service has its log elsewhere)")
    entries = re.split(r"\n(?![ \t])", said.removesuffix("\n"))  # further lines of an entry are indented
    return "\n".join(reversed(entries)) + "\n"


def _json(value: Any) -> str:
    return json.dumps(without_secrets(value), indent=1, default=repr) + "\n"
