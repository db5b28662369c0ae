"""`python -m tests.other_brokers.build`: builds mochi-mqtt (Go) and rumqttd (Rust) where these languages are at hand.

They come from the registries of these languages, in the versions named here, into a cache in the user's folder.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "edgert-brokers"
MOCHI, RUMQTTD = CACHE / "mochi", CACHE / "bin" / "rumqttd"
RUMQTTD_VERSION = "0.20.0"
TOOLS = {"go": "/usr/local/go/bin", "cargo": str(Path.home() / ".cargo" / "bin")}


def tool(name: str) -> str | None:
    """The path of `go` or `cargo`; None where it is missing."""
    return shutil.which(name, path=f"{os.environ.get('PATH', '')}:{TOOLS[name]}")


def build() -> None:
    """Builds what is not built yet and can be."""
    CACHE.mkdir(parents=True, exist_ok=True)
    if go := tool("go"):  # which knows what is built already
        subprocess.run([go, "build", "-o", str(MOCHI), "."], cwd=Path(__file__).parent / "mochi", check=True)
    if not RUMQTTD.exists() and (cargo := tool("cargo")):
        version = ["--version", RUMQTTD_VERSION]  # not --locked: what it locks to does not build with newer compilers
        subprocess.run([cargo, "install", "rumqttd", *version, "--root", str(CACHE)], check=True)
    for path, language in ((MOCHI, "Go"), (RUMQTTD, "Rust")):
        print(f"{path}: {'built' if path.exists() else f'not built: {language} is not installed'}")


if __name__ == "__main__":
    build()
