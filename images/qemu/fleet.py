"""A fleet of one board as its owner makes it: a CA, the board's provisioning file, a certificate to sign updates."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Final

from images.programs import BuildError

COMMON: Final = """
[broker]
listen = "0.0.0.0"
control = true
[web]
host = "0.0.0.0"
"""
"""The image opens nothing to the network: the board is told to."""


class Fleet:
    """Made by the commands of `edgert fleet`, in a folder; one that is there has the fleet already."""

    def __init__(self, folder: Path, board: str, common: str = COMMON) -> None:
        self._folder, self._board, self._common = folder, board, common
        if not folder.exists():
            self._make(folder, board)

    def _make(self, folder: Path, board: str) -> None:
        folder.mkdir()
        self._edgert("fleet", "ca", "init", self._ca)
        self.issue("updates", folder / "updates", "release")
        (folder / "boards.csv").write_text(f"id\n{board}\n")

    def provisioning(self, settings: str = "") -> str:
        """The text of the board's edgert.toml, with further settings; the board's certificate stays the same."""
        (self._folder / "common.toml").write_text(self._common + settings)
        self._edgert("fleet", "provision", self._folder / "boards.csv", "--ca", self._ca,
                     "--out", self._folder / "boards", "--common", self._folder / "common.toml")  # fmt: skip
        return (self._folder / "boards" / self._board / "edgert.toml").read_text()

    def issue(self, kind: str, out: Path, *names: str) -> None:
        """Writes a certificate of a `server` or a `user` into a folder, with its key and that of the CA."""
        self._edgert("fleet", "ca", kind, *names, "--ca", self._ca, "--out", out)

    def rules(self, operator: str) -> str:
        """Access to the central broker, as Mosquitto's ACL file has it."""
        return self._edgert("fleet", "acl", "--operator", operator)

    @property
    def revoked(self) -> Path:
        """The list of revoked certificates."""
        return self._ca / "crl.pem"

    @property
    def mac_key(self) -> Path:
        """For the collector."""
        return self._ca / "mac.key"

    @property
    def signer(self) -> tuple[Path, Path]:
        """Certificate (with that of its CA) and key for updates."""
        return self._folder / "updates/updates.pem", self._folder / "updates/updates.key"

    @property
    def root(self) -> Path:
        return self._ca / "root.pem"

    @property
    def _ca(self) -> Path:
        return self._folder / "ca"

    @staticmethod
    def _edgert(*arguments: str | Path) -> str:
        """The text on the command's standard output."""
        done = subprocess.run(
            [sys.executable, "-m", "edgert", *map(str, arguments)], capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise BuildError(f"edgert {' '.join(map(str, arguments))}: {done.stderr}")
        return done.stdout
