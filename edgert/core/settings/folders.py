"""Folders of data and of sockets where no setting names one."""

from __future__ import annotations

from collections.abc import Mapping


def data_folder(env: Mapping[str, str], root: bool) -> str:
    """Where data lies when no setting says so: what systemd gave us, /var/lib/edgert for root, else the XDG folder."""
    given = env.get("STATE_DIRECTORY", "").split(":")[0]
    if given or root:
        return given or "/var/lib/edgert"
    return (env.get("XDG_STATE_HOME") or f"{env.get('HOME', '')}/.local/state") + "/edgert"


def runtime_folder(env: Mapping[str, str], root: bool) -> str:
    """Where sockets lie: what systemd gave us, /run/edgert for root, else the XDG folder; empty where there is none."""
    given = env.get("RUNTIME_DIRECTORY", "").split(":")[0]
    if given or root:
        return given or "/run/edgert"
    user = env.get("XDG_RUNTIME_DIR", "")
    return f"{user}/edgert" if user else ""


def socket_folder(data_dir: str, env: Mapping[str, str], root: bool) -> str:
    """Where the sockets of a program with this setting `gateway.data_dir` lie."""
    own = data_dir if not env.get("RUNTIME_DIRECTORY") else ""
    return own or runtime_folder(env, root) or data_folder(env, root)
