"""The installation that sessions and clusters share: Java, Spark, the cache of its jars, and secrets of clusters."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

from edgert.core.errors import EdgertError

HOST: Final = "127.0.0.1"
"""Where the clusters of this machine listen."""
_OLDEST_JAVA: Final = 17


def jar_cache() -> Path:
    """Where fetched jars are kept."""
    home = os.environ.get("XDG_CACHE_HOME") or f"{os.environ.get('HOME', '/tmp')}/.cache"
    return Path(home) / "edgert" / "ivy"


def check_java() -> None:
    """Raises `EdgertError` saying what to install if there is no Java that Spark can run on."""
    home = os.environ.get("JAVA_HOME")
    java = f"{home}/bin/java" if home else shutil.which("java")
    advice = "install one, for instance: sudo apt install default-jre-headless"
    if not java or not Path(java).exists():
        raise EdgertError(f"Spark needs Java {_OLDEST_JAVA} or newer, and none was found; {advice}")
    told = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    number = told.split('"')[1] if told.count('"') >= 2 else ""
    major = number.split(".")[0].split("-")[0]
    if major.isdigit() and int(major) < _OLDEST_JAVA:
        raise EdgertError(f"Spark needs Java {_OLDEST_JAVA} or newer, got {number} ({java}); {advice}")


def spark_home() -> Path:
    """Returns the folder of the Spark that `pyspark` brings."""
    import pyspark

    return Path(pyspark.__file__).parent


def folder_of(port: int) -> Path:
    """Where the cluster on a port keeps its secret, its logs and what its workers write."""
    return jar_cache().parent / "cluster" / str(port)


def secret_of(master: str) -> str | None:
    """The secret of a cluster of this user's on this machine; None for any other master."""
    prefix = f"spark://{HOST}:"
    port = master.removeprefix(prefix)
    if not master.startswith(prefix) or not port.isdigit():
        return None
    try:
        return (folder_of(int(port)) / "secret").read_text().strip() or None
    except OSError:
        return None
