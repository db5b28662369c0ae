"""Replays of recorded sensor messages: lines of `<milliseconds>,<SenML object>`, as in the RIoTBench traces."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from edgert.core.errors import EdgertError, show
from edgert.core.text_files import ENCODING

_UNSAFE = re.compile(r"[^A-Za-z0-9_.-]+")


class TraceError(EdgertError):
    """The trace file cannot be read or has another layout."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """One message of a trace."""

    source: str
    record: dict[str, object]
    """The old SenML layout: `{"e": [...], "bt": milliseconds}`."""

    @property
    def topic(self) -> str:
        return f"city/{self.source}/sense"

    def payload(self, time: float | None) -> bytes:
        """The payload as recorded (`None`), or with `time` (seconds since the epoch) as its time."""
        record = self.record if time is None else {**self.record, "bt": round(time * 1000)}
        return json.dumps(record, separators=(",", ":")).encode()


def parse_line_untrusted(line: str, where: str) -> Recorded:
    """One line. Raises `TraceError` saying what was expected."""
    stamp, comma, text = line.partition(",")
    try:
        record = json.loads(text) if comma and stamp.strip().isdigit() else None
    except ValueError:
        record = None
    if not isinstance(record, dict) or not isinstance(record.get("e"), list):
        raise TraceError(f'{where}: expected <milliseconds>,{{"e":[...],"bt":...}}, got {show(line)}')
    return Recorded(_source(record["e"]), record)


def _source(entries: list[object]) -> str:
    """The device: the first text among the values (`source` in SYS, `subjectId` in FIT)."""
    for entry in entries:
        if isinstance(entry, dict) and isinstance(entry.get("sv"), str):
            return _UNSAFE.sub("-", entry["sv"]).strip("-") or "unnamed"
    return "unnamed"


def read(path: Path) -> Iterator[Recorded]:
    """The messages of a file, in order. Raises `TraceError`."""
    try:
        with path.open(encoding=ENCODING) as lines:
            for number, line in enumerate(lines, 1):
                if line.strip():
                    yield parse_line_untrusted(line.rstrip("\n"), f"{path}:{number}")
    except (OSError, UnicodeDecodeError) as problem:
        raise TraceError(f"{path}: expected a readable trace, got: {problem}") from problem
