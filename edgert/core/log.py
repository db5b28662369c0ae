"""How our programs log: calm, one line per event, to standard error.

Under systemd the journal adds time and program itself, and reads a leading `<n>` as the line's priority
(sd-daemon(3)); on a terminal the line carries the time of day instead.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping
from typing import Final, TextIO

LEVELS: Final = ("debug", "info", "warning", "error")
# Syslog's priorities: 3 error, 4 warning, 6 informational, 7 debug.
_PRIORITIES: Final = ((logging.ERROR, 3), (logging.WARNING, 4), (logging.INFO, 6))


class OneLine(logging.Formatter):
    """One event, one line: line breaks are shown as ⏎, whatever a message or a traceback holds."""

    def __init__(self, journal: bool) -> None:
        time = "" if journal else "%(asctime)s "
        super().__init__(f"{time}%(levelname)s %(name)s: %(message)s", datefmt="%H:%M:%S")
        self._journal = journal

    def format(self, record: logging.LogRecord) -> str:
        line = super().format(record).replace("\r\n", "\n").replace("\n", " ⏎ ")
        return f"<{_priority(record.levelno)}>{line}" if self._journal else line


def _priority(level: int) -> int:
    return next((priority for bound, priority in _PRIORITIES if level >= bound), 7)


def set_up(level: str = "info", *, stream: TextIO | None = None, env: Mapping[str, str] | None = None) -> None:
    """Send every logger's lines of `level` (one of `LEVELS`) and above to `stream`, default standard error.

    `env` is the process's environment: with JOURNAL_STREAM in it (set by systemd) lines take the journal's form.
    A second call replaces the first. Libraries that tell much at `info` are held at `warning`, unless `level` is debug.
    """
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(OneLine(journal="JOURNAL_STREAM" in (env or {})))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    for talkative in ("amqtt", "asyncio", "py4j", "transitions", "uvicorn"):
        logging.getLogger(talkative).setLevel(logging.DEBUG if level == "debug" else logging.WARNING)
