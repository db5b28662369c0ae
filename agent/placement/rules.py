"""The rules of a flow's placement, as people gave them: pins, labels that operators need, and who places the rest.

The flow's coordinator writes them to every gateway that has a part of the flow, before it does what they say; so the
next coordinator finds them there.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from agent.placement.heuristics.registry import HEURISTICS
from agent.placement.problem.build import PlacementRule
from edgert.core.errors import EdgertError, show
from edgert.flow.plan import uncopied

Takers = Mapping[str, frozenset[str]]
"""Boards that take operators -> their labels."""


@dataclass(frozen=True, slots=True)
class Rules:
    """Rules of one flow. Operators by name, or copies of one (`minute#2`)."""

    pins: Mapping[str, str] = field(default_factory=dict)
    """Operator -> the gateway that it stays on."""
    labels: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Operator -> labels (`NAME=VALUE`) that its board must have."""
    heuristic: str = ""
    """The heuristic that places the flow anew when that pays; empty: none does, and crowded boards hand over what has
    neither pins nor labels."""

    @classmethod
    def untrusted(cls, plain: Any) -> Rules:
        """Reads what `plain` made, or a request. Raises `EdgertError`."""
        if not isinstance(plain, Mapping):
            raise EdgertError(f"rules: expected a map, got {show(plain)}")
        pins, labels, heuristic = plain.get("pins", {}), plain.get("labels", {}), plain.get("heuristic", "")
        if not isinstance(pins, Mapping) or not all(isinstance(text, str) for pin in pins.items() for text in pin):
            raise EdgertError(f"pins: expected {{operator: gateway}}, got {show(pins)}")
        lists = labels.values() if isinstance(labels, Mapping) else [None]
        if not all(isinstance(one, list | tuple) and all(isinstance(text, str) for text in one) for one in lists):
            raise EdgertError(f"labels: expected {{operator: [NAME=VALUE]}}, got {show(labels)}")
        if heuristic not in ("", *HEURISTICS):
            raise EdgertError(f"heuristic: expected one of {', '.join(HEURISTICS)}, or none, got {show(heuristic)}")
        return cls(dict(pins), {operator: frozenset(one) for operator, one in labels.items()}, heuristic)

    def plain(self) -> dict[str, Any]:
        """Returns the rules as MessagePack types."""
        labels = {operator: sorted(one) for operator, one in self.labels.items()}
        return {"pins": dict(self.pins), "labels": labels, "heuristic": self.heuristic}

    def pinned(self, moves: Mapping[str, str]) -> Rules:
        """With the operators of `moves` pinned to where they go."""
        return replace(self, pins={**self.pins, **moves})

    def unpinned(self, operators: Collection[str]) -> Rules:
        """Without the pins of these operators. Raises `EdgertError` where one has none."""
        if unknown := sorted(set(operators) - self.pins.keys()):
            pinned = ", ".join(sorted(self.pins)) or "none"
            raise EdgertError(
                f"unpin: expected operators or copies that are pinned, {pinned}, got {', '.join(unknown)}"
            )
        return replace(self, pins={name: at for name, at in self.pins.items() if name not in operators})

    def check(self, operators: Collection[str]) -> None:
        """Raises `EdgertError` where a rule is about an operator that the flow has not."""
        common = {uncopied(name)[0] for name in operators}
        for name in (*self.pins, *self.labels):
            if name not in operators and name not in common:
                raise EdgertError(f"expected an operator, one of {', '.join(sorted(operators))}, got {show(name)}")

    def pin_of(self, copy: str) -> str | None:
        """The gateway to which an operator copy is pinned."""
        return self.pins.get(copy, self.pins.get(uncopied(copy)[0]))

    def labels_of(self, copy: str) -> frozenset[str]:
        """Labels that the board of an operator copy must have."""
        return self.labels.get(copy, frozenset()) | self.labels.get(uncopied(copy)[0], frozenset())

    def handed_over(self, copy: str) -> bool:
        """True if a crowded board may hand an operator copy over by itself. Not where a heuristic places the flow: two
        that decide would undo each other's moves."""
        return not (self.heuristic or self.pin_of(copy) is not None or self.labels_of(copy))

    def held_back(self, on: Collection[str], takers: Takers) -> list[str]:
        """The copies of `on` that stay where they are, as no board that takes operators may run them: the one that they
        are pinned to, or all with their labels, are drained or away."""
        return [copy for copy in on if not self._has_board(copy, takers)]

    def _has_board(self, copy: str, takers: Takers) -> bool:
        pin, needed = self.pin_of(copy), self.labels_of(copy)
        return any(pin in (None, gateway) and needed <= has for gateway, has in takers.items())

    def for_problem(self, flow: str, takers: Takers) -> dict[str, PlacementRule]:
        """The rules in the form that `agent.placement.problem.build` takes. Pins of single copies are not among them:
        such a copy is kept where it is; nor is what no board can obey now (`held_back`)."""
        names = {n for n in (*self.pins, *self.labels) if not uncopied(n)[1] and self._has_board(n, takers)}
        return {
            f"{flow}/{name}": PlacementRule(
                frozenset({self.pins[name]} if name in self.pins else ()), self.labels_of(name)
            )
            for name in names
        }

    def kept_copies(self) -> list[str]:
        """Copies with a pin of their own."""
        return [name for name in self.pins if uncopied(name)[1]]


def newest(parts: Collection[Mapping[str, Any]]) -> Rules:
    """The rules that the coordinator with the greatest fencing number wrote; `parts` as `part.status` says them."""
    last = max(parts, key=lambda part: int(part.get("rules_fence", 0)), default={})
    return Rules.untrusted(last.get("rules") or {})
