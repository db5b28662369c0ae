"""Numbers as people and devices write them: `21.5`, `21,5`, `1.234,5`, `230.1 V`."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Final

_POINT: Final = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)
_COMMA: Final = re.compile(r"[+-]?(?:\d{1,3}(?:\.\d{3})+|\d+)?(?:,\d*)?(?:[eE][+-]?\d+)?", re.ASCII)
"""With points between groups of three digits."""


def spelled_number(text: str, units: Sequence[str] = (), *, comma: bool = False) -> float | None:
    """The finite number that a text spells, one of `units` behind it or none; None for any other text. `comma`: the
    decimal sign is a comma. Digits are those of ASCII."""
    bare = text.strip()
    unit = max((unit for unit in units if unit and bare.endswith(unit)), key=len, default="")
    bare = bare.removesuffix(unit).rstrip() if unit else bare
    if comma:
        found = _COMMA.fullmatch(bare) if any(map(str.isdigit, bare[:2])) or bare[:1] == "," else None
        bare = bare.replace(".", "").replace(",", ".")
    else:
        found = _POINT.fullmatch(bare)
    if found is None:
        return None
    try:
        number = float(bare)
    except ValueError:
        return None
    return number if math.isfinite(number) else None
