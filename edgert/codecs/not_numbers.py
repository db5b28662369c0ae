"""Numbers that are none, as C libraries, Arduino, Java, Python and Windows print them: `nan`, `-inf`, `1.#J`, `ovf`."""

from __future__ import annotations

import re
from typing import Annotated, Any, Final

import msgspec

_SPELLED: Final = (
    r"[-+]?(?:[qs]?nan[qs]?(?:\(\w{0,32}\))?|inf(?:inity)?|\u221e|ovf"
    r"|1\.(?:\$|#[a-z]{1,4}\d{0,32})(?:e[-+]\d{1,4})?)"
)
"""`ovf` is Arduino's for a float too large to print. Windows writes letters for digits, and rounds them as digits:
`1.#IND`, `1.#QNAN` and `1.#INF` become `1.#J` or `1.#R` with two decimals, and `1.$` with one."""
_ALONE: Final = re.compile(rf"\s*{_SPELLED}\s*", re.IGNORECASE)
_IN_JSON: Final = re.compile(rf'("(?:[^"\\]++|\\.)*+")|(?<![\w.]){_SPELLED}(?![\w.(#+-])', re.IGNORECASE | re.DOTALL)
TEXT: Final[Any] = Annotated[str, msgspec.Meta(pattern=rf"^(?!(?i:\s*{_SPELLED}\s*)$)")]
"""The type of every text but those of `is_no_number`."""
_LONGEST: Final = 64


def is_no_number(text: str) -> bool:
    """True if the text is a failed measurement rather than a text."""
    return len(text) <= _LONGEST and _ALONE.fullmatch(text) is not None


def json_readable(text: str) -> str:
    """JSON text in which each bare token of this kind is `NaN`, which Python's parser reads; strings stay."""
    return _IN_JSON.sub(lambda found: found[1] or "NaN", text)
