"""The door to what other programs say: bounded in time and in bytes, and given up when the reader ends."""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import time
from collections.abc import Callable
from typing import Final

from edgert.core.errors import EdgertError

COMMAND_S: Final = 10.0
MOST_BYTES: Final = 1_000_000
READ_BYTES: Final = 65_536
LOOK_S: Final = 0.25
"""A reader that ends is noticed within this time."""
ENCODING: Final = "utf-8", "surrogateescape"


def never() -> bool:
    """Gives nothing up."""
    return False


def read(file: int, within_s: float, most_bytes: int, given_up: Callable[[], bool] = never) -> bytes:
    """The bytes of a pipe or socket up to its end, or some more than `most_bytes` of them. Raises `TimeoutError` where
    that takes longer, also in small steps, and where `given_up` becomes true. Raises `OSError`."""
    said, ends = bytearray(), time.monotonic() + within_s
    while len(said) <= most_bytes:
        left = ends - time.monotonic()
        if left <= 0.0 or given_up():
            raise TimeoutError(f"expected an end within {within_s:g} s, got none")
        if select.select([file], [], [], min(left, LOOK_S))[0]:
            chunk = os.read(file, READ_BYTES)
            if not chunk:
                break
            said += chunk
    return bytes(said)


def output(
    *command: str, within_s: float = COMMAND_S, most_bytes: int = 0, given_up: Callable[[], bool] = never
) -> str:
    """The lines that a command writes, some `most_bytes` at most (0: `MOST_BYTES`). Raises `EdgertError` where it
    fails, or does not end in time."""
    most_bytes = most_bytes or MOST_BYTES
    try:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            env={**os.environ, "LC_ALL": "C"},
        )  # fmt: skip
    except OSError as error:
        raise EdgertError(f"{command[0]}: {error.strerror or error}") from error
    assert process.stdout is not None
    try:
        said = read(process.stdout.fileno(), within_s, most_bytes, given_up)
        if len(said) <= most_bytes and process.wait(within_s):
            last_line = text(said, most_bytes).strip().rpartition("\n")[2]
            raise EdgertError(f"{command[0]}: {last_line or f'status {process.returncode}'}")
        return text(said, most_bytes)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise EdgertError(f"{command[0]}: {error}") from error
    finally:
        process.kill()
        process.stdout.close()
        with contextlib.suppress(subprocess.TimeoutExpired):  # the kernel may hold a process that is killed
            process.wait(1.0)


def text(said: bytes, most_bytes: int = 0) -> str:
    """Returns the text of `said`. Where that is `most_bytes` or more (0: `MOST_BYTES`), a last line that may be cut is
    left out: half a secret would not be found."""
    return (said[: said.rfind(b"\n") + 1] if len(said) >= (most_bytes or MOST_BYTES) else said).decode(*ENCODING)
