"""Daemons without connections, and a board that starts with files of flows."""

from __future__ import annotations

from pathlib import Path

from edgert.core.settings.gateway import Central, Flows, Gateway, GatewaySettings, Sensors, Web
from edgert.flow.document import load
from gateway.daemon import Daemon
from gateway.flows.files import deploy_files


def daemon(folder: Path, *files: str) -> Daemon:
    """Without a connection to anybody."""
    return Daemon(
        GatewaySettings(
            gateway=Gateway(id="g1", data_dir=str(folder)), central=Central(enabled=False), web=Web(enabled=False),
            sensors=Sensors(port=1), flows=Flows(files=files),
        )
    )  # fmt: skip


async def ends(board: Daemon) -> None:
    board.stop()
    await board.end()


DOCUMENT = """
name = "{name}"
description = "{description}"
[operators.in]
type = "mqtt_source"
topic = "x/{{source}}"
[operators.out]
type = "publish"
input = "in"
topic = "y"
"""


class Board:
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def file(self, name: str, description: str = "") -> str:
        path = self.folder / f"{name}.toml"
        path.write_text(DOCUMENT.format(name=name, description=description))
        return str(path)

    async def start(self, *files: str, mqtt: str = "", description: str = "mqtt") -> dict[str, str]:
        """One life with these `flows.files`, in which flow `mqtt` comes over MQTT; name → description of what ran."""
        gateway = Gateway(id="g1", data_dir=str(self.folder / "data"))
        daemon = Daemon(GatewaySettings(gateway=gateway, flows=Flows(files=files)))
        daemon.flows.load()
        await daemon.host.start()
        try:
            await deploy_files(daemon.flows, daemon.settings.flows.files)
            if mqtt:
                text = DOCUMENT.format(name=mqtt, description=description).encode()
                await daemon.flows.deploy(load(text, daemon.flows.registry), "mqtt")
            return {name: run.flow.description for name, run in sorted(daemon.flows.runs.items())}
        finally:
            await daemon.host.stop()
            daemon.database.close()
