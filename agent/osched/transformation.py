"""Transformation rules (Lachesis §5.1, Algorithm 2): logical operators → physical operators → threads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from agent.drivers.entities import Operator, Thread, Values


def logical_to_physical(priorities: Values, operators: Iterable[Operator]) -> dict[str, float]:
    """Each physical operator gets the greatest priority of the logical operators fused into it (every copy alike); one
    given for the physical operator itself counts, too."""
    found: dict[str, float] = {}
    for operator in operators:
        known = [priorities[name] for name in (operator.name, *operator.logical) if name in priorities]
        if known:
            found[operator.name] = max(known)
    return found


def physical_to_threads(priorities: Values, operators: Iterable[Operator]) -> dict[Thread, float]:
    """Each thread gets the greatest priority of the operators that it runs.

    So all threads of a slot of ours get the slot's priority: in one CPython process the lock of the interpreter, not
    the nice value of a thread, says which of them runs.
    """
    found: dict[Thread, float] = {}
    for operator in operators:
        priority = priorities.get(operator.name)
        if priority is not None:
            for thread in operator.threads:
                found[thread] = max(priority, found.get(thread, priority))
    return found


def groups_by_query(operators: Iterable[Operator], shared: str) -> dict[str, tuple[int, list[Thread]]]:
    """Group -> (number of queries in it, its threads): a group per query, and the group `shared` for threads that run
    operators of several queries (a slot of ours may)."""
    queries: dict[Thread, set[str]] = {}
    for operator in operators:
        for thread in operator.threads:
            queries.setdefault(thread, set()).add(operator.query)
    names: dict[str, set[str]] = {}
    members: dict[str, list[Thread]] = {}
    for thread, of in queries.items():
        group = next(iter(of)) if len(of) == 1 else shared
        names.setdefault(group, set()).update(of)
        members.setdefault(group, []).append(thread)
    return {group: (len(names[group]), members[group]) for group in members}


def units_of(operators: Iterable[Operator], threads: Mapping[Thread, float]) -> dict[tuple[Thread, ...], float]:
    """Threads that run the same operators, so that at most one of them is busy with rows -> the greatest priority of
    them: a slot of ours, or a subtask of another engine."""
    found: dict[tuple[Thread, ...], float] = {}
    for operator in operators:
        known = [threads[t] for t in operator.threads if t in threads]
        if known:
            found[operator.threads] = max(known)
    return found
