"""Terms of other boards, and the times at which this board tells its own. Times are arguments, in monotonic seconds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from agent.drivers.entities import EngineReport
from agent.osched.cooperation.shared import completed, divided, own_terms, sharing
from agent.osched.cooperation.terms import BoardTerms, differ, pack, unpack_untrusted
from edgert.core.errors import ProtocolError

LEAST_S: Final = 2.0
"""Shortest time between two changes of what is told, in a small fleet."""
PER_MEMBER_S: Final = 0.1
"""In a large one: so much per member, so that the fleet is not busy with it."""
AGAIN_S: Final = 20.0
"""Seconds after which terms that change little are told again."""
CHANGED: Final = 1.25
"""Factor by which a number must change to be told before `AGAIN_S`: one step of nice."""


class Peers(Protocol):
    """The other agents of the fleet."""

    def told(self) -> Mapping[str, bytes]:
        """Board that is not held for dead -> what it told last."""
        ...

    def members(self) -> int:
        """Size of the fleet."""
        ...

    def tell(self, payload: bytes) -> None:
        """Tell all of them; an empty payload takes back what was told."""
        ...


@dataclass(slots=True)
class _Heard:
    payload: bytes
    at_s: float
    terms: BoardTerms | None


class Cooperation:
    """This board's part of the exchange."""

    def __init__(self) -> None:
        self.boards: list[str] = []
        """Boards that share flows with this one, at the last look."""
        self.errors: dict[str, str] = {}
        """Board -> why what it told counts for nothing."""
        self.told: BoardTerms | None = None
        self.told_bytes = 0
        self.left_out = 0
        """Flows for which a packet had no room."""
        self._told_s = float("-inf")
        self._heard: dict[str, _Heard] = {}

    def hear(self, payloads: Mapping[str, bytes], now: float) -> None:
        """Take in what the boards that are not held for dead told last."""
        heard = {}
        for name, payload in payloads.items():
            before = self._heard.get(name)
            if before is not None and before.payload == payload:
                heard[name] = before
            elif payload:
                heard[name] = _Heard(payload, now, self._read_untrusted(name, payload))
        self._heard = heard
        for name in self.errors.keys() - heard.keys():
            del self.errors[name]

    def _read_untrusted(self, name: str, payload: bytes) -> BoardTerms | None:
        self.errors.pop(name, None)
        try:
            return unpack_untrusted(payload)
        except ProtocolError as error:
            self.errors[name] = f"{name}: {error}"
            return None

    @property
    def others(self) -> dict[str, BoardTerms]:
        """Board -> its terms."""
        return {name: one.terms for name, one in self._heard.items() if one.terms is not None}

    def completed(self, reports: Sequence[EngineReport]) -> list[EngineReport]:
        """The reports with what other boards told of the flows in them."""
        others = self.others
        flows = {flow for report in reports for flow in divided(report, others.values())}
        self.boards = sharing(flows, others)
        return [completed(report, others.values()) for report in reports] if others else list(reports)

    def span(self, policy: str) -> tuple[float, ...]:
        """Least and greatest priority on the boards of `boards` that have the same policy in force; empty if none."""
        others = self.others
        terms = [others[name] for name in self.boards if name in others]
        spans = [t.span for t in terms if t.policy == policy and t.span is not None]
        return (min(low for low, _ in spans), max(high for _, high in spans)) if spans else ()

    def news(
        self, reports: Sequence[EngineReport], policy: str, span: tuple[float, float] | None, members: int, now: float
    ) -> bytes | None:
        """The terms to tell now; None: none. `reports` as the drivers made them; `members`: of the fleet."""
        if now - self._told_s < max(LEAST_S, PER_MEMBER_S * members):
            return None
        others = self.others.values()
        all_terms = [own_terms(completed(report, others), policy, span, others) for report in reports]
        terms = BoardTerms(policy, span, {name: flow for t in all_terms for name, flow in t.flows.items()})
        old = self.told is not None and now - self._told_s >= AGAIN_S
        if self.told is not None and not old and not differ(terms, self.told, CHANGED):
            return None
        self.told, self._told_s = terms, now
        if not terms.flows:
            self.told_bytes, self.left_out = 0, 0
            return b""
        payload, self.left_out = pack(terms)
        self.told_bytes = len(payload)
        return payload

    def silent(self) -> bool:
        """Forget what was told; whether there was something to take back."""
        was, self.told, self.told_bytes = bool(self.told and self.told.flows), None, 0
        self._told_s = float("-inf")
        return was

    def plain(self, policy: str, now: float) -> dict[str, Any]:
        """For `sched.status`."""
        boards = {
            name: {
                "policy": one.terms.policy,
                "span": one.terms.span,
                "shares": name in self.boards,
                "flows": sorted(one.terms.flows),
                "age_s": round(now - one.at_s, 1),
            }
            for name, one in sorted(self._heard.items())
            if one.terms is not None
        }
        return {
            "boards": boards, "span": list(self.span(policy)), "told_bytes": self.told_bytes,
            "left_out": self.left_out, "flows": sorted(self.told.flows) if self.told else [],
        }  # fmt: skip
