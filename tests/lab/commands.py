"""What a running laboratory does when it is told to, over a control socket: one function per command."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from edgert.control.messages import VerbError
from edgert.control.server import Handler
from edgert.core.errors import EdgertError
from tests.lab.board import MQTT_PORT, WEB_PORT
from tests.lab.lab import Lab

SOCKET: Final = Path("/run/edgert-lab/control.sock")


class Commands:
    """Of one laboratory. Each raises `EdgertError` where it cannot be done."""

    def __init__(self, lab: Lab) -> None:
        self._lab = lab
        self.ended = asyncio.Event()
        """`down` was asked for."""

    def handlers(self) -> dict[str, Handler]:
        """By verb."""
        names = ("status", "cut", "heal", "change", "kill", "start", "enter", "down")
        return {name: getattr(self, name) for name in names}

    async def status(self, _: Mapping[str, Any]) -> dict[str, Any]:
        """Boards, ways and the frames that took them."""
        lab = self._lab
        figures = lab.switch.figures()
        ways = [
            {"from": origin, "to": destination, "delay_ms": 1000 * way.delay_s, "jitter_ms": 1000 * way.jitter_s,
             "loss": way.loss, "mbit_s": way.bytes_per_s / 125_000, "is_cut": way.cut,
             **figures[f"{origin} {destination}"]}
            for (origin, destination), way in lab.switch.ways.items()
        ]  # fmt: skip
        boards = [
            {"name": name, "address": board.address, "gateway": board.gateway.running,
             "agent": board.agent.running if board.agent else None, "cores": board.described.cores,
             "memory_mb": board.described.memory_mb, "unlimited": board.unlimited,
             "control": str(board.gateway.data / "control.sock")}
            for name, board in lab.boards.items()
        ]  # fmt: skip
        central = {"address": lab.central.address, "tables": str(lab.central.rig.tables)}
        return {"folder": str(lab.folder), "central": central, "boards": boards, "ways": ways,
                "ports": {"mqtt": MQTT_PORT, "web": WEB_PORT}}  # fmt: skip

    async def cut(self, args: Mapping[str, Any]) -> None:
        """`{"a", "b", "one_way"}`."""
        self._lab.cut(args["a"], args["b"], args["one_way"])

    async def heal(self, args: Mapping[str, Any]) -> None:
        """`{"a", "b"}`; both empty: all cuts."""
        if bool(args["a"]) != bool(args["b"]):
            raise EdgertError("expected two places, or none to heal all cuts")
        self._lab.heal(args["a"], args["b"])

    async def change(self, args: Mapping[str, Any]) -> None:
        """`{"a", "b", "one_way", "changes"}`: fields of `Way`."""
        self._lab.change(args["a"], args["b"], args["one_way"], **args["changes"])

    async def kill(self, args: Mapping[str, Any]) -> None:
        """`{"board"}`."""
        self._lab.kill(args["board"])

    async def start(self, args: Mapping[str, Any]) -> None:
        """`{"board"}`."""
        try:
            self._lab.start_board(args["board"])
        except AssertionError as error:  # it was waited for in vain
            raise VerbError(str(error)) from error

    async def enter(self, args: Mapping[str, Any]) -> dict[str, str]:
        """`{"place"}`: its namespace's path."""
        return {"namespace": self._lab.place(args["place"]).namespace.path}

    async def down(self, _: Mapping[str, Any]) -> None:
        """Ends the laboratory."""
        self.ended.set()
