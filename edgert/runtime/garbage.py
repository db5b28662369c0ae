"""The collector of garbage, in processes that hold the state of flows.

Left alone it looks at everything that lives whenever a quarter has been added to it. State is what lives, and is no
garbage: with 100,000 keys such a look stops the process for 40 ms and more, and a restart pays for a dozen of them.
What is young is looked at as ever; what is old, seldom.
"""

from __future__ import annotations

import gc
from typing import Final

EVERY_S: Final = 600.0
NEVER: Final = 1_000_000_000


class Garbage:
    """To be made once what lives until the end is there."""

    def __init__(self, now: float) -> None:
        gc.collect()
        gc.freeze()
        young, middle, _ = gc.get_threshold()
        gc.set_threshold(young, middle, NEVER)
        self._next = now + EVERY_S

    def look(self, now: float) -> None:
        """To be called about every second."""
        if now >= self._next:
            self._next = now + EVERY_S
            gc.collect()
