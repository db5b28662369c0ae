"""The door to other programs, for the builder of images."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Final

SYSTEM_FOLDERS: Final = "/usr/sbin:/sbin"


class BuildError(Exception):
    """The image cannot be built; the message says why, and what to do."""


def run(*command: str | Path, env: dict[str, str] | None = None, folder: Path | None = None, given: str = "") -> None:
    """Runs a program, with `given` as its input. Raises `BuildError` with the end of what the program said."""
    variables = dict(os.environ if env is None else env)
    variables["PATH"] = f"{variables['PATH']}:{SYSTEM_FOLDERS}"
    done = subprocess.run(
        list(map(str, command)), capture_output=True, text=True, env=variables, cwd=folder, input=given,
        check=False,
    )  # fmt: skip
    if done.returncode:
        said = "\n".join((done.stdout + done.stderr).strip().splitlines()[-15:])
        raise BuildError(f"{command[0]} failed (status {done.returncode}):\n{said}")
