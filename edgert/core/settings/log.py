"""Settings of the log."""

from __future__ import annotations

from dataclasses import dataclass

from edgert.core.config import setting
from edgert.core.log import LEVELS


@dataclass(frozen=True, slots=True)
class Log:
    """The log on standard error."""

    level: str = setting("info", doc="least level that is told", choices=LEVELS)
