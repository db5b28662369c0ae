"""Waiting for a condition with a deadline: what tests do instead of sleeping."""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import Callable, Coroutine
from typing import Any

import uvloop

_POLL_S = 0.005


async def until(condition: Callable[[], object], what: str, deadline_s: float = 10.0) -> None:
    """Returns when `condition` holds; AssertionError naming `what` was awaited when it does not in time."""
    end = time.monotonic() + deadline_s
    while not condition():
        assert time.monotonic() < end, f"waited {deadline_s:g} s for {what}"
        await asyncio.sleep(_POLL_S)


def wait_until(condition: Callable[[], object], what: str, deadline_s: float = 10.0) -> None:
    """The same for tests without an event loop."""
    end = time.monotonic() + deadline_s
    while not condition():
        assert time.monotonic() < end, f"waited {deadline_s:g} s for {what}"
        time.sleep(_POLL_S)


def in_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Runs a coroutine test in an event loop of its own: uvloop, as the gateway does."""

    @functools.wraps(test)
    def run(*arguments: Any, **fixtures: Any) -> None:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(test(*arguments, **fixtures))

    return run
