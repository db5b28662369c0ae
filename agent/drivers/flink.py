"""Apache Flink: its REST interface, and the names of its task threads from `jcmd <pid> Thread.print`.

`flink=http://127.0.0.1:8081`. An operator is a subtask (one copy of a chain); Flink runs each in a thread of its own.
Task managers of this board are found by their main class. Names do not tell jobs apart: subtasks of two jobs that have
the same name are left alone, and `sched status` says so.
"""

from __future__ import annotations

import asyncio
import html
import threading
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from agent.drivers import jvm
from agent.drivers.base import DriverError
from agent.drivers.entities import EngineReport, Operator, Query
from agent.drivers.recent_sums import RecentSums
from agent.drivers.rest import Get, Rest

MAIN_CLASSES: Final = ("org.apache.flink.runtime.taskexecutor.TaskManagerRunner",)
SECOND_ASK_S: Final = 0.05
"""The wait before a metric is asked for again: Flink fetches it from the task managers at the first request, and has it
for the second."""
COUNTERS: Final = {"numRecordsIn": "rows_in", "numRecordsOut": "rows_out", "accumulateBusyTimeMs": "busy_s"}
QUEUE: Final = "Shuffle.Netty.Input.Buffers.inputQueueLength"
"""Buffers (of 32 kB at most), not rows: Flink does not count the rows in a queue."""
PREFIXES: Final = ("", "Legacy Source Thread - ", "OutputFlusher for ")
"""Before the name of a subtask: its own thread, the one that a source of the old kind emits from, and its flusher."""
FIELDS: Final = (*COUNTERS, QUEUE)
MOST_COPIES: Final = 1_024
"""Subtasks of a vertex. Flink itself takes 32,768; each of them follows on each of the vertex before."""

MOST_OPERATORS: Final = 8_192
"""Subtasks of all jobs."""


class FlinkDriver:
    """A Flink cluster with task managers on this board."""

    def __init__(
        self, address: str, get: Get | None = None, find: jvm.Find | None = None, users: Collection[int] = ()
    ) -> None:
        """`users`: see `jvm.ThreadNames`."""
        self.name = "flink"
        self._ended = threading.Event()
        self._rest = Rest("flink", address, "http://127.0.0.1:8081", ended=self._ended.is_set)
        self._get = get or self._rest.get
        self._find = find or jvm.ThreadNames(MAIN_CLASSES, users, ended=self._ended.is_set).find
        self._recent = RecentSums()
        self._asked: set[tuple[str, str]] = set()

    async def report(self) -> EngineReport:
        """A fresh look at all running jobs."""
        return await asyncio.to_thread(self._report)

    async def close(self) -> None:
        """Ends a look that is under way."""
        self._ended.set()

    def _report(self) -> EngineReport:
        self._rest.begin()
        try:
            jobs = [job for job in self._get("/jobs/overview")["jobs"] if job["state"] == "RUNNING"]
            details = [self._get(f"/jobs/{job['jid']}") for job in jobs]
            _check_size(details)
            figures = {(d["jid"], v["id"]): self._metrics(d["jid"], v) for d in details for v in d["vertices"]}
            return report_untrusted(details, figures, self._find, self._recent, jvm.now_s())
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise DriverError(
                f"flink: expected an answer as of Flink's REST interface, got another ({error!r})"
            ) from error

    def _metrics(self, job: str, vertex: Mapping[str, Any]) -> Any:
        names = ",".join(f"{k}.{field}" for k in range(_copies(vertex)) for field in FIELDS)
        path = f"/jobs/{job}/vertices/{vertex['id']}/metrics?get={names}"
        if (job, vertex["id"]) not in self._asked:
            self._asked.add((job, vertex["id"]))
            self._get(path)
            jvm.wait_s(SECOND_ASK_S)
        return self._get(path)


