"""One look of a task that goes on, whatever comes of the look."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

from edgert.core.errors import EdgertError


async def guarded(look: Callable[[], Awaitable[None]], log: logging.Logger, what: str) -> None:
    """An `EdgertError` (a board that does not answer, a lease that another holds) is for the debug log: the next look
    comes. Any other exception is a fault, and is logged with its traceback and `what` could not be done."""
    try:
        await look()
    except EdgertError as error:
        log.debug("not now: %s", error)
    except Exception:
        log.exception(what)
