"""Counts instructions: runs `inside` under valgrind and reads what it wrote."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

from benchmarks.cost.workloads import BASELINE

Counts = dict[str, float]
"""Figure → instructions per message and flow, or per idle second."""
TIMEOUT_S: Final = 1800.0


def lacks() -> str | None:
    """The program that a count needs and this machine lacks, with the way to get it; None if it is there."""
    return None if shutil.which("valgrind") else "valgrind (Debian: apt-get install valgrind)"


def build() -> str:
    """The interpreter and the machine that the instructions belong to: others need other ones for the same work."""
    flags = str(sysconfig.get_config_var("CONFIG_ARGS")) + str(sysconfig.get_config_var("PY_CFLAGS"))
    cpuinfo = Path("/proc/cpuinfo").read_text(encoding="utf-8") if Path("/proc/cpuinfo").exists() else ""
    wide = next((name for name in ("avx512bw", "avx2") if f" {name} " in cpuinfo), "plain")
    libc = "".join(platform.libc_ver())
    digest = hashlib.sha256(flags.encode()).hexdigest()[:8]
    return f"CPython {platform.python_version()} ({platform.python_compiler()}, {digest}), {libc}, {_machine(wide)}"


def _machine(wide: str) -> str:
    return f"{platform.machine()} {wide}"


def count(say: Callable[[str], None], names: tuple[str, ...] = ()) -> Counts:
    """Counts all figures, or those of the workloads `names`. `say` hears how far it is."""
    with tempfile.TemporaryDirectory(prefix="edgert-cost-") as name:
        folder = Path(name)
        command = [
            "valgrind", "--quiet", "--tool=cachegrind", "--cache-sim=no",
            f"--cachegrind-out-file={folder}/%p", sys.executable, "-m", "benchmarks.cost.inside", *names,
        ]  # fmt: skip
        # the same addresses, hashes and allocations in each run
        environment = os.environ | {"PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1", "MALLOC_ARENA_MAX": "1"}
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
        ) as process:
            assert process.stderr is not None
            assert process.stdout is not None
            errors = []
            for line in process.stderr:
                if line.startswith("counting: "):
                    say(line.removeprefix("counting: ").rstrip())
                elif not line.startswith("=="):  # valgrind's own words
                    errors.append(line)
            lines = process.stdout.read().splitlines()
            if process.wait():
                raise RuntimeError(
                    f"expected the counted process to end with 0, got {process.returncode}: {''.join(errors)}"
                )
        return _figures([json.loads(line) for line in lines], folder)


def _figures(children: list[dict[str, str | float]], folder: Path) -> Counts:
    figures: Counts = {}
    baseline = 0
    for child in children:
        instructions = _total(folder / str(child["pid"]))
        if child["part"] == BASELINE:
            baseline = instructions
        else:
            figures[str(child["figure"])] = (instructions - baseline) / float(child["per"])
    return figures


def _total(path: Path) -> int:
    """The instructions of one process, from the last line of cachegrind's file."""
    with path.open(encoding="utf-8", errors="replace") as file:
        for line in file:
            if line.startswith("summary:"):
                return int(line.split()[1])
    raise RuntimeError(f"expected a line `summary:` in {path}")
