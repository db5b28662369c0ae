"""A driver's report: queries, operators and the threads that run them (Lachesis §3), with raw metrics."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from edgert.core.errors import EdgertError

Values = Mapping[str, float]
"""A metric: name of an operator -> value. An operator for which the value is unknown is absent."""


class EntityError(EdgertError):
    """The structure that a driver reports contradicts itself; the message names the driver and the operator."""


class Thread(NamedTuple):
    """A thread of the kernel. Thread ids are reused; the start time tells two threads of one id apart."""

    pid: int
    tid: int
    start_ticks: int
    """Start in clock ticks after the boot: field 22 of /proc/<pid>/task/<tid>/stat."""


@dataclass(frozen=True, slots=True)
class Operator:
    """A physical operator: one copy of one or more logical operators, run by `threads`."""

    name: str
    """Unique in the driver's report."""
    query: str
    logical: tuple[str, ...] = ()
    """Names under which priorities may be given for it beside its own; several if logical operators were fused."""
    instance: str = ""
    """Its name in its query; empty where the engine has no other name for it."""
    successors: tuple[str, ...] = ()
    remote: tuple[str, ...] = ()
    """Successors that run on other boards; they are not in the report."""
    threads: tuple[Thread, ...] = ()
    location: str = ""
    """Slot that runs it, or the process of another engine, for people."""


@dataclass(frozen=True, slots=True)
class Query:
    """A query of an engine; a flow, in edgert."""

    name: str
    latency_s: float | None = None
    """Longest time from a row's arrival to its result that the user wants; None: no such wish."""
    plan: int = 0
    """Number of its plan, where its operators are divided among boards: figures of two plans do not go together."""


@dataclass(frozen=True, slots=True)
class EngineReport:
    """One look at one engine. `metrics` holds what the driver provides by itself."""

    driver: str
    operators: Mapping[str, Operator] = field(default_factory=dict)
    queries: Mapping[str, Query] = field(default_factory=dict)
    metrics: Mapping[str, Values] = field(default_factory=dict)
    weighable: bool = False
    """The engine takes pool weights of its instances."""
    notes: tuple[str, ...] = ()
    """Threads and metrics that the driver could not attribute or measure, for `sched status`."""


def downstream_first(driver: str, operators: Mapping[str, Operator]) -> list[Operator]:
    """All operators, each after all of its successors.

    Raises `EntityError` if a successor is unknown or the operators form a cycle.
    """
    ordered: list[Operator] = []
    done: set[str] = set()
    for first in operators:
        stack: list[tuple[str, int]] = [(first, 0)] if first not in done else []
        open_names = {first}
        while stack:
            name, following = stack.pop()
            operator = operators[name]
            if following < len(operator.successors):
                stack.append((name, following + 1))
                successor = operator.successors[following]
                if successor not in operators:
                    raise EntityError(
                        f"driver {driver}: expected successors of {name} among its operators, got {successor}"
                    )
                if successor in open_names:
                    raise EntityError(f"driver {driver}: expected a graph without cycles, got one through {successor}")
                if successor not in done:
                    open_names.add(successor)
                    stack.append((successor, 0))
            else:
                open_names.discard(name)
                done.add(name)
                ordered.append(operator)
    return ordered


def predecessors(operators: Iterable[Operator]) -> dict[str, list[str]]:
    """Name of an operator -> names of those that send to it."""
    found: dict[str, list[str]] = {}
    for operator in operators:
        found.setdefault(operator.name, [])
        for successor in operator.successors:
            found.setdefault(successor, []).append(operator.name)
    return found