def report_untrusted(
    details: Sequence[Mapping[str, Any]],
    figures: Mapping[tuple[str, str], Any],
    find: jvm.Find,
    recent: RecentSums,
    at_s: float,
) -> EngineReport:
    """The report from `/jobs/<id>` of each job, and the metrics of each vertex: (job id, vertex id) -> answer. Jobs of
    the same form have the same vertex ids.

    Raises `KeyError`, `TypeError`, `ValueError`, `AttributeError` or `OverflowError` for answers of another form.
    """
    operators: dict[str, Operator] = {}
    queries: dict[str, Query] = {}
    counters: dict[str, dict[str, float]] = {}
    queue: dict[str, float] = {}
    _check_size(details)
    wanted = {n for d in details for v in d["vertices"] for k in range(_copies(v)) for n in _threads(v, k)}
    threads, notes = find(wanted)
    for detail in details:
        query, follow = _query(detail, details), _followers(detail)
        queries[query] = Query(query)
        copies = {v["id"]: _copies(v) for v in detail["vertices"]}
        for vertex in detail["vertices"]:
            values = _values(figures.get((detail["jid"], vertex["id"]), ()))
            after = tuple(_name(query, to, j) for to in follow.get(vertex["id"], ()) for j in range(copies[to]))
            for k in range(copies[vertex["id"]]):
                name = _name(query, vertex["id"], k)
                ours = tuple(threads[n] for n in _threads(vertex, k) if n in threads)
                operators[name] = Operator(
                    name, query, instance=f"{plain_name(vertex)} ({k + 1})", successors=after,
                    threads=ours, location=f"pid {ours[0].pid}" if ours else "",
                )  # fmt: skip
                given = {metric: values.get(f"{k}.{field}") for field, metric in COUNTERS.items()}
                counters[name] = {m: v / 1e3 if m == "busy_s" else v for m, v in given.items() if v is not None}
                if (length := values.get(f"{k}.{QUEUE}")) is not None:
                    queue[name] = length
    sums = recent.look(at_s, counters)
    metrics: dict[str, Mapping[str, float]] = {"queue_size": queue}
    for counter in (*COUNTERS.values(), "span_s"):
        metrics[counter] = {name: of[counter] for name, of in sums.items() if counter in of}
    return EngineReport("flink", operators, queries, metrics, notes=tuple(notes))


def plain_name(vertex: Mapping[str, Any]) -> str:
    """A vertex's name as its threads have it: the REST interface escapes it for HTML."""
    return html.unescape(str(vertex["name"])).replace("<br/>", "").strip()


def _copies(vertex: Mapping[str, Any]) -> int:
    """The number of subtasks of a vertex. Raises `ValueError` for a number that Flink cannot have."""
    copies = int(vertex["parallelism"])
    if not 0 <= copies <= MOST_COPIES:
        raise ValueError(f"parallelism: expected at most {MOST_COPIES}, got {copies}")
    return copies


def _check_size(details: Sequence[Mapping[str, Any]]) -> None:
    """Raises `ValueError` for more subtasks than a board runs."""
    if (copies := sum(_copies(vertex) for detail in details for vertex in detail["vertices"])) > MOST_OPERATORS:
        raise ValueError(f"expected at most {MOST_OPERATORS} subtasks in all jobs, got {copies}")


def _threads(vertex: Mapping[str, Any], copy: int) -> list[str]:
    """Names of a subtask's own thread and of its helpers."""
    own = f"{plain_name(vertex)} ({copy + 1}/{vertex['parallelism']})"
    return [prefix + own for prefix in PREFIXES]


def _query(detail: Mapping[str, Any], details: Sequence[Mapping[str, Any]]) -> str:
    """A job's name, with its id where several have that name."""
    name = str(detail["name"])
    alike = sum(other["name"] == detail["name"] for other in details) > 1
    return f"{name}-{detail['jid'][:8]}" if alike else name


def _name(query: str, vertex: str, copy: int) -> str:
    return f"{query}/{vertex[:8]}#{copy}"


def _followers(detail: Mapping[str, Any]) -> dict[str, list[str]]:
    """Vertex -> those that read from it."""
    found: dict[str, list[str]] = {}
    for node in detail["plan"]["nodes"]:
        for source in node.get("inputs", ()):
            found.setdefault(source["id"], []).append(node["id"])
    return found


def _values(answer: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Metric -> value; what Flink does not know yet (NaN, or nothing) is left out."""
    found = {}
    for entry in answer:
        value = float(entry.get("value", "nan"))
        if value == value and value >= 0.0:
            found[str(entry["id"])] = value
    return found
