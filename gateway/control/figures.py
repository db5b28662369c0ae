"""Raw figures of the whole gateway, read when somebody asks: see `figures` for their structure.

{"gateway": "g1", "wall": 1700000000.0, "monotonic": 512.3, "cpu_count": 4,
 "flows": {"air": {
    "version": 3, "plan": 0, "delivery": "exactly-once", "latency_s": 0.004, "latency_target_s": 0.1,
    "instances": {"readings": {
        "slot": -1, "pid": 812, "operators": ["readings"], "kind": "source", "weight": 1.0, "rows_in": 100,
        "rows_out": 98, "turns": 12, "busy_s": 0.01, "queued_s": 0.0, "scheduling_s": 0.001, "idle_s": 60.2,
        "queue_rows": 0, "queue_bytes": 0, "head_age_s": 0.0, "at": 512.3,
        "head_since_arrival_s": 0.0}},
    "edges": [{"from": "readings", "to": "minute", "rows": 98, "bytes": 60000}]}},
 "threads": [{"pid": 812, "tid": 812, "slot": -1, "role": "loop", "cpu_s": 1.5, "start_ticks": 91723}]}
"""

from __future__ import annotations

import heapq
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from edgert.core.clock import Clock
from edgert.flow.plan import DAEMON
from edgert.runtime.flow_run import FlowRun
from edgert.runtime.instance.figures import COUNTERS, GAUGES, RawFigures, mean_latency_s
from edgert.runtime.threads import roles, threads_of
from gateway.hosts.host import Host
from gateway.registry.registry import FlowRegistry

MOST_EDGES: Final = 10_000
"""Edges of a flow that are told: 64 copies that feed 64 others have 4,096 between them."""


def figures(gateway: str, flow_registry: FlowRegistry, host: Host, clock: Clock) -> dict[str, Any]:
    """Counters since the start of the process (of a flow: of its version and plan), times in seconds, slot -1 for the
    gateway's own process. What is not known is absent. Figures of slots are up to a second old: `at` says when they
    were read, on the monotonic clock that all processes of a board share."""
    slots = host.figures.processes()
    pids = {DAEMON: os.getpid(), **{slot: pid for slot, (pid, _) in slots.items()}}
    return {
        "gateway": gateway,
        "wall": clock.wall(),
        "monotonic": clock.monotonic(),
        "cpu_count": os.cpu_count() or 1,
        "flows": {run.flow.name: _flow(host, run, pids) for run in list(flow_registry.runs.values())},
        "threads": [
            *threads_of(os.getpid(), DAEMON, roles("loop")),
            *(thread for slot, (pid, known) in slots.items() for thread in threads_of(pid, slot, known)),
        ],
    }


def flows(flow_registry: FlowRegistry, host: Host, conditions: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Each flow in a line: name, version, delivery, rows in and out, the slots that it runs in; its condition is that
    of the status."""
    listed = [
        {
            "name": run.flow.name,
            "version": run.version,
            "condition": conditions[run.flow.name],
            "delivery": run.flow.delivery,
            "instances": len(run.all),
            "slots": sorted({slot for slot in host.figures.where(run) if slot is not None}),
            **_in_and_out(run, host.figures.of(run)),
        }
        for run in list(flow_registry.runs.values())
    ]
    failed = [{"name": name, "condition": conditions[name], "slots": []} for name in flow_registry.failed]
    return [*listed, *failed]


def _in_and_out(run: FlowRun, found: Sequence[RawFigures]) -> dict[str, Any]:
    """Messages that the sources took, and rows that came to the end of the flow."""
    sources = (one for one, instance in zip(found, run.all, strict=True) if instance.kind == "source")
    return {
        "rows_in": sum(one.counters[0] for one in sources),
        "rows_out": sum(one.left[0] for one in found),
        "latency_s": mean_latency_s(found),
    }


def _flow(host: Host, run: FlowRun, pids: Mapping[int, int]) -> dict[str, Any]:
    found, where = host.figures.of(run), host.figures.where(run)
    target = {} if run.flow.latency_s is None else {"latency_target_s": run.flow.latency_s}
    return {
        "version": run.version,
        "plan": run.plan.number,
        "delivery": run.flow.delivery,
        "latency_s": mean_latency_s(found),
        **target,
        "instances": dict(_instances(run, found, where, pids, host.weights.of(run))),
        **_edges(run, found, where),
    }


def _edges(run: FlowRun, found: Sequence[RawFigures], where: Sequence[int | None]) -> dict[str, Any]:
    """The edges from instances on this gateway; of very many those with most rows, and the number of the others."""
    gone = [
        (rows, size, instance.name, to)
        for instance, one, slot in zip(run.all, found, where, strict=True)
        if slot is not None
        for to, (rows, size) in one.sent.items()
    ]
    told = gone if len(gone) <= MOST_EDGES else heapq.nlargest(MOST_EDGES, gone)
    edges = [{"from": giver, "to": taker, "rows": rows, "bytes": size} for rows, size, giver, taker in told]
    left_out = {"edges_left_out": len(gone) - len(told)} if len(gone) > len(told) else {}
    return {"edges": edges, **left_out}


def _instances(
    run: FlowRun,
    found: Sequence[RawFigures],
    where: Sequence[int | None],
    pids: Mapping[int, int],
    weights: Mapping[str, float],
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Figures of the instances on this gateway."""
    for instance, one, slot in zip(run.all, found, where, strict=True):
        if slot is None:
            continue
        plain: dict[str, Any] = {"slot": slot, "operators": instance.operators, "kind": instance.kind}
        plain["weight"] = weights.get(instance.name, 1.0)
        if slot in pids:
            plain["pid"] = pids[slot]
        plain.update(zip(COUNTERS, one.counters, strict=True))
        plain.update(zip(GAUGES, one.gauges, strict=True))
        yield instance.name, plain
