"""Our own gateway, by the verb `figures` of its control socket.

Operators are instances. All threads of a slot's process belong to every instance in the slot: inside one process the
interpreter's lock, not the kernel, says which thread runs. Threads of the gateway daemon itself are left alone: it
takes in rows and acknowledges them for all flows.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any, Final

from agent.drivers.base import DriverError
from agent.drivers.entities import EngineReport, Operator, Query, Thread
from agent.drivers.procfs import ProcFs
from agent.drivers.recent_sums import RecentSums
from edgert.control.client import ControlClient
from edgert.core.errors import EdgertError, show

COUNTERS: Final = ("rows_in", "rows_out", "busy_s")
LEVELS: Final = {"queue_rows": "queue_size", "head_since_arrival_s": "head_age_s"}
"""Field of an instance -> metric."""


class EdgertDriver:
    """A running gateway of this board."""

    name = "edgert"

    def __init__(self, socket: str, client: ControlClient | None = None) -> None:
        self._socket, self._client, self._recent = socket, client or ControlClient(socket), RecentSums()
        self._flows: Mapping[str, Any] = {}
        """Flows of the last figures."""

    async def report(self) -> EngineReport:
        """A fresh look at the gateway."""
        figures = await self._call("figures", {})
        report = report_untrusted(figures, self._recent, owned_as(self._socket))
        self._flows = figures["flows"]
        return report

    async def weigh(self, flow: str, weights: Mapping[str, float]) -> None:
        """Set pool weights (1 is the default). The gateway weighs operators: each gets the greatest of its copies."""
        operators: dict[str, float] = {}
        instances = self._flows.get(flow, {}).get("instances", {})
        for instance, weight in weights.items():
            told = instances.get(instance)
            for operator in told.get("operators", [instance]) if told else ():
                operators[operator] = max(weight, operators.get(operator, weight))
        if operators:
            await self._call("weigh", {"flow": flow, "weights": operators})

    async def close(self) -> None:
        """End the connection."""
        await self._client.close()

    async def _call(self, verb: str, args: Mapping[str, Any]) -> Any:
        try:
            return await self._client.call(verb, args)
        except EdgertError as error:
            raise DriverError(f"gateway: {error}") from error


def owned_as(socket: str) -> Callable[[int], bool]:
    """True if a process belongs to the user who serves the socket: an unprivileged gateway cannot have the agent change
    processes of others by naming them. Raises `DriverError`."""
    try:
        owner = os.stat(socket).st_uid
    except OSError as error:
        raise DriverError(f"gateway: {socket}: {error.strerror}") from error

    return lambda pid: ProcFs().owners(pid) == {owner}


def report_untrusted(figures: Any, recent: RecentSums, owned: Callable[[int], bool]) -> EngineReport:
    """The report that the answer to `figures` gives. Raises `DriverError` for one of another form."""
    try:
        return _report(figures, recent, owned)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise DriverError(f"gateway: expected figures, got {show(figures)} ({error!r})") from error


def _report(figures: Mapping[str, Any], recent: RecentSums, owned: Callable[[int], bool]) -> EngineReport:
    threads, foreign = _threads_by_slot(figures["threads"], owned)
    operators: dict[str, Operator] = {}
    counters: dict[str, dict[str, float]] = {}
    metrics: dict[str, dict[str, float]] = {metric: {} for metric in LEVELS.values()}
    queries: dict[str, Query] = {}
    inside: set[str] = set()
    for flow, told in figures["flows"].items():
        queries[flow] = Query(flow, _positive(told.get("latency_target_s")), int(told.get("plan", 0)))
        here, elsewhere = _successors(flow, told.get("edges", ()), told["instances"])
        given = _given(told.get("edges", ()))
        for name, instance in told["instances"].items():
            slot, full = int(instance["slot"]), f"{flow}/{name}"
            if slot < 0:
                inside.add(flow)
            operators[full] = Operator(
                full, flow, instance=name, successors=tuple(here.get(name, ())), remote=tuple(elsewhere.get(name, ())),
                threads=threads.get(slot, ()), location=f"slot {slot}" if slot >= 0 else "gateway",
            )  # fmt: skip
            counters[full] = {c: float(instance[c]) for c in COUNTERS if instance.get(c) is not None}
            if name in given:
                counters[full]["rows_out"] = sum(given[name]) / len(given[name])
            for field, metric in LEVELS.items():
                if instance.get(field) is not None:
                    metrics[metric][full] = float(instance[field])
    sums = recent.look(float(figures["monotonic"]), counters)
    for counter in (*COUNTERS, "span_s"):
        metrics[counter] = {name: of[counter] for name, of in sums.items() if counter in of}
    return EngineReport("edgert", operators, queries, metrics, weighable=True, notes=_notes(inside, foreign))


def _threads_by_slot(told: Any, owned: Callable[[int], bool]) -> tuple[dict[int, tuple[Thread, ...]], list[int]]:
    """Slot -> threads of its process; and processes that are not the gateway's. Slot -1 (the daemon) is left out."""
    found: dict[int, list[Thread]] = {}
    ours: dict[int, bool] = {}
    for thread in told:
        slot, pid = int(thread["slot"]), int(thread["pid"])
        if slot >= 0 and pid > 0:
            if pid not in ours:
                ours[pid] = owned(pid)
            if ours[pid]:
                found.setdefault(slot, []).append(Thread(pid, int(thread["tid"]), int(thread["start_ticks"])))
    return {slot: tuple(of) for slot, of in found.items()}, [pid for pid, is_ours in ours.items() if not is_ours]


def _positive(told: Any) -> float | None:
    return None if told is None or not 0.0 < (value := float(told)) < float("inf") else value


def _successors(
    flow: str, edges: Any, instances: Mapping[str, Any]
) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    """Instance -> operators that it sends to on this board, and on others."""
    here: dict[str, list[str]] = {}
    elsewhere: dict[str, list[str]] = {}
    for edge in edges:
        if edge["from"] in instances:
            found = here if edge["to"] in instances else elsewhere
            found.setdefault(edge["from"], []).append(f"{flow}/{edge['to']}")
    return here, elsewhere


def _given(edges: Any) -> dict[str, list[float]]:
    """Instance -> rows over each of its edges. The rows that it gave say less: of a window that is results and
    contributions, which go to different instances, and of those with several copies each gets a part."""
    found: dict[str, list[float]] = {}
    for edge in edges:
        if edge.get("rows") is not None:
            found.setdefault(edge["from"], []).append(float(edge["rows"]))
    return found


def _notes(inside: set[str], foreign: list[int]) -> tuple[str, ...]:
    notes = []
    if inside:
        flows = ", ".join(sorted(inside))
        notes.append(f"flows with instances in the gateway daemon are not scheduled there ({flows}): set pool.slots")
    if foreign:
        notes.append(f"processes {', '.join(map(str, foreign))} do not belong to the gateway's user: left alone")
    return tuple(notes)
