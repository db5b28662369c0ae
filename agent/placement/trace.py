"""Paths of rows through a running flow: what each operator and each link between boards costs now, and why an operator
runs where it does.

A path's time is the age of the oldest row in each of its queues, the cost of a row at each of its instances, and half
the round trip of each of its edges between boards: the time of a row that meets every queue as it is now.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, Final

from agent.placement.problem.build import Figures, rates_of
from agent.placement.proposal import TwoReadings
from agent.placement.rules import Rules
from edgert.flow.plan import uncopied

MOST_PATHS: Final = 1000
"""Paths that are looked at."""
SHOWN_PATHS: Final = 5


def trace(
    flow: str,
    readings: Mapping[str, TwoReadings],
    rtt_s: Callable[[str, str], float],
    rules: Rules,
    stay: Collection[str] = (),
) -> dict[str, Any]:
    """`readings` by gateway; `stay`: operators that no heuristic moves (sources, those that publish).

        {"flow": str, "boards": [gateway], "latency_s": {gateway: mean of the newest results there},
         "instances": {name: {"gateway", "why", "operators", "rows_s", "queue_rows", "waits_s", "cost_s"}},
         "edges": [{"from", "to", "rows_s", "bytes_s", "link_s"}],
         "paths": [{"instances": [name], "waits_s", "cost_s", "link_s", "total_s"}]}

    Rates and costs are None where they are not known yet. Of the paths there are the `SHOWN_PATHS` slowest, the slowest
    first."""
    readings = {gateway: (_only(flow, before), _only(flow, now)) for gateway, (before, now) in readings.items()}
    rates = rates_of(readings.values(), lambda gateway: 1.0)
    prefix = f"{flow}/"
    instances: dict[str, dict[str, Any]] = {}
    latency: dict[str, float] = {}
    for gateway, (before, now) in sorted(readings.items()):
        told = now["flows"].get(flow)
        if told is None:
            continue
        if told.get("latency_s") is not None:
            latency[gateway] = told["latency_s"]
        then = before["flows"].get(flow, {})
        same = then["instances"] if all(then.get(key) == told[key] for key in ("version", "plan")) else {}
        for name, one in told["instances"].items():
            if rates.placement.get(prefix + name) == gateway:
                inside = [uncopied(each)[0] for each in one.get("operators", [name])]
                instances[name] = {"gateway": gateway, "why": _why(name, inside, rules, stay), "operators": inside}
                instances[name] |= _numbers(same.get(name), one)
    at = rates.placement
    edges = [
        {"from": a.removeprefix(prefix), "to": b.removeprefix(prefix), "rows_s": rows, "bytes_s": size,
         "link_s": 0.0 if at[a] == at[b] else rtt_s(at[a], at[b]) / 2}
        for (a, b), (rows, size) in rates.edges.items() if a in at and b in at
    ]  # fmt: skip
    paths = sorted(_paths(instances, edges), key=lambda path: -path["total_s"])[:SHOWN_PATHS]
    boards = sorted({one["gateway"] for one in instances.values()})
    return {
        "flow": flow, "boards": boards, "latency_s": latency, "instances": instances, "edges": edges, "paths": paths,
    }  # fmt: skip


def _only(flow: str, figures: Figures) -> Figures:
    return {**figures, "flows": {name: told for name, told in figures["flows"].items() if name == flow}}


def _numbers(before: Mapping[str, Any] | None, now: Mapping[str, Any]) -> dict[str, Any]:
    rate = cost = None
    passed = now["at"] - before["at"] if before and before["at"] else 0.0
    if before and passed > 0:
        rows = now["rows_in"] - before["rows_in"]
        rate, cost = rows / passed, (now["busy_s"] - before["busy_s"]) / rows if rows > 0 else None
    return {"rows_s": rate, "queue_rows": now["queue_rows"], "waits_s": now["head_age_s"], "cost_s": cost}


def _why(name: str, inside: Sequence[str], rules: Rules, stay: Collection[str]) -> str:
    """The reason, in a few words, that an instance runs where it does."""
    for operator in (name, *inside):
        if (pin := rules.pin_of(operator)) is not None:
            return f"pinned to {pin}"
        if labels := rules.labels_of(operator):
            return f"needs {', '.join(sorted(labels))}"
    if any(operator in stay for operator in inside):
        return "stays with its devices"
    return f"placed by {rules.heuristic}" if rules.heuristic else "as deployed, or handed over"


def _paths(instances: Mapping[str, Mapping[str, Any]], edges: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """From each instance that nothing feeds to each that feeds nothing; one that comes twice ends a path, too."""
    following: dict[str, list[Mapping[str, Any]]] = {}
    for edge in edges:
        if edge["from"] in instances and edge["to"] in instances:
            following.setdefault(edge["from"], []).append(edge)
    fed = {edge["to"] for found in following.values() for edge in found}
    left = MOST_PATHS
    waiting: list[tuple[list[str], float]] = [([name], 0.0) for name in instances if name not in fed]
    while waiting and left:
        path, link_s = waiting.pop()
        onward = [edge for edge in following.get(path[-1], ()) if edge["to"] not in path]
        waiting += [([*path, edge["to"]], link_s + edge["link_s"]) for edge in onward]
        if not onward:
            left -= 1
            waits_s = sum(instances[name]["waits_s"] for name in path)
            cost_s = sum(instances[name]["cost_s"] or 0.0 for name in path)
            total_s = waits_s + cost_s + link_s
            yield {"instances": path, "waits_s": waits_s, "cost_s": cost_s, "link_s": link_s, "total_s": total_s}
