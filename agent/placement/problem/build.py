"""A placement problem from raw figures: counters of each gateway's flows, and what membership knows of each board.

A *figures* document is what a gateway's control socket answers to `figures`: counters since the process started. Two
readings give rates. A *profile* is a plain dict:

    {"gateway": str, "cpu": float, "speed": float, "memory": int, "labels": [str], "bandwidth": float, "slots": int,
     "drained": bool}

`cpu` in reference cores, `speed` in reference cores per core of this board; both are needed, and memory in bytes.
Labels, bandwidth (bytes/s), slots and drained may be absent. CPU of an operator is its busy time per second × the speed
of its board, so that figures of slow and fast boards compare (FGCS 2025, section 5.2).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from agent.placement.problem.model import (
    LIMIT,
    MS_PER_S,
    CandidateBoard,
    PlacedEdge,
    PlacedOperator,
    PlacementError,
    PlacementProblem,
)
from edgert.core.errors import show
from edgert.flow.plan import uncopied

Figures = Mapping[str, Any]
BoardProfile = Mapping[str, Any]
MEMORY_BYTES: Final = 4 * 2**20
"""Memory of an instance of which the figures say nothing."""


@dataclass(frozen=True, slots=True)
class PlacementRule:
    """Limits of where an operator may run."""

    gateways: frozenset[str] = frozenset()
    labels: frozenset[str] = frozenset()


@dataclass(slots=True)
class Rates:
    """Rates from the figures of all gateways together."""

    cpu: dict[str, float] = field(default_factory=dict)
    memory: dict[str, float] = field(default_factory=dict)
    edges: dict[tuple[str, str], tuple[float, float]] = field(default_factory=dict)
    """Rows/s and bytes/s."""
    placement: dict[str, str] = field(default_factory=dict)
    inside: dict[str, list[str]] = field(default_factory=dict)
    """Operators that were fused into each instance, `FLOW/OPERATOR`."""
    plan: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Version and plan number under which each instance runs; the highest one is the current owner."""


def build(
    readings: Iterable[tuple[Figures | None, Figures]],
    profiles: Iterable[BoardProfile],
    rtt_s: Callable[[str, str], float],
    rules: Mapping[str, PlacementRule] | None = None,
    limit: float = LIMIT,
) -> tuple[PlacementProblem, dict[str, str]]:
    """The problem, and the placement that runs now.

    `readings`: an earlier and the newest figures of each gateway. Without an earlier reading, and where a counter began
    anew, costs and rates are unknown and count as 0. `rtt_s`: round trip of two gateways, measured or by coordinates;
    half of it counts as one way. `rules`: by `FLOW/OPERATOR`; an instance keeps those of all its operators. Raises
    `PlacementError` if a document lacks what the problem needs.
    """
    known = {_text(profile, "gateway", "a profile"): profile for profile in profiles}
    rates = rates_of(readings, lambda gateway: _number(known[gateway], "speed", gateway) if gateway in known else 1.0)
    boards = tuple(_board(name, profile) for name, profile in sorted(known.items()))
    names = [board.gateway for board in boards]
    delays = tuple(tuple(0.0 if a == b else rtt_s(a, b) / 2 * MS_PER_S for b in names) for a in names)
    operators = tuple(_operator(name, rates, rules or {}) for name in rates.cpu)
    edges = tuple(
        PlacedEdge(a, b, rows, size)
        for (a, b), (rows, size) in rates.edges.items()
        if a in rates.cpu and b in rates.cpu
    )
    return PlacementProblem(operators, edges, boards, delays, limit), rates.placement


def rates_of(readings: Iterable[tuple[Figures | None, Figures]], speed: Callable[[str], float]) -> Rates:
    """`speed` of a gateway's cores. Raises `PlacementError`."""
    rates = Rates()
    for before, now in readings:
        gateway = _text(now, "gateway", "figures")
        _add(rates, gateway, before, now, speed(gateway))
    return rates


