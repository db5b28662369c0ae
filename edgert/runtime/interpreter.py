"""How soon a thread that wants the interpreter gets it, where milliseconds count."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def switching(seconds: float) -> Iterator[None]:
    """Meanwhile who runs gives way to another thread after so long (5 ms by default). For one thread at a time."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(seconds)
    try:
        yield
    finally:
        sys.setswitchinterval(before)
