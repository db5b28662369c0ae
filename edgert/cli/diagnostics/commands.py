"""Parts of the file for a bug report that may hang: bounded in time."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import TypeVar

from edgert.core.errors import EdgertError

T = TypeVar("T")


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
