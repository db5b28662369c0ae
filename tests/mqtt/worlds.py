"""A started control connection."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from edgert.core.settings.connection import Connection
from edgert.mqtt.clients.control_plane import ControlConnection

_numbers = itertools.count()


@contextmanager
def connection(port: int, **options: Any) -> Iterator[ControlConnection]:
    settings = Connection(port=port, **options.pop("settings", {}))
    made = ControlConnection(settings, f"test-{next(_numbers)}", **options)
    made.start()
    try:
        yield made
    finally:
        made.stop()
