"""Real agents on loopback for integration tests."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.ports import free_port
from edgert.control.client import call
from edgert.control.messages import ControlError
from edgert.core.text.key_lines import key_line


class RealAgent:
    """One `edgert-agent` process with a folder of its own."""

    def __init__(
        self,
        folder: Path,
        name: str,
        seeds: list[int],
        keys: list[bytes],
        gateway: Path | None = None,
        fleet: str = "default",
        extra: str = "",
    ) -> None:
        """`gateway`: the control socket of its gateway; `extra`: more lines of its settings."""
        self.name = name
        self.port = free_port()
        self.folder = folder / name
        self.folder.mkdir(parents=True)
        self.key_file = self.folder / "fleet.key"
        self.write_keys(keys)
        self.config = self.folder / "agent.toml"
        listed = ", ".join(f'"127.0.0.1:{port}"' for port in seeds)
        self.config.write_text(
            f'[gateway]\nid = "{name}"\nfleet = "{fleet}"\ndata_dir = "{self.folder}"\n'
            f"[agent]\nport = {self.port}\nseeds = [{listed}]\n"
            f'gateway_socket = "{gateway or ""}"\n'
            f"[coordinates]\nperiod_s = 1.0\n{extra}"
        )
        self.process: subprocess.Popen[bytes] | None = None

    def write_keys(self, keys: list[bytes]) -> None:
        new = self.key_file.with_suffix(".new")
        new.touch(mode=0o600)
        new.write_text("".join(f"{key_line(key)}\n" for key in keys))
        new.replace(self.key_file)

    def start(self, within: Callable[[list[str]], list[str]] = list) -> None:
        """`within`: makes of a command one that runs in a control group."""
        command = within([sys.executable, "-m", "agent", "--config", str(self.config)])
        env = {name: value for name, value in os.environ.items() if name != "RUNTIME_DIRECTORY"}
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(command, stderr=log, env=env)

    def kill(self) -> None:
        """SIGKILL."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def peak_mb(self) -> float:
        """The most memory that the process has had (MiB)."""
        assert self.process is not None
        assert self.process.poll() is None, "it was killed"
        lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) / 1024

    def status(self) -> dict[str, Any]:
        """`fleet.status`; empty while the agent does not answer."""
        try:
            found: dict[str, Any] = call(self.folder / "agent.sock", "fleet.status", timeout_s=60)
        except ControlError:
            return {}
        return found

    def states(self) -> dict[str, str]:
        return {member["gateway"]: member["state"] for member in self.status().get("members", [])}

    def log(self) -> str:
        return (self.folder / "log").read_text()
