"""The central side of a fleet of one board: Mosquitto with certificates and rules, a collector, its landing tables.

A second listener of the broker, without a password, takes sensors: it keeps what it has acknowledged, also while the
board is off. So the landing table says what the board has lost or counted twice. All listen on loopback alone.
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import deltalake
from deltalake.exceptions import TableNotFoundError

from edgert.central.tables.query import query
from images.qemu.fleet import Fleet
from images.qemu.machine import BootError, free_port
from images.qemu.outside import LOCAL, MESSAGES, WINDOW_S

HOST: Final = "10.0.2.2"
"""The address under which QEMU's own network has this machine."""
START_S: Final = 60.0
LANDED_S: Final = 600.0


class Central:
    """Runs for as long as its context lasts; its files stay in `folder`, and its ports stay the same."""

    def __init__(self, folder: Path, fleet: Fleet, host: str = HOST, listen: str = LOCAL) -> None:
        """The board has this machine under the address `host`; the broker listens on `listen`."""
        self._folder, self._fleet, self._host, self._listen = folder, fleet, host, listen
        self._processes: list[subprocess.Popen[bytes]] = []
        if not (folder / "ports.json").exists():
            self._make()
        self._port, self.sensors = json.loads((folder / "ports.json").read_text())

    def _make(self) -> None:
        self._folder.mkdir()
        fleet, folder = self._fleet, self._folder
        fleet.issue("server", folder / "broker", self._host, LOCAL)
        for user in ("central", "ops"):
            fleet.issue("user", folder / user, user)
        (folder / "acl").write_text(fleet.rules("ops"))
        port, sensors = free_port(), free_port()
        (folder / "mosquitto.conf").write_text(
            "user root\nper_listener_settings true\n"
            f"persistence true\npersistence_location {folder}/\nautosave_interval 60\n"
            "max_queued_messages 0\nmax_inflight_messages 0\n"
            f"listener {port} {self._listen}\ncafile {folder}/broker/ca.pem\ncertfile {folder}/broker/server.pem\n"
            f"keyfile {folder}/broker/server.key\ncrlfile {fleet.revoked}\nrequire_certificate true\n"
            f"use_identity_as_username true\nacl_file {folder}/acl\n"
            f"listener {sensors} {self._listen}\nallow_anonymous true\n"
        )
        (folder / "collector.toml").write_text(
            f'[collector]\ntable_root = "{folder}/tables"\nmac_key_file = "{fleet.mac_key}"\n'
            f'[central]\nhost = "{LOCAL}"\nport = {port}\ntls = true\nca_file = "{folder}/central/ca.pem"\n'
            f'cert_file = "{folder}/central/user.pem"\nkey_file = "{folder}/central/user.key"\n'
        )
        (folder / "ports.json").write_text(json.dumps([port, sensors]))

    @property
    def told(self) -> int | None:
        """The first minute (event time, s) that the board sends here; None: it was not told to."""
        noted = self._folder / "told"
        return int(noted.read_text()) if noted.exists() else None

    @told.setter
    def told(self, minute: int) -> None:
        (self._folder / "told").write_text(str(minute))

    def provisioning(self) -> str:
        """The text of an edgert.toml by which the board takes sensors from, and sends results to, this broker."""
        return self._fleet.provisioning(
            f'[sensors]\nhost = "{self._host}"\nport = {self.sensors}\n'
            f'[central]\nhost = "{self._host}"\nport = {self._port}\n'
        )

    def __enter__(self) -> Central:
        self._run("broker.log", "mosquitto", "-c", str(self._folder / "mosquitto.conf"))
        ends = time.monotonic() + START_S
        while not self._listens():
            if time.monotonic() > ends or self._processes[0].poll() is not None:
                raise BootError(f"expected a broker on port {self._port}:\n{(self._folder / 'broker.log').read_text()}")
            time.sleep(0.1)
        config = str(self._folder / "collector.toml")
        self._run("collector.log", sys.executable, "-m", "edgert.central.collector", "--config", config)
        return self

    def __exit__(self, *_: object) -> None:
        for process in reversed(self._processes):
            process.terminate()
            process.wait()

    def _run(self, log: str, *command: str) -> None:
        with (self._folder / log).open("ab") as out:
            self._processes.append(subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out))

    def _listens(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex((LOCAL, self.sensors)) == 0

    def windows(self, flow: str) -> dict[int, int]:
        """Start of a window (s) -> the messages counted in it, of all that landed."""
        try:
            table = deltalake.DeltaTable(str(self._folder / "tables" / "landing" / flow))
        except TableNotFoundError:
            return {}
        found: Counter[int] = Counter()
        for row in query(table):
            if not row["lineage"]:
                found[int(row["window_start"].timestamp())] += row["n"]
        return dict(found)

    def landed(self, flow: str, minutes: Sequence[int]) -> str:
        """Waits until all messages of these minutes have landed. Returns how many, or raises `BootError` for those that
        are lost or counted twice."""
        ends = time.monotonic() + LANDED_S
        while found := amiss(self.windows(flow), minutes):
            if time.monotonic() > ends or any(n > 0 for n in found.values()):
                raise BootError(f"window start -> messages too many (+) or too few (-) in the landing table: {found}")
            time.sleep(1.0)
        return f"{len(minutes) * MESSAGES - WINDOW_S} messages landed: lost 0, doubled 0"

    def update(self, url: str, *options: str) -> tuple[int, dict[str, Any], str]:
        """Runs `edgert fleet update`: its exit status, its result, what it said meanwhile."""
        ops = self._folder / "ops"
        files = ("--tls", "--ca-file", ops / "ca.pem", "--cert-file", ops / "user.pem", "--key-file", ops / "user.key")
        command: Sequence[str | Path] = (
            sys.executable, "-m", "edgert", "fleet", "update", url, "--broker", f"{LOCAL}:{self._port}", *files,
            "--json", *options,
        )  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return done.returncode, json.loads(done.stdout) if done.stdout else {}, done.stderr


def amiss(found: Mapping[int, int], minutes: Sequence[int]) -> dict[int, int]:
    """Start of a window -> messages that are too many or (below 0) too few in it. A sensor sends one a second in each
    of `minutes`; the last window is still open. Others than those of `minutes` are not looked at."""
    expected = {minute + second: WINDOW_S for minute in minutes for second in range(0, MESSAGES, WINDOW_S)}
    expected.pop(max(expected, default=0), None)
    return {start: found.get(start, 0) - n for start, n in expected.items() if found.get(start, 0) != n}
