"""Waiting for a condition with a deadline: what tests do instead of sleeping.

A deadline says when a test has failed, not how fast anything has to be: what benchmarks measure is no test's business.
So it is long. Tests run two at a time, beside Spark and browsers, and the slowest machine counts.
"""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import Callable, Coroutine
from typing import Any

import uvloop

DEADLINE_S = 60.0
_POLL_S = 0.005
_LONGEST = 10


async def until(condition: Callable[[], object], what: str, deadline_s: float = DEADLINE_S) -> None:
    """Returns when `condition` holds; AssertionError naming `what` was awaited when it does not in time."""
    end = time.monotonic() + deadline_s
    while not condition():
        assert time.monotonic() < end, f"waited {deadline_s:g} s for {what}"
        await asyncio.sleep(_POLL_S)


def wait_until(
    condition: Callable[[], object],
    what: str,
    deadline_s: float = DEADLINE_S,
    progress: Callable[[], object] | None = None,
    poll_s: float = _POLL_S,
) -> None:
    """The same for tests without an event loop. While `progress` has changed at each deadline the wait goes on, so that
    a busy machine is waited for and what stands still is not; up to `_LONGEST` deadlines."""
    started = time.monotonic()
    end, last = started + deadline_s, started + (_LONGEST * deadline_s if progress else 0.0)
    seen = progress() if progress else None
    while not condition():
        now = time.monotonic()
        if now >= end:
            shown = progress() if progress else None
            moves = shown != seen and now < last
            assert moves, f"waited {now - started:.0f} s for {what}" + (f"; progress: {shown}" if progress else "")
            seen, end = shown, now + deadline_s
        time.sleep(poll_s)


def in_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Runs a coroutine test in an event loop of its own: uvloop, as the gateway does."""

    @functools.wraps(test)
    def run(*arguments: Any, **fixtures: Any) -> None:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(test(*arguments, **fixtures))

    return run