def _board(name: str, profile: BoardProfile) -> CandidateBoard:
    return CandidateBoard(
        name,
        _number(profile, "cpu", name),
        _number(profile, "memory", name),
        frozenset(profile.get("labels", ())),
        float(profile.get("bandwidth", "inf")),
        int(profile.get("slots", 1)),
        bool(profile.get("drained", False)),
    )


def _operator(name: str, rates: Rates, rules: Mapping[str, PlacementRule]) -> PlacedOperator:
    gateways: frozenset[str] = frozenset()
    labels: frozenset[str] = frozenset()
    for inside in rates.inside[name]:
        if (rule := rules.get(inside)) is None:
            continue
        if gateways and rule.gateways and not gateways & rule.gateways:
            raise PlacementError(
                f"operator {name!r}: expected pins that one board can keep, got {', '.join(sorted(gateways))} and"
                f" {', '.join(sorted(rule.gateways))} of operators that are fused; pin them alike"
            )
        gateways = gateways & rule.gateways if gateways and rule.gateways else gateways | rule.gateways
        labels |= rule.labels
    return PlacedOperator(name, rates.cpu[name], rates.memory[name], gateways, labels, uncopied(name)[0])


def _add(rates: Rates, gateway: str, before: Figures | None, now: Figures, speed: float) -> None:
    """Figures of one gateway. During a move two gateways may name an instance: their costs add up."""
    for flow, told in now["flows"].items():
        earlier: Any = before["flows"].get(flow, {}) if before else {}
        plan = (told["version"], told.get("plan", 0))
        if not earlier or plan != (earlier["version"], earlier.get("plan", 0)):
            earlier = {}
        for name, instance in told["instances"].items():
            key = f"{flow}/{name}"
            was = earlier.get("instances", {}).get(name, instance)
            seconds = instance.get("at", now["monotonic"]) - was.get("at", before["monotonic"] if before else 0.0)
            busy_s = max(0.0, instance["busy_s"] - was["busy_s"]) if seconds > 0 else 0.0
            rates.cpu[key] = rates.cpu.get(key, 0.0) + (busy_s / seconds * speed if busy_s else 0.0)
            size = instance.get("memory_bytes", MEMORY_BYTES) + instance.get("queue_bytes", 0)
            rates.memory[key] = max(rates.memory.get(key, 0.0), float(size))
            rates.inside[key] = [f"{flow}/{uncopied(inside)[0]}" for inside in instance.get("operators", [name])]
            if plan >= rates.plan.get(key, plan):
                rates.plan[key], rates.placement[key] = plan, gateway
        if before and earlier:
            _add_edges(rates, flow, earlier, told, now["monotonic"] - before["monotonic"])
        else:
            for edge in told["edges"]:
                rates.edges.setdefault((f"{flow}/{edge['from']}", f"{flow}/{edge['to']}"), (0.0, 0.0))


def _add_edges(rates: Rates, flow: str, earlier: Any, told: Any, seconds: float) -> None:
    """Both ends of an edge between gateways may count it: the greater rate stands."""
    seconds = seconds if seconds > 0 else float("inf")
    was = {(e["from"], e["to"]): e for e in earlier.get("edges", ())}
    for edge in told["edges"]:
        start = was.get((edge["from"], edge["to"]), edge)
        rows, size = (max(0, edge[kind] - start[kind]) / seconds for kind in ("rows", "bytes"))
        key = f"{flow}/{edge['from']}", f"{flow}/{edge['to']}"
        known = rates.edges.get(key, (0.0, 0.0))
        rates.edges[key] = max(known[0], rows), max(known[1], size)


def _number(document: Mapping[str, Any], key: str, where: str) -> float:
    value = document.get(key)
    if not isinstance(value, int | float) or isinstance(value, bool) or not value > 0:
        raise PlacementError(f"profile of {where!r}: {key}: expected a number above 0, got {show(value)}")
    return float(value)


def _text(document: Mapping[str, Any], key: str, what: str) -> str:
    value = document.get(key)
    if not isinstance(value, str) or not value:
        raise PlacementError(f"{what}: {key}: expected a name, got {show(value)}")
    return value
