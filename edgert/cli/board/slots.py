"""The door to a board's slots: RAUC, systemd, and the notes of updates on the data partition."""

from __future__ import annotations

import json
import re
import subprocess
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from edgert.boards.files import PUBLIC, folder, sync, write
from edgert.boards.slots import Pending, Unit, booted, pending_untrusted
from edgert.core.errors import EdgertError

COMMAND_LINE: Final = Path("/proc/cmdline")
NOTES: Final = Path("/var/edgert/update")
PENDING: Final = "pending.json"
HISTORY: Final = "history.jsonl"
HISTORY_LINES: Final = 100
IMAGE: Final = Path("/etc/edgert/image.json")
"""Description of the image: board and version."""
SERVICES: Final = ("edgert-gateway.service", "mosquitto.service", "edgert-agent.service")
LOG_LINES: Final = "30"
OWN_LOG: Final = re.compile(r"(?:\(\S+:[0-9]+\): )?\S+-(?:Message|DEBUG|INFO|WARNING|CRITICAL)(?: \*\*)?: ")
"""The beginning of a line of the update client's log. The reason of a failure has none."""
LAST_LINES: Final = 3
"""Lines of the update client's log that are told as the reason of a failure."""
PERCENT: Final = re.compile(r"\s*([0-9]{1,3})%")
NO_CLIENT: Final = "expected the update client rauc on this board, got none"
NOT_MOUNTED: Final = "Failed to load dm table"
MOUNT_TRIES: Final = 3
"""On a busy machine the block device that RAUC makes of a URL was once too small for dm-verity, for a moment. Nothing
is written then."""
MARK_TRIES: Final = 5
MARK_AGAIN_S: Final = 5.0


def slot() -> str:
    """The slot that runs. Raises `EdgertError` on a machine without slots."""
    found = booted(COMMAND_LINE.read_text())
    if not found:
        raise EdgertError("expected a board with two slots (an image of `make image`), got a machine without them")
    return found


def about() -> dict[str, Any]:
    """`board`, `version` and `updates` (the boot loader can start either slot) of the running system."""
    try:
        found = json.loads(IMAGE.read_text())
    except (OSError, ValueError):
        found = None
    return found if isinstance(found, dict) else {}


def pending() -> Pending | None:
    """The update that is not confirmed yet."""
    try:
        return pending_untrusted((NOTES / PENDING).read_text())
    except (OSError, UnicodeDecodeError):
        return None


def note(update: Pending) -> None:
    folder(NOTES)
    write(NOTES / PENDING, update.text().encode())


def forget() -> None:
    """The update is decided."""
    (NOTES / PENDING).unlink(missing_ok=True)
    if NOTES.is_dir():
        sync(NOTES)


def record(event: str, **details: Any) -> None:
    """A line in the history, on the data partition: both slots read it."""
    line = json.dumps({"time": datetime.now(UTC).isoformat(timespec="seconds"), "event": event, **details})
    folder(NOTES)
    lines = [*history_lines(), line][-HISTORY_LINES:]
    write(NOTES / HISTORY, "".join(f"{line}\n" for line in lines).encode(), PUBLIC)


def history() -> list[dict[str, Any]]:
    """The events of updates, the oldest first. A line that was damaged is left out."""
    found = []
    for line in history_lines():
        try:
            found.append(json.loads(line))
        except ValueError:
            continue
    return [event for event in found if isinstance(event, dict) and "event" in event and "time" in event]


def history_lines() -> list[str]:
    try:
        return (NOTES / HISTORY).read_text(errors="replace").splitlines()
    except OSError:
        return []


def bundle_version(source: str) -> str:
    """The version that a bundle says, after its signature was checked. Raises `EdgertError`."""
    said = _rauc("info", "--output-format=json", source)
    try:
        return str(json.loads(said[said.index("{") :])["version"])
    except (ValueError, KeyError, TypeError):
        raise EdgertError(f"{source}: expected a bundle with a version, got none") from None


def install(source: str, on_percent: Callable[[int], None]) -> None:
    """Writes a bundle to the slot that does not run, and makes it the next one; says how far it is. Raises
    `EdgertError`."""
    for attempt in range(1, MOUNT_TRIES + 1):
        status, said = _install(source, on_percent)
        if not status:
            return
        if NOT_MOUNTED not in said or attempt == MOUNT_TRIES:
            raise _failed("install", said, status)
        time.sleep(MARK_AGAIN_S)


def _install(source: str, on_percent: Callable[[int], None]) -> tuple[int, str]:
    """RAUC's exit status, and its last lines."""
    said: list[str] = []
    try:
        with subprocess.Popen(
            ["rauc", "install", source], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
        ) as process:
            assert process.stdout is not None
            for line in process.stdout:
                if found := PERCENT.match(line):
                    on_percent(min(100, int(found[1])))
                else:
                    said = [*said[1 - LAST_LINES :], line]
    except FileNotFoundError:
        raise EdgertError(NO_CLIENT) from None
    return process.returncode, "".join(said)


def mark(state: str) -> None:
    """The running slot is `good` (its attempts are given back) or `bad` (it is not started again)."""
    for _ in range(MARK_TRIES - 1):  # its service may still start: on a slow card longer than D-Bus waits
        try:
            _rauc("status", f"mark-{state}", "booted")
            return
        except EdgertError:
            time.sleep(MARK_AGAIN_S)
    _rauc("status", f"mark-{state}", "booted")


def restart() -> None:
    subprocess.run(["systemctl", "reboot"], check=True)


def units() -> list[Unit]:
    """The services that an update must not break."""
    fields = "--property=Id,ActiveState,NRestarts,Result"
    said = subprocess.run(["systemctl", "show", fields, *SERVICES], capture_output=True, text=True, check=False).stdout
    found = []
    for block in said.strip().split("\n\n"):
        values = dict(line.split("=", 1) for line in block.splitlines() if "=" in line)
        if "Id" in values:
            restarts = int(values.get("NRestarts") or 0)
            found.append(Unit(values["Id"], values.get("ActiveState", ""), restarts, values.get("Result", "")))
    return found


def end_of_log(names: Sequence[str]) -> str:
    """The end of the services' log: the journal is in memory, so it would be gone after the next start."""
    chosen = [f"--unit={name}" for name in names]
    command = ["journalctl", "--no-pager", "--output=cat", "--lines", LOG_LINES, *chosen]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout


def _rauc(*arguments: str) -> str:
    try:
        done = subprocess.run(["rauc", *arguments], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise EdgertError(NO_CLIENT) from None
    if done.returncode:
        raise _failed(arguments[0], done.stdout + done.stderr, done.returncode)
    return done.stdout


def _failed(verb: str, said: str, status: int) -> EdgertError:
    lines = [line for line in said.splitlines() if line.strip()]
    errors = [line for line in lines if not OWN_LOG.match(line)] or lines
    return EdgertError(f"rauc {verb}: {'; '.join(errors[-LAST_LINES:]) or f'status {status}'}")
