"""The demo with several gateways: a board is a gateway with its agent, all on loopback, and one flow runs over them.

The first board has the sensors; operators with state run on the second, sinks on the last.
"""

from __future__ import annotations

import base64
import json
import os
import secrets
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgert.control.client import call
from edgert.core.errors import EdgertError, Problem
from edgert.demo.setup import FLEET, LOOPBACK, Setup, free_port, gateway_toml
from edgert.flow.document import load
from edgert.flow.graph import Flow
from edgert.flow.plan import operator_copies
from edgert.flow.spec import Registry
from edgert.mqtt.clients.deployment import DeploymentAnswer
from edgert.operators.registry import with_installed

WEB_PORT, LINK_PORT, AGENT_PORT = 8081, 7844, 7946
"""Wanted for the second board's page, and the first board's listeners; the next boards take the next ones."""
RETRY_S = 0.5
ANSWER_S = 60.0


@dataclass(frozen=True, slots=True)
class DemoBoard:
    """One gateway and its agent."""

    number: int
    gateway: str
    folder: Path
    """Folder of the gateway's data and its agent's, with the control sockets."""
    web_port: int
    link_port: int
    agent_port: int

    @property
    def url(self) -> str:
        return f"http://{LOOPBACK}:{self.web_port}/"

    @property
    def agent_socket(self) -> Path:
        return self.folder / "agent" / "agent.sock"


def boards(setup: Setup) -> list[DemoBoard]:
    """The boards of the demo, the first with the sensors; none where there is one gateway only."""
    if setup.options.gateways < 2:
        return []
    made, taken = list[DemoBoard](), set[int]()

    def port(wanted: int) -> int:
        found = free_port(wanted)
        while found in taken:
            found = free_port(0)
        taken.add(found)
        return found

    for number in range(1, setup.options.gateways + 1):
        first = number == 1
        name = setup.gateway if first else f"{setup.gateway}-{number}"
        folder = setup.data / ("gateway" if first else f"gateway-{number}")
        web = setup.web_port if first else port(WEB_PORT + number - 2)
        made.append(DemoBoard(number, name, folder, web, port(LINK_PORT + number - 1), port(AGENT_PORT + number - 1)))
    return made


def write(setup: Setup, made: list[DemoBoard]) -> None:
    """The programs' files, and the fleet's key."""
    key = setup.data / "fleet.key"
    if not key.exists():
        with os.fdopen(os.open(key, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(base64.b64encode(secrets.token_bytes(32)).decode() + "\n")
    for board in made:
        (board.folder / "agent").mkdir(parents=True, exist_ok=True)
        links = f"\n[links]\nenabled = true\nport = {board.link_port}\n"
        text = gateway_toml(setup, board.gateway, board.folder, board.web_port) + links
        (setup.data / f"gateway-{board.number}.toml").write_text(text)
        (setup.data / f"agent-{board.number}.toml").write_text(_agent_toml(board, made[0], key))


def _agent_toml(board: DemoBoard, first: DemoBoard, key: Path) -> str:
    text = json.dumps
    seeds = "" if board is first else f'"{LOOPBACK}:{first.agent_port}"'
    return f"""# Written by `edgert demo` at each start.
[gateway]
id = {text(board.gateway)}
fleet = "{FLEET}"
data_dir = {text(str(board.folder / "agent"))}

[agent]
port = {board.agent_port}
seeds = [{seeds}]
key_file = {text(str(key))}
gateway_socket = {text(str(board.folder / "control.sock"))}

[moves]
external = false

[sched]
enabled = false
"""


def commands(setup: Setup, made: list[DemoBoard]) -> dict[str, list[str]]:
    """Command lines of the boards' children, by name; the first gateway is `gateway`."""
    python = [sys.executable, "-m"]
    found: dict[str, list[str]] = {}
    for board in made:
        name = "gateway" if board.number == 1 else f"gateway-{board.number}"
        found[name] = [*python, "gateway", "--config", str(setup.data / f"gateway-{board.number}.toml")]
        found[f"agent-{board.number}"] = [*python, "agent", "--config", str(setup.data / f"agent-{board.number}.toml")]
    return found


def pins(flow: Flow, registry: Registry, made: list[DemoBoard]) -> dict[str, str]:
    """Operator -> gateway: sinks on the last board, operators with state on the second, the rest on the first."""
    on: dict[str, str] = {}
    for name, node in flow.nodes.items():
        spec = registry[node.type]
        stateful = spec.role == "inner" and not spec.stateless
        board = made[-1] if spec.role == "sink" else made[1] if stateful else made[0]
        on |= dict.fromkeys(operator_copies(node), board.gateway)
        if spec.role == "inner" and not stateful and any(on.get(i, "") != made[0].gateway for i in node.inputs):
            on[name] = made[1].gateway  # behind a window there are few rows: they stay where it is
    return on


class FleetDeployment:
    """Deploys the demo's flow through the first board's agent, as `edgert fleet deploy` does, as soon as all boards are
    there. `answer` is None until then."""

    def __init__(self, setup: Setup, made: list[DemoBoard]) -> None:
        self._made = made
        registry, _ = with_installed()
        self._flow = load(setup.document, registry, what=setup.flow_name)
        self._pins = pins(self._flow, registry, made)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="deployment", daemon=True)
        self.answer: DeploymentAnswer | None = None

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._stop.set()
        self._thread.join(RETRY_S)

    def _run(self) -> None:
        why = ""
        for _ in range(int(ANSWER_S / RETRY_S)):
            if self._stop.wait(RETRY_S):
                return
            try:
                if self._all_there():
                    self.answer = DeploymentAnswer(True, int(self._deploy()["plan"]))
                    return
            except EdgertError as error:
                why = str(error)
        self.answer = DeploymentAnswer(
            False, problems=(Problem("fleet", "all boards within a minute", why or "no answer"),)
        )

    def _all_there(self) -> bool:
        members = call(self._made[0].agent_socket, "fleet.status")["members"]
        alive = {m["gateway"] for m in members if m["state"] == "alive" and m["board"].get("link", [0, 0])[1]}
        return {board.gateway for board in self._made} <= alive

    def _deploy(self) -> Mapping[str, Any]:
        asked = {"document": dict(self._flow.document), "pins": self._pins}
        found: Mapping[str, Any] = call(self._made[0].agent_socket, "fleet.deploy", asked, ANSWER_S)
        return found
