"""The tables of `edgert top`, from two readings of a gateway's raw figures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from edgert.cli._control import duration, location, table

OPERATORS: Final = ("instance", "runs in", "rows/s", "queue", "head age", "cost/row", "CPU")
THREADS: Final = ("thread", "process", "runs in", "CPU", "CPU time")

Figures = Mapping[str, Any]


def lines(before: Figures, now: Figures) -> list[str]:
    """The screen: each flow with its instances, then the threads, the busiest first. Rates are those between the two
    readings; an instance or a thread that was not there before has none yet."""
    passed = now["monotonic"] - before["monotonic"]
    busy = sum(cpu for _, cpu in _threads(before, now, passed) if cpu is not None)
    shown = [f"gateway {now['gateway']}   {busy:.0f} % CPU of {100 * now['cpu_count']} %   over {duration(passed)}"]
    for name, flow in now["flows"].items():
        late = "" if flow["latency_s"] is None else f", latency {duration(flow['latency_s'])} (mean)"
        shown += ["", f"flow {name}, version {flow['version']}, {flow['delivery']}{late}"]
        then = before["flows"].get(name, {})
        goes_on = all(then.get(key) == flow[key] for key in ("version", "plan"))
        same = then["instances"] if goes_on else {}
        rows = [instance_row(label, one, same.get(label)) for label, one in flow["instances"].items()]
        shown += table(OPERATORS, rows, 2)
    if not now["flows"]:
        shown += ["", "no flow runs here"]
    threads = sorted(_threads(before, now, passed), key=lambda found: -(found[1] or 0.0))
    shown += ["", *table(THREADS, [_thread(thread, cpu) for thread, cpu in threads], 1)]
    return shown


def instance_row(name: str, now: Mapping[str, Any], before: Mapping[str, Any] | None) -> tuple[str, ...]:
    """A row for `OPERATORS`; `before`: the same instance in the reading before."""
    rate = cost = cpu = "-"
    passed = now["at"] - before["at"] if before and before["at"] else 0.0
    if before and passed > 0:
        rows, busy_s = now["rows_in"] - before["rows_in"], now["busy_s"] - before["busy_s"]
        rate, cpu = f"{rows / passed:,.0f}", f"{100 * busy_s / passed:.1f} %"
        if rows > 0:
            cost = duration(busy_s / rows)
    waiting = f"{now['queue_rows']:,}"
    return name, location(now["slot"]), rate, waiting, duration(now["head_age_s"]), cost, cpu


def _threads(before: Figures, now: Figures, passed: float) -> Iterator[tuple[Mapping[str, Any], float | None]]:
    """Each thread, and how much of a processor it used, in percent; None if that is not known yet."""
    known = {(t["tid"], t["start_ticks"]): t["cpu_s"] for t in before["threads"]}
    for thread in now["threads"]:
        then = known.get((thread["tid"], thread["start_ticks"]))
        yield thread, None if then is None or passed <= 0 else 100 * (thread["cpu_s"] - then) / passed


def _thread(thread: Mapping[str, Any], cpu: float | None) -> tuple[str, ...]:
    used = "-" if cpu is None else f"{cpu:.1f} %"
    label = f"{thread['role']} {thread['tid']}"
    return label, str(thread["pid"]), location(thread["slot"]), used, duration(thread["cpu_s"])
