"""Apache Storm 1.x and 2.x: the REST interface of its UI, and names of executor threads (`jcmd <pid> Thread.print`).

`storm=http://127.0.0.1:8080`. An operator is an executor; Storm runs each in a thread of its own. Workers of this board
are found by their main class. Their arguments name the topology, so components of the same name in two topologies are
told apart.

Storm's UI knows no queues. Rows that were sent to a component and that it has not executed are in its queue, or on the
way to it. Both counters are taken from one answer, since workers report all their counters together.
"""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple
from urllib.parse import quote

from agent.drivers import jvm
from agent.drivers.base import DriverError
from agent.drivers.entities import EngineReport, Operator, Query
from agent.drivers.recent_sums import RecentSums
from agent.drivers.rest import Get, Rest

MAIN_CLASSES: Final = ("org.apache.storm.daemon.worker", "org.apache.storm.daemon.worker.Worker")
"""Main class of a worker: Storm 1.x, 2.x. The next argument is the topology's id."""
LOG_WRITER: Final = "org.apache.storm.LogWriter"
"""Starts a worker in Storm 1.x, with the worker's whole command line as its arguments."""
TIMEOUT_S: Final = 10.0
"""The UI asks Nimbus, which asks ZooKeeper; on a busy board an answer takes seconds."""
WAIT_S: Final = 0.25
"""A look that takes longer goes on, and the one before it counts: other engines are not kept waiting for Storm's UI."""
AGAIN_S: Final = 10.0
"""Latencies are asked for again after this time: they are means over ten minutes."""
TOGETHER_S: Final = 60
"""Counters of workers are compared if the workers started within this time of each other."""
MOST_OPERATORS: Final = 8_192
"""Executors of all topologies."""
MOST_COMPONENTS: Final = 500
"""Components of a topology: each is compared with each."""
ALL_TIME: Final = "window=:all-time&sys=false"
TEN_MINUTES: Final = "window=600&sys=false"
_EXECUTOR: Final = re.compile(r"\[(\d+)-(\d+)\]")
_THREAD: Final = re.compile(r"Thread-\d+-(.*-executor\[-?\d+),? (-?\d+\].*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class StormInput:
    """A subscription of a component."""

    sender: str
    stream: str
    to_all: bool
    """Each row goes to every task of the component."""


@dataclass(slots=True)
class SeenTopology:
    """Answers about a topology that are kept from look to look."""

    inputs: Mapping[str, Sequence[StormInput]] | None = None
    """Component -> its subscriptions. They are fixed when a topology is submitted."""
    executors: dict[str, Sequence[tuple[int, int]]] = field(default_factory=dict)
    """Component -> first and last task of each executor. Tasks are fixed too, so these follow from their number."""
    lately: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Component -> its figures of the last ten minutes."""
    asked_s: float = -AGAIN_S
    """When they were asked for, monotonic."""


class Topology(NamedTuple):
    """The answers about one topology at one look; see `SeenTopology`."""

    page: Mapping[str, Any]
    """`/topology/<id>` with counters since the start."""
    inputs: Mapping[str, Sequence[StormInput]]
    executors: Mapping[str, Sequence[tuple[int, int]]]
    lately: Mapping[str, Mapping[str, Any]]
    streams: Mapping[str, Mapping[str, float]]
    """Component with several subscribed streams -> stream -> rows transferred."""


class StormDriver:
    """A Storm cluster with workers on this board."""

    def __init__(
        self,
        address: str,
        get: Get | None = None,
        find: jvm.Find | None = None,
        now_s: Callable[[], float] = jvm.now_s,
        wait_s: float = WAIT_S,
        users: Collection[int] = (),
    ) -> None:
        """`users`: see `jvm.ThreadNames`."""
        self.name, self.wait_s = "storm", wait_s
        self._ended = threading.Event()
        ended = self._ended.is_set
        self._rest = Rest("storm", address, "http://127.0.0.1:8080", TIMEOUT_S, ended)
        self._get = get or self._rest.get
        self._find = find or jvm.ThreadNames(MAIN_CLASSES, users, scope=scope, plain=plain_name, ended=ended).find
        self._recent, self._now_s = RecentSums(), now_s
        self._known: dict[str, SeenTopology] = {}
        self._thread = ThreadPoolExecutor(1, "storm")
        self._looking: Future[EngineReport] | None = None
        self._last: EngineReport | None = None

    async def report(self) -> EngineReport:
        """The newest look at all topologies that are not killed; see `WAIT_S`."""
        if self._looking is None:
            self._looking = self._thread.submit(self._report)
        await asyncio.to_thread(wait, [self._looking], self.wait_s)
        if self._looking.done():
            look, self._looking, self._last = self._looking, None, None
            self._last = look.result()
        if self._last is None:
            raise DriverError("storm: expected an answer of Storm's UI, got none yet; the look goes on")
        return self._last

    async def close(self) -> None:
        """Ends a look that is under way."""
        self._ended.set()
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _report(self) -> EngineReport:
        self._rest.begin()
        try:
            listed = self._get("/api/v1/topology/summary")["topologies"]
            ids = [str(topology["id"]) for topology in listed if topology["status"] != "KILLED"]
            self._known = {name: known for name, known in self._known.items() if name in ids}
            return report_untrusted([self._look(name) for name in ids], self._find, self._recent, self._now_s())
        except DriverError:
            self._known.clear()  # else a look after the other could keep what one is allowed
            raise
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise DriverError(
                f"storm: expected an answer as of the REST interface of Storm's UI, got another ({error!r})"
            ) from error

    def _look(self, name: str) -> Topology:
        """The topology with the id `name`."""
        path = f"/api/v1/topology/{quote(name, safe='')}"
        known = self._known.setdefault(name, SeenTopology())
        page = self._get(f"{path}?{ALL_TIME}")
        if known.inputs is None:
            known.inputs = edges(self._get(f"{path}/visualization?{ALL_TIME}"))
        if self._now_s() - known.asked_s >= AGAIN_S:
            known.lately, known.asked_s = components(self._get(f"{path}?{TEN_MINUTES}")), self._now_s()
        for component, figures in components(page).items():
            if len(known.executors.get(component, ())) != int(figures["executors"]):
                known.executors[component] = executor_ids(self._component(path, component))
        streams = {sender: transferred(self._component(path, sender)) for sender in divided(known.inputs)}
        return Topology(page, known.inputs, known.executors, known.lately, streams)

    def _component(self, path: str, component: str) -> Mapping[str, Any]:
        found: Mapping[str, Any] = self._get(f"{path}/component/{quote(component, safe='')}?{ALL_TIME}")
        return found


def report_untrusted(
    topologies: Sequence[Topology],
    find: jvm.Find,
    recent: RecentSums,
    at_s: float,
) -> EngineReport:
    """The report from the answers about each topology.

    Raises `KeyError`, `TypeError`, `ValueError`, `AttributeError` or `OverflowError` for answers of another form.
    """
    operators: dict[str, Operator] = {}
    counters: dict[str, dict[str, float]] = {}
    metrics: dict[str, dict[str, float]] = {"queue_size": {}, "cost_s": {}, "utilisation": {}}
    _check_size(topologies)
    wanted = {key for t in topologies for c, of in t.executors.items() for e in of for key in _threads(t, c, e)}
    threads, found_notes = find(wanted)
    notes = list(found_notes)
    for topology in topologies:
        query, together = str(topology.page["name"]), started_together(topology.page)
        if not together:
            notes.append(
                f"workers of {query} started more than {TOGETHER_S} s apart, so their counters do not compare: "
                "no queue sizes until all of them are started anew"
            )
        queues = waiting(topology) if together else {}
        for component, figures in components(topology.page).items():
            after = _followers(topology, component)
            values = {**_values(topology.lately.get(component, {})), **_share(queues, topology, component)}
            for executor in topology.executors[component]:
                name = f"{query}/{component}#{executor[0]}"
                ours = tuple(threads[key] for key in _threads(topology, component, executor) if key in threads)
                operators[name] = Operator(
                    name, query, instance=f"{component} [{executor[0]}-{executor[1]}]", successors=after,
                    threads=ours, location=f"pid {ours[0].pid}" if ours else "",
                )  # fmt: skip
                counters[name] = _rows(figures)
                for metric, value in values.items():
                    metrics[metric][name] = value
    sums = recent.look(at_s, counters)
    for counter in ("rows_in", "rows_out", "span_s"):
        metrics[counter] = {name: of[counter] for name, of in sums.items() if counter in of}
    queries = {str(t.page["name"]): Query(str(t.page["name"])) for t in topologies}
    return EngineReport("storm", operators, queries, metrics, notes=tuple(notes))


def _check_size(topologies: Sequence[Topology]) -> None:
    """Raises `ValueError` for more components or executors than a board runs."""
    found = sum(len(executors) for t in topologies for executors in t.executors.values())
    most = max((len(components(t.page)) for t in topologies), default=0)
    if found > MOST_OPERATORS or most > MOST_COMPONENTS:
        raise ValueError(
            f"expected at most {MOST_OPERATORS} executors in all topologies and {MOST_COMPONENTS} components in one, "
            f"got {found} and {most}"
        )


def scope(arguments: Sequence[str]) -> str | None:
    """The topology's id and "/" for a worker's arguments; None for the process that writes its log."""
    if LOG_WRITER in arguments:
        return None
    main = min(arguments.index(name) for name in MAIN_CLASSES if name in arguments)
    return f"{arguments[main + 1]}/" if main + 1 < len(arguments) else None


def plain_name(name: str) -> str:
    """`Thread-17-split-executor[4 4]` (1.x) and `Thread-17-split-executor[4, 4]` (2.x) as `split-executor[4 4]`."""
    parts = _THREAD.fullmatch(name)
    return f"{parts[1]} {parts[2]}" if parts else name


def components(page: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Component -> its figures in an answer to `/topology/<id>`; Storm's own (`__acker`) are left out."""
    found = {str(spout["spoutId"]): spout for spout in page["spouts"]}
    found |= {str(bolt["boltId"]): bolt for bolt in page["bolts"]}
    return {name: of for name, of in found.items() if not name.startswith("__")}


def edges(answer: Mapping[str, Any]) -> dict[str, list[StormInput]]:
    """Component -> its subscriptions, from `/topology/<id>/visualization`."""
    return {
        component: [
            StormInput(str(told[":component"]), str(told[":stream"]), told[":grouping"] == "all")
            for told in of[":inputs"]
            if not str(told[":component"]).startswith("__")
        ]
        for component, of in answer.items()
        if not component.startswith("__")
    }


def executor_ids(answer: Mapping[str, Any]) -> list[tuple[int, int]]:
    """(first, last task) of each executor, from `/topology/<id>/component/<component>`: `[4-4]` there."""
    found = []
    for told in answer["executorStats"]:
        parts = _EXECUTOR.fullmatch(told["id"])
        if parts is None:
            raise ValueError(f"expected an executor's id such as [4-4], got {told['id']!r}")
        found.append((int(parts[1]), int(parts[2])))
    return sorted(found)


def transferred(answer: Mapping[str, Any]) -> dict[str, float]:
    """Stream -> rows sent, from the answer for the component that sends."""
    return {str(told["stream"]): float(told["transferred"] or 0) for told in answer["outputStats"]}


def divided(inputs: Mapping[str, Sequence[StormInput]]) -> list[str]:
    """Components of which several streams are subscribed to: their counters have to be divided."""
    streams: dict[str, set[str]] = {}
    for each in (each for of in inputs.values() for each in of):
        streams.setdefault(each.sender, set()).add(each.stream)
    return sorted(sender for sender, of in streams.items() if len(of) > 1)


def started_together(page: Mapping[str, Any]) -> bool:
    """True if no worker was started anew while others ran on: the counters of a worker begin at its start."""
    up_s = [int(worker["uptimeSeconds"]) for worker in page.get("workers", ())]
    return not up_s or max(up_s) - min(up_s) <= TOGETHER_S


def waiting(topology: Topology) -> dict[str, float]:
    """Component -> rows sent to it that it has not executed; 0 for a spout.

    A stream's rows go to all who subscribe to it, and once to each of the tasks of those with the grouping `all`:
    transferred = rows · Σ copies.
    """
    figures = components(topology.page)
    copies = {
        (name, each): float(figures[name]["tasks"]) if each.to_all else 1.0
        for name, inputs in topology.inputs.items()
        for each in inputs
        if name in figures
    }
    total: dict[tuple[str, str], float] = {}
    for (_, each), count in copies.items():
        total[each.sender, each.stream] = total.get((each.sender, each.stream), 0.0) + count
    found = {}
    for name, of in figures.items():
        sent = 0.0
        for each in topology.inputs.get(name, ()):
            told = topology.streams.get(each.sender)
            rows = float(figures[each.sender]["transferred"] or 0) if told is None else told.get(each.stream, 0.0)
            sent += rows * copies[name, each] / total[each.sender, each.stream]
        found[name] = max(0.0, sent - float(of.get("executed") or 0))
    return found


def _share(queues: Mapping[str, float], topology: Topology, component: str) -> dict[str, float]:
    """The queue of one executor: Storm counts per component, so its executors get equal parts."""
    if component not in queues:
        return {}
    return {"queue_size": queues[component] / max(1, len(topology.executors[component]))}


def _values(figures: Mapping[str, Any]) -> dict[str, float]:
    """Seconds per row and busy part of the time, of a bolt that has executed rows. Spouts have neither."""
    if not float(figures.get("executed") or 0):
        return {}
    return {"cost_s": float(figures["executeLatency"]) / 1e3, "utilisation": float(figures["capacity"])}


def _rows(figures: Mapping[str, Any]) -> dict[str, float]:
    """Counters since the start. A spout takes no rows from others."""
    taken = {"rows_in": float(figures["executed"] or 0)} if "executed" in figures else {}
    return {**taken, "rows_out": float(figures["emitted"] or 0)}


def _followers(topology: Topology, component: str) -> tuple[str, ...]:
    """Operators that subscribe to a component."""
    return tuple(
        f"{topology.page['name']}/{name}#{first}"
        for name, inputs in topology.inputs.items()
        if any(each.sender == component for each in inputs)
        for first, _ in topology.executors.get(name, ())
    )


def _threads(topology: Topology, component: str, executor: tuple[int, int]) -> list[str]:
    """Names of an executor's own thread, and of the one that sends its rows in Storm 1.x."""
    tasks = f"executor[{executor[0]} {executor[1]}]"
    return [f"{topology.page['id']}/{component}-{tasks}", f"{topology.page['id']}/disruptor-{tasks}-send-queue"]
