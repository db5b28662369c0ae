"""Memory of texts that are longer than most, for whoever reckons with a constant for each text."""

from __future__ import annotations

from collections.abc import Sequence
from sys import getsizeof
from typing import Any, Final

SHORT: Final = 64
"""Letters of a text that are part of such a constant."""
_TEXTS: Final = frozenset((str, bytes))


def beyond_short(key: Any) -> int:
    """Bytes by which a text, or a tuple with texts, is longer than most."""
    if type(key) is tuple:
        return sum(map(beyond_short, key))
    return getsizeof(key) if type(key) in _TEXTS and len(key) > SHORT else 0


def all_beyond_short(texts: Sequence[str]) -> int:
    """The sum of `beyond_short` over texts; quick where all are short."""
    return sum(map(beyond_short, texts)) if max(map(len, texts), default=0) > SHORT else 0
