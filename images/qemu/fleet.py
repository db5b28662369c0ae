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

    def __init__(self, folder: Path, board: str) -> None:
        self._folder, self._board = folder, board
        if not folder.exists():
            self._make(folder, board)

    def _make(self, folder: Path, board: str) -> None:
        folder.mkdir()
        self._edgert("fleet", "ca", "init", folder / "ca")
        self._edgert("fleet", "ca", "updates", "release", "--ca", folder / "ca", "--out", folder / "updates")
        (folder / "boards.csv").write_text(f"id\n{board}\n")
        (folder / "common.toml").write_text(COMMON)
        self._edgert("fleet", "provision", folder / "boards.csv", "--ca", folder / "ca", "--out", folder / "boards",
                     "--common", folder / "common.toml")  # fmt: skip

    def provisioning(self) -> str:
        """The text of the board's edgert.toml."""
        return (self._folder / "boards" / self._board / "edgert.toml").read_text()

    @property
    def signer(self) -> tuple[Path, Path]:
        """Certificate (with that of its CA) and key for updates."""
        return self._folder / "updates/updates.pem", self._folder / "updates/updates.key"

    @property
    def root(self) -> Path:
        return self._folder / "ca/root.pem"

    @staticmethod
    def _edgert(*arguments: str | Path) -> None:
        done = subprocess.run(
            [sys.executable, "-m", "edgert", *map(str, arguments)], capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise BuildError(f"edgert {' '.join(map(str, arguments))}: {done.stderr}")
