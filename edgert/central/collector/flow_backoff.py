"""Flows whose own landing table cannot be used: each is left alone for a while, and others go on. Pure.

What comes for such a flow meanwhile is kept within a bound, and beyond it dropped: the gateway's outbox sends it again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from edgert.central.collector.inbox import ResultMessage

WAIT_S: Final = 0.5
WAIT_MOST_S: Final = 15.0
"""Between two tries; doubles from the first to the second while they fail."""
QUIET_S: Final = 600.0
"""A flow of which nothing came for so long waits for its table no more: its gateways have nothing for it."""
TOLD: Final = 3
"""Flows that are told of in words."""
_LONGEST: Final = 300
"""Characters of each."""
KEPT_BYTES: Final = 8 << 20
"""Most bytes of messages that are kept, over all flows."""


@dataclass(slots=True)
class _Trouble:
    why: str = ""
    wait_s: float = WAIT_S / 2
    until: float = 0.0
    rests: bool = True
    worked: bool = False
    """Since it rests no more."""
    kept: list[ResultMessage] = field(default_factory=list)


class FlowBackoff:
    """Back-off of each flow. Times are those of a clock that never goes back."""

    def __init__(self, most_bytes: int = KEPT_BYTES) -> None:
        self._most_bytes = most_bytes
        self._bytes = 0
        self._flows: dict[str, _Trouble] = {}

    def __len__(self) -> int:
        return len(self._flows)

    def __str__(self) -> str:
        told = [trouble.why[:_LONGEST] for trouble in self._flows.values()]
        more = [f"and {len(told) - TOLD} flows more"] if len(told) > TOLD else []
        return "; ".join([*told[:TOLD], *more])

    def rests(self, flow: str) -> bool:
        """True if a flow's table is not to be used now."""
        return flow in self._flows and self._flows[flow].rests

    def failed(self, flow: str, why: str, now: float) -> bool:
        """Leave a flow alone from now on, longer than the last time. Returns whether it is the first time."""
        new = flow not in self._flows
        trouble = self._flows.setdefault(flow, _Trouble())
        trouble.why, trouble.rests, trouble.worked = why, True, False
        trouble.wait_s = min(WAIT_MOST_S, 2 * trouble.wait_s)
        trouble.until = now + trouble.wait_s
        return new

    def worked(self, flow: str) -> None:
        """Its table was used, and did not fail until now."""
        if flow in self._flows:
            self._flows[flow].worked = True

    def keep(self, flow: str, message: ResultMessage) -> bool:
        """A message for a flow that rests; False: there is no room for it."""
        if self._bytes + message.size > self._most_bytes:
            return False
        self._bytes += message.size
        self._flows[flow].kept.append(message)
        return True

    def retry(self, now: float) -> list[ResultMessage]:
        """Ends the rests that were long enough; returns the messages that were kept for these flows."""
        freed: list[ResultMessage] = []
        for trouble in self._flows.values():
            if trouble.rests and trouble.until <= now:
                trouble.rests = False
                freed += trouble.kept
                trouble.kept = []
        self._bytes -= sum(message.size for message in freed)
        return freed

    def over(self, now: float) -> list[str]:
        """Forget those that were used again and did not fail, and those of which nothing comes any more; which they
        were. One that was not used is as it was."""
        mended = [
            flow
            for flow, trouble in self._flows.items()
            if not trouble.rests and (trouble.worked or now >= trouble.until + QUIET_S)
        ]
        for flow in mended:
            del self._flows[flow]
        return mended

    def forget(self, of_others: Callable[[ResultMessage], bool]) -> None:
        """Drop messages that are not ours any more."""
        for trouble in self._flows.values():
            gone = [message for message in trouble.kept if of_others(message)]
            trouble.kept = [message for message in trouble.kept if not of_others(message)]
            self._bytes -= sum(message.size for message in gone)
