"""The door to other programs of this machine, and to parts of ours that may hang: bounded in time and in bytes."""

from __future__ import annotations

import contextlib
import os
import queue
import select
import subprocess
import threading
import time
from collections.abc import Callable
from typing import Final, TypeVar

from edgert.core.errors import EdgertError

COMMAND_S: Final = 10.0
MOST_BYTES: Final = 1_000_000
READ_BYTES: Final = 65_536
ENCODING: Final = "utf-8", "surrogateescape"
T = TypeVar("T")


def output(*command: str, within_s: float = COMMAND_S) -> str:
    """The lines that a command writes, some `MOST_BYTES` at most. Raises `EdgertError` where it fails, or does not end
    in time."""
    try:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            env={**os.environ, "LC_ALL": "C"},
        )  # fmt: skip
    except OSError as error:
        raise EdgertError(f"{command[0]}: {error.strerror or error}") from error
    assert process.stdout is not None
    said, ends = b"", time.monotonic() + within_s
    try:
        while not is_full(said):
            if not select.select([process.stdout], [], [], max(0.0, ends - time.monotonic()))[0]:
                raise EdgertError(f"{command[0]}: expected an end within {within_s:g} s, got none")
            chunk = os.read(process.stdout.fileno(), READ_BYTES)
            if not chunk:
                break
            said += chunk
        if not is_full(said) and process.wait(within_s):
            last_line = text(said).strip().rpartition("\n")[2]
            raise EdgertError(f"{command[0]}: {last_line or f'status {process.returncode}'}")
        return text(said)
    finally:
        process.kill()
        process.stdout.close()
        with contextlib.suppress(subprocess.TimeoutExpired):  # the kernel may hold a process that is killed
            process.wait(1.0)


def is_full(said: bytes) -> bool:
    return len(said) >= MOST_BYTES


def text(said: bytes) -> str:
    """Returns the text of `said` without a line that may be cut: half a secret would not be found."""
    return (said[: said.rfind(b"\n") + 1] if is_full(said) else said).decode(*ENCODING)


def within(seconds: float, make: Callable[[], T]) -> T:
    """The result of `make`. Raises `EdgertError` where it fails, or hangs: its thread is left alone then."""
    made: queue.SimpleQueue[tuple[T | None, str]] = queue.SimpleQueue()

    def work() -> None:
        try:
            made.put((make(), ""))
        except Exception as error:  # noqa: BLE001 - whatever fails, the other parts are made
            made.put((None, str(error) if isinstance(error, EdgertError) else f"{type(error).__name__}: {error}"))

    threading.Thread(target=work, daemon=True).start()
    try:
        found, why = made.get(timeout=seconds)
    except queue.Empty:
        raise EdgertError(f"expected an end within {seconds:g} s, got none") from None
    if found is None:
        raise EdgertError(why)
    return found
