"""`latency` of a flow: within which time after a row's arrival its results should be out. A wish, not a guarantee: the
agent's policy `slack` serves it by the Linux scheduler."""

from __future__ import annotations

import re
from typing import Any, Final

from edgert.core.errors import Problem, show

EXPECTED: Final = "a time from 1 ms to 1 h with its unit, such as '100 ms' or '2 s'"
PATTERN: Final = r"^[0-9]{1,7}(\.[0-9]{1,3})? ?(ms|s|min)$"
_SECONDS: Final = {"ms": 0.001, "s": 1.0, "min": 60.0}


def parse(given: Any) -> tuple[float | None, list[Problem]]:
    """Seconds, None where the document says nothing; and what is wrong with it."""
    if given is None:
        return None, []
    if isinstance(given, str) and re.fullmatch(PATTERN, given, re.ASCII):
        unit = given.lstrip("0123456789. ")
        seconds = float(given.removesuffix(unit)) * _SECONDS[unit]
        if 0.001 <= seconds <= 3600.0:
            return seconds, []
    return None, [Problem("latency", EXPECTED, show(given))]
