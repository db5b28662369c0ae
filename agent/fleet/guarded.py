"""Work whose errors mean something else than that it is not done: a task looks again, another board ends it."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

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


@contextmanager
def lasting(what: str, before: str = "") -> Iterator[None]:
    """Work that may be done later though it fails, as boards may remember that it was begun. The error, after
    `before`, says so."""
    try:
        yield
    except EdgertError as error:
        raise EdgertError(f"{before}{error}. The {what} may still be done later: boards may remember it") from error
