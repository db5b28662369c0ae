"""Text that an MQTT packet may carry (MQTT 5, section 1.5.4).

The standard forbids NUL and surrogates, and lets a broker hang up at control characters and non-characters. Mosquitto
does. A packet that is sent again after each hang-up would never let another one through, so none of them is sent.
"""

from __future__ import annotations

import re
from typing import Final

_PLANES: Final = "".join(f"{chr(plane << 16 | 0xFFFE)}-{chr(plane << 16 | 0xFFFF)}" for plane in range(17))
_UNFIT: Final = re.compile(f"[\\x00-\\x1f\\x7f-\\x9f\\ud800-\\udfff\\ufdd0-\\ufdef{_PLANES}]")
UNFIT: Final = "control characters, non-characters and half surrogate pairs"
"""The characters that `fits` refuses, for errors."""


def fits(text: str) -> bool:
    """True if every broker takes this text in a packet."""
    return (text.isascii() and text.isprintable()) or _UNFIT.search(text) is None


def fitting(text: str) -> str:
    """The text, with U+FFFD in place of each character that does not fit."""
    return text if fits(text) else _UNFIT.sub("\ufffd", text)
