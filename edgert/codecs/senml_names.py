"""Names in SenML (RFC 8428, section 4.5.1): A-Z a-z 0-9 - : . / _, beginning with a letter or a digit."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

NAME: Final = re.compile(r"[A-Za-z0-9][-A-Za-z0-9:./_]*")
_FORBIDDEN: Final = re.compile(r"[^-A-Za-z0-9:./_]")
SEPARATORS: Final = (":", "/", ".")


MAX_LENGTH: Final = 256
"""Longer names are refused, so that remembering names costs little memory."""


def is_legal(name: str) -> bool:
    """True if `name`, base name included, is a SenML name."""
    return len(name) <= MAX_LENGTH and _matches(name)


@lru_cache(4096)
def _matches(name: str) -> bool:
    return NAME.fullmatch(name) is not None


def legal(name: str) -> str:
    """`name` with what SenML forbids replaced by `_`, and an `x` before a first character that must not stand there."""
    return _legal(name) if len(name) <= MAX_LENGTH else _legal.__wrapped__(name)


@lru_cache(4096)
def _legal(name: str) -> str:
    name = _FORBIDDEN.sub("_", name)
    return name if name[:1].isalnum() else f"x{name}"


def source_of_base(base_name: str) -> str:
    """The device that a base name stands for: it without the one separator that it ends with."""
    return base_name[:-1] if base_name.endswith(SEPARATORS) else base_name
