"""The run: eleven agents on loopback that know each other, alone or each beside its gateway."""

from __future__ import annotations

import secrets
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from benchmarks import bars
from benchmarks.ports import free_port
from benchmarks.processes import MOSQUITTO, Child, child, mosquitto, wait_for
from benchmarks.report import Benchmark, Options, Report
from edgert.control.client import call
from edgert.control.messages import ControlError
from edgert.core.text.key_lines import key_line
from edgert.core.toml import to_toml

AGENTS: Final = 11
SECONDS: Final = 60.0
SETTLES_S: Final = 30.0
"""A fleet that has just met exchanges what it publishes; imports and the first rounds of pings are over by then."""
CPU_LIMIT: Final = 0.01
RSS_LIMIT_MB: Final = 55.0


def measure(options: Options, report: Report) -> None:
    """Fills the report."""
    settles_s, seconds = (5.0, 10.0) if options.quick else (SETTLES_S, SECONDS)
    for repetition in range(options.repetitions):
        for kind in options.applications or BENCHMARK.applications:
            options.say(f"repetition {repetition + 1} of {options.repetitions}: {kind}")
            beside = kind == "beside gateways"
            with tempfile.TemporaryDirectory(prefix="edgert-bench-") as name, fleet(Path(name), beside) as agents:
                time.sleep(settles_s)
                _measure(report, agents, kind, seconds)


def _measure(report: Report, agents: Sequence[Child], kind: str, seconds: float) -> None:
    before, began = [agent.cpu_s() for agent in agents], time.monotonic()
    time.sleep(seconds)
    lasted = time.monotonic() - began
    used = [(agent.cpu_s() - cpu_s) / lasted for agent, cpu_s in zip(agents, before, strict=True)]
    report.add(f"CPU of an agent, {kind}, mean", statistics.mean(used), "cores", limit=CPU_LIMIT)
    report.add(f"CPU of an agent, {kind}, most", max(used), "cores")
    most_mb = max(agent.rss_mb() for agent in agents)
    report.add(f"memory of an agent, {kind}, most", most_mb, "MB", limit=RSS_LIMIT_MB)


@contextmanager
def fleet(folder: Path, gateways: bool) -> Iterator[list[Child]]:
    """Agents that all know each other; they end with the block."""
    key, seed = secrets.token_bytes(32), free_port()
    with ExitStack() as stack:
        names = [f"board-{number}" for number in range(AGENTS)]
        if gateways:
            broker = stack.enter_context(mosquitto(folder))
            for name in names:
                stack.enter_context(_gateway(folder / name, name, broker))
        agents = []
        for number, name in enumerate(names):
            port = free_port() if number else seed
            socket = str(folder / name / "control.sock") if gateways else ""
            agents.append(stack.enter_context(_agent(folder / name, name, port, seed, key, socket)))
        wait_for(lambda: all(_alive(folder / name) == AGENTS for name in names), "that all agents know each other", 240)
        yield agents


def _agent(folder: Path, name: str, port: int, seed: int, key: bytes, gateway: str) -> Any:
    folder.mkdir(exist_ok=True)
    key_file, config = folder / "fleet.key", folder / "agent.toml"
    key_file.touch(mode=0o600)
    key_file.write_text(f"{key_line(key)}\n", encoding="ascii")
    settings: dict[str, Any] = {
        "gateway": {"id": name, "data_dir": str(folder)},
        "agent": {
            "bind": "127.0.0.1", "port": port, "seeds": [f"127.0.0.1:{seed}"] if port != seed else [],
            "key_file": str(key_file), "gateway_socket": gateway,
        },
    }  # fmt: skip
    config.write_text(to_toml(settings), encoding="utf-8")
    return child([sys.executable, "-m", "agent", "--config", config], folder / "agent.log")


def _gateway(folder: Path, name: str, broker: int) -> Any:
    folder.mkdir()
    config = folder / "gateway.toml"
    settings: dict[str, Any] = {
        "gateway": {"id": name, "data_dir": str(folder)},
        "sensors": {"port": broker},
        "central": {"enabled": False},
        "web": {"port": 0},
    }
    config.write_text(to_toml(settings), encoding="utf-8")
    return child([sys.executable, "-m", "gateway", "--config", config], folder / "gateway.log")


def _alive(folder: Path) -> int:
    """How many members an agent holds for alive; 0 while it does not answer."""
    with suppress(ControlError):
        members = call(folder / "agent.sock", "fleet.status")["members"]
        return sum(member["state"] == "alive" for member in members)
    return 0


BENCHMARK: Final = Benchmark(
    f"an agent in a fleet of {AGENTS}: at most 55 MB and 1 % of a core",
    measure,
    lambda report, folder: bars.draw(report, folder, (("cores", 0.01, "% of a core"), ("MB", 1.0, "MB"))),
    lambda: None if MOSQUITTO else "mosquitto, the MQTT broker (apt-get install mosquitto)",
    repetitions=3,
    applications=("alone", "beside gateways"),
)
