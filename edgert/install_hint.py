"""How the extras are installed into this very environment: a command that works as pasted, from any folder."""

from __future__ import annotations

import json
import os
import shlex
import sys
from importlib.metadata import PackageNotFoundError, distribution
from importlib.util import find_spec
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

NAME: Final = "edgert"
EXTRAS: Final = {
    **dict.fromkeys(("delta", "deltalake", "google", "numpy", "pandas", "pyarrow", "pyspark"), "central"),
    **dict.fromkeys(("amqtt", "rich"), "demo"),
    **dict.fromkeys(("cryptography", "pyroute2", "zeroconf"), "agent"),
    "datasketches": "sketches",
}
"""Top-level module -> the extra that brings it."""


def missing(error: ModuleNotFoundError) -> str | None:
    """For a command that could not import a module: which, and what to do. None if no extra brings it."""
    extra = EXTRAS.get((error.name or "").partition(".")[0])
    return None if extra is None else f"{error.name} is not installed; install it with: {command(extra)}"


def lacking(extra: str) -> str | None:
    """For a program that needs all of an extra: the modules that are not here, and what to do. None if all are."""
    absent = [module for module, brought_by in EXTRAS.items() if brought_by == extra and find_spec(module) is None]
    return f"not installed: {', '.join(absent)}; install with: {command(extra)}" if absent else None


def command(extra: str) -> str:
    """A line for a shell. No index has edgert, so the package comes from where this one came from."""
    python = shlex.quote(sys.executable or "python3")
    pip = f"{python} -m pip install" if find_spec("pip") else f"uv pip install --python {python}"
    sudo = "" if os.access(sys.prefix, os.W_OK) else "sudo "
    folder = "" if _origin() else "  # in the folder of edgert's source"
    return f"{sudo}{pip} {shlex.quote(requirement(extra))}{folder}"


def requirement(extra: str) -> str:
    """The requirement for pip."""
    origin = _origin()
    if origin is None:
        return f".[{extra}]"
    if origin.startswith("/") and not origin.endswith((".whl", ".tar.gz", ".zip")):
        return f"{origin}[{extra}]"
    where = f"file://{origin}" if origin.startswith("/") else origin
    return f"{NAME}[{extra}] @ {where}"


def _origin() -> str | None:
    """The folder or archive that this package was installed from, or its address; the folder of a source tree. None if
    that is not there any more."""
    tree = Path(__file__).resolve().parents[1]
    if (tree / "pyproject.toml").is_file():
        return str(tree)
    try:
        told = json.loads(distribution(NAME).read_text("direct_url.json") or "{}")
    except (PackageNotFoundError, ValueError, OSError):
        return None
    url = str(told.get("url", "")) if isinstance(told, dict) else ""
    if not url.startswith("file:"):
        vcs = told.get("vcs_info", {}) if isinstance(told, dict) else {}
        return f"{vcs['vcs']}+{url}" if url and isinstance(vcs, dict) and "vcs" in vcs else url or None
    path = unquote(urlsplit(url).path)
    return path if Path(path).exists() else None
