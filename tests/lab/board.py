"""The places of a laboratory: boards, each with its broker, gateway and agent, and the central side."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from agent.simulation.described.description import BoardDescription
from edgert.central.spark.die_with_parent import leashed
from edgert.control.client import call
from edgert.core.toml import to_toml
from edgert.links.tls import Credentials
from tests.brokers import Broker, mosquitto
from tests.integration.rig import FLEET, Gateway, Process, Rig
from tests.lab.cgroups import Group
from tests.lab.namespaces import Namespace
from tests.waiting import DEADLINE_S

MQTT_PORT, WEB_PORT, LINK_PORT, AGENT_PORT = 1883, 8080, 7844, 7946
BROKER_SETTINGS: Final = "max_queued_messages 0\nmax_inflight_messages 0"


class Place:
    """A namespace with a broker; all that runs there ends with this process."""

    def __init__(self, name: str, folder: Path, address: str, cores: float = 0.0, memory_mb: int = 0) -> None:
        """`cores`, `memory_mb`: limits of its processes together; 0: none."""
        self.name, self.folder, self.address = name, folder, address
        self.namespace = Namespace()
        self.folder.mkdir(parents=True)
        self.unlimited = ""
        """Why its processes are not limited so."""
        self._group: Group | None = None
        try:
            self._group = Group(name, cores, memory_mb)
        except OSError as error:
            self.unlimited = f"no control groups here: {error}"
        with self.namespace.inside():
            listener = f"{BROKER_SETTINGS}\nlistener {MQTT_PORT} {address}"
            self.broker: Broker = mosquitto(folder, persistence=True, settings=listener)
        self.broker.command = self.command(self.broker.command)
        self.rig = Rig(folder, self.broker)
        """To publish, from within the namespace, and to look at tables."""

    def command(self, command: Sequence[str]) -> list[str]:
        """One that is within the limits, and ends with this process."""
        return leashed(self._group.command(command) if self._group is not None else command)

    def start(self) -> None:
        with self.namespace.inside():
            self.broker.start()

    def close(self) -> None:
        self.rig.close()
        if self.broker.running:
            self.broker.kill()
        self.namespace.close()
        if self._group is not None:
            self._group.close()


class Central(Place):
    """The central broker, and the collector."""

    def start(self) -> None:
        super().start()
        self.collector = self.rig.collector()
        self.collector.arguments = self.command(self.collector.arguments)
        with self.namespace.inside():
            self.collector.start()


class BoardGateway(Gateway):
    """A gateway in a namespace."""

    def __init__(self, place: Place, central: str, settings: dict[str, dict[str, Any]]) -> None:
        settings.setdefault("central", {})["host"] = central
        super().__init__(place.folder, place.name, place.broker.port, MQTT_PORT, settings)
        self.port = WEB_PORT
        self.arguments = place.command(self.arguments)
        self._place = place

    def start(self) -> None:
        with self._place.namespace.inside():
            super().start()

    def status(self) -> dict[str, Any]:
        with self._place.namespace.inside():
            return super().status()


class Board(Place):
    """A gateway, its broker, and the agent, where the laboratory has agents."""

    def __init__(
        self, described: BoardDescription, folder: Path, address: str, central: str, credentials: Credentials
    ) -> None:
        super().__init__(described.name, folder, address, described.cores, described.memory_mb)
        self.described = described
        links = {"enabled": True, "listen": address, "port": LINK_PORT}
        files = {"certificate": credentials.certificate, "key": credentials.key, "ca": credentials.ca}
        settings: dict[str, dict[str, Any]] = {
            "links": links | files, "pool": {"slots": described.slots}, "web": {"port": WEB_PORT},
        }  # fmt: skip
        for section, table in described.settings.items():
            settings[section] = settings.get(section, {}) | dict(table)
        self.gateway = BoardGateway(self, central, settings)
        self.agent: Process | None = None
        self.rig.processes.append(self.gateway)

    def start(self) -> None:
        super().start()
        self.start_programs()

    def start_programs(self) -> None:
        """The gateway and the agent, where they do not run."""
        if not self.gateway.running:
            self.gateway.start()
        if self.agent is not None and not self.agent.running:
            with self.namespace.inside():
                self.agent.start()

    def wait_ready(self) -> None:
        """Returns when the gateway is connected to its sensors' broker."""
        self.gateway.wait(lambda s: s["ingest"]["connected"], "the connection to the sensors' broker", 180.0)

    def kill(self) -> None:
        """SIGKILL to the gateway and the agent, as a power cut would; the sensors' broker stays."""
        for process in (self.gateway, self.agent):
            if process is not None and process.running:
                process.kill()

    def prepare_agent(self, key_file: Path, seeds: list[str]) -> None:
        """Writes the agent's file; it starts with the board."""
        own_keys = self.folder / "fleet.key"
        own_keys.touch(mode=0o600)
        shutil.copyfile(key_file, own_keys)
        config = self.folder / "agent.toml"
        settings: dict[str, dict[str, Any]] = {
            "gateway": {"id": self.name, "fleet": FLEET, "data_dir": str(self.gateway.data)},
            "agent": {"bind": self.address, "port": AGENT_PORT, "seeds": seeds, "key_file": str(own_keys)},
            "moves": {"external": False},  # the boards share a machine
        }  # fmt: skip
        for section, table in self.described.agent.items():
            settings[section] = settings.get(section, {}) | dict(table)
        config.write_text(to_toml(settings))
        self.agent = Process(["agent", "--config", str(config)], self.folder / "agent.log")
        self.agent.arguments = self.command(self.agent.arguments)
        self.rig.processes.append(self.agent)

    def ask(self, verb: str, args: Mapping[str, Any] | None = None) -> Any:
        """Of the gateway, over its control socket."""
        return call(self.gateway.data / "control.sock", verb, args, DEADLINE_S)

    def ask_agent(self, verb: str, args: Mapping[str, Any] | None = None, timeout_s: float = 10.0) -> Any:
        return call(self.gateway.data / "agent.sock", verb, args, timeout_s)
