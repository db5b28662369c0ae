"""Numbers that are none, as C, Arduino, Python and Windows print them: `nan`, `-inf`, `1.#QNAN`, `ovf`."""

from __future__ import annotations

import re
from typing import Final

_SPELLED: Final = r"[-+]?(?:nan(?:\([\w]{0,32}\))?|inf(?:inity)?|ovf|1\.#(?:[qs]?nan|inf|ind)\d{0,3})"
"""`ovf` is Arduino's for a float too large to print."""
_ALONE: Final = re.compile(rf"\s*{_SPELLED}\s*", re.IGNORECASE)
_IN_JSON: Final = re.compile(rf'("(?:[^"\\]++|\\.)*+")|(?<![\w.]){_SPELLED}(?![\w.(#])', re.IGNORECASE | re.DOTALL)
TEXT_PATTERN: Final = rf"^(?!(?i:\s*{_SPELLED}\s*)$)"
"""Finds something in every text but those of `is_no_number`."""
_LONGEST: Final = 64


def is_no_number(text: str) -> bool:
    """True if the text is a failed measurement rather than a text."""
    return len(text) <= _LONGEST and _ALONE.fullmatch(text) is not None


def json_readable(text: str) -> str:
    """JSON text in which each bare token of this kind is `NaN`, which Python's parser reads; strings stay."""
    return _IN_JSON.sub(lambda found: found[1] or "NaN", text)
