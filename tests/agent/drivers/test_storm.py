"""The driver of Storm: answers recorded from a Storm 1.2.4 (spout rows → bolt light → bolt heavy, one worker)."""

from __future__ import annotations

import asyncio
import copy
import threading
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from agent.drivers import jvm
from agent.drivers.base import DriverError
from agent.drivers.entities import Thread
from agent.drivers.registry import make
from agent.drivers.rest import Get
from agent.drivers.storm import (
    StormDriver,
    StormInput,
    Topology,
    divided,
    edges,
    plain_name,
    scope,
    transferred,
    waiting,
)
from agent.osched.policy.metric_graph import MetricError, MetricProvider
from tests.agent.drivers.storm_answers import ONE, PATH, STORM
from tests.waiting import DEADLINE_S

THREADS = """
"disruptor-flush-task-pool" #24 daemon prio=5 os_prio=0 cpu=604.49ms elapsed=24.68s tid=0x00007f1db00018c0 nid=0x7ea1 waiting on condition
"Thread-2-disruptor-executor[2 2]-send-queue" #41 prio=5 os_prio=0 cpu=93.21ms elapsed=20.22s tid=0x00007f1e344cbff0 nid=0x7f4a waiting
"Thread-3-heavy-executor[2 2]" #42 prio=5 os_prio=0 cpu=2896.69ms elapsed=20.21s tid=0x00007f1e344c9340 nid=0x7f4b runnable
"Thread-9-__system-executor[-1 -1]" #48 prio=5 os_prio=0 cpu=6.66ms elapsed=20.10s tid=0x00007f1e34506640 nid=0x7f58 waiting
"""  # noqa: E501 - as it comes
WORKER = [
    "/usr/lib/jvm/java-17-openjdk-amd64/bin/java", "-server", "-Dstorm.id=one-1-1795681791", "-cp", "/opt/storm/lib/*",
    "org.apache.storm.daemon.worker", ONE, "5d0945f3-d744-4f1e-9aa7-cf069a04098e", "26700",
    "c2fb1185-af6d-4c21-a886-8c504d1472a3", "",
]  # fmt: skip


class Cluster:
    """Recorded answers by path; `changes` go before them."""

    def __init__(self, changes: Mapping[str, Any] | None = None) -> None:
        self.answers = copy.deepcopy(STORM) | dict(changes or {})
        self.asked: list[str] = []

    def get(self, path: str) -> Any:
        self.asked.append(path)
        return self.answers[path.partition("?")[0]]


class Known:
    """Threads of the bolt heavy, as Storm 1.x has them."""

    def find(self, wanted: set[str]) -> tuple[Mapping[str, Thread], list[str]]:
        names = [f"{ONE}/heavy-executor[2 2]", f"{ONE}/disruptor-executor[2 2]-send-queue"]
        assert set(names) < wanted
        return {name: Thread(7, 8 + k, 9) for k, name in enumerate(names)}, ["a note"]


def driver(get: Get, now_s: Callable[[], float] = lambda: 100.0) -> StormDriver:
    """A patient one: a busy machine is no slow UI."""
    return StormDriver("http://127.0.0.1:1", get, Known().find, now_s, wait_s=DEADLINE_S)


def test_executors_become_operators_with_their_threads_and_edges() -> None:
    report = asyncio.run(driver(Cluster().get).report())
    assert list(report.operators) == ["one/rows#4", "one/light#3", "one/heavy#2"]
    assert report.operators["one/rows#4"].successors == ("one/light#3",)
    heavy = report.operators["one/heavy#2"]
    assert heavy.threads == (Thread(7, 8, 9), Thread(7, 9, 9))
    assert (heavy.query, heavy.instance, heavy.location, heavy.successors) == ("one", "heavy [2-2]", "pid 7", ())
    assert set(report.queries) == {"one"}, "a killed topology is none"
    assert report.notes == ("a note",)


def test_metrics_of_the_recorded_answers() -> None:
    provider = MetricProvider(asyncio.run(driver(Cluster().get).report()))
    assert provider.get("queue_size") == {"one/rows#4": 0.0, "one/light#3": 2.0, "one/heavy#2": 990320.0 - 988328.0}
    assert provider.get("cost_s") == pytest.approx({"one/light#3": 31e-6, "one/heavy#2": 366e-6})
    assert provider.get("utilisation") == {"one/light#3": 0.082, "one/heavy#2": 0.98}
    assert provider.get("selectivity") == pytest.approx({"one/light#3": 1.0, "one/heavy#2": 988327 / 988328})
    # C = 31 + 366 µs for light: a sink's S is 1, and so is light's selectivity.
    assert provider.get("highest_rate")["one/light#3"] == pytest.approx(1 / 397e-6)
    with pytest.raises(MetricError, match="driver storm: expected the metric head_age_s"):
        provider.get("head_age_s")


def test_what_is_fixed_is_asked_for_once_and_executors_again_after_a_rebalance() -> None:
    cluster = Cluster()
    ours = driver(cluster.get)
    asyncio.run(ours.report())
    assert len(cluster.asked) == 7
    asyncio.run(ours.report())
    assert cluster.asked[7:] == ["/api/v1/topology/summary", f"{PATH}?window=:all-time&sys=false"]
    cluster.answers[PATH]["bolts"][1]["executors"] = 2
    cluster.answers[f"{PATH}/component/heavy"]["executorStats"] = [{"id": "[2-2]"}, {"id": "[5-6]"}]
    report = asyncio.run(ours.report())
    assert report.operators["one/light#3"].successors == ("one/heavy#2", "one/heavy#5")
    assert report.metrics["queue_size"]["one/heavy#5"] == (990320 - 988328) / 2


def test_a_slow_ui_does_not_keep_other_engines_waiting() -> None:
    cluster, answered = Cluster(), threading.Event()

    def get(path: str) -> Any:
        answered.wait()
        return cluster.get(path)

    ours = driver(get)
    ours.wait_s = 0.0
    with pytest.raises(DriverError, match="storm: expected an answer of Storm's UI, got none yet"):
        asyncio.run(ours.report())
    answered.set()
    ours.wait_s = DEADLINE_S
    first = asyncio.run(ours.report())
    assert first.metrics["queue_size"]["one/heavy#2"] == 1992.0
    answered.clear()
    cluster.answers[PATH]["bolts"][1]["executed"] += 100
    ours.wait_s = 0.0
    assert asyncio.run(ours.report()) is first, "the look before counts until the new one ends"
    answered.set()
    ours.wait_s = DEADLINE_S
    assert asyncio.run(ours.report()).metrics["queue_size"]["one/heavy#2"] == 1892.0
    asyncio.run(ours.close())


def test_rows_of_the_recent_past_give_the_selectivity() -> None:
    cluster, clock = Cluster(), iter((0.0, 0.0, 0.0, 5.0, 5.0, 5.0))
    ours = driver(cluster.get, lambda: next(clock))
    asyncio.run(ours.report())
    cluster.answers[PATH]["bolts"][0] |= {"executed": 990320 + 1000, "emitted": 990320 + 500}
    selectivity = MetricProvider(asyncio.run(ours.report())).get("selectivity")
    assert selectivity["one/light#3"] == pytest.approx(0.5, rel=1e-2)


def test_counters_of_workers_that_started_apart_are_not_compared() -> None:
    cluster = Cluster()
    cluster.answers[PATH]["workers"].append({"port": 26701, "uptimeSeconds": 300})
    report = asyncio.run(driver(cluster.get).report())
    assert report.metrics["queue_size"] == {}
    assert any("workers of one started more than 60 s apart" in note for note in report.notes)


def topology(inputs: Mapping[str, list[StormInput]], streams: Mapping[str, Mapping[str, float]]) -> Topology:
    """A spout a (900 rows sent) with bolts b (1 task, 100 executed) and c (4 tasks, 500 executed)."""
    page = {
        "spouts": [{"spoutId": "a", "tasks": 1, "emitted": 900, "transferred": 900}],
        "bolts": [
            {"boltId": "b", "tasks": 1, "emitted": 0, "transferred": 0, "executed": 100},
            {"boltId": "c", "tasks": 4, "emitted": 0, "transferred": 0, "executed": 500},
        ],
    }
    return Topology(page, inputs, {}, {}, streams)


@pytest.mark.parametrize(
    ("inputs", "streams", "queues"),
    [
        # One stream to both: each gets every row.
        ({"b": [StormInput("a", "s", False)], "c": [StormInput("a", "s", False)]}, {}, {"a": 0, "b": 350, "c": 0}),
        # To all four tasks of c: 900 = 180 rows · (1 + 4).
        ({"b": [StormInput("a", "s", False)], "c": [StormInput("a", "s", True)]}, {}, {"a": 0, "b": 80, "c": 220}),
        # Two streams: their own counters.
        (
            {"b": [StormInput("a", "s", False)], "c": [StormInput("a", "t", False)]},
            {"a": {"s": 150.0, "t": 750.0}},
            {"a": 0, "b": 50, "c": 250},
        ),
    ],
)
def test_transferred_rows_are_divided_among_those_who_subscribe(
    inputs: Mapping[str, list[StormInput]], streams: Mapping[str, Mapping[str, float]], queues: Mapping[str, float]
) -> None:
    assert divided(inputs) == list(streams)
    assert waiting(topology(inputs, streams)) == pytest.approx(queues)


def test_streams_and_subscriptions_are_read_from_the_recorded_answers() -> None:
    assert transferred(STORM[f"{PATH}/component/rows"]) == {"default": 221347.0}
    assert edges(STORM[f"{PATH}/visualization"]) == {
        "rows": [],
        "light": [StormInput("rows", "default", False)],
        "heavy": [StormInput("light", "default", False)],
    }


def test_threads_of_both_versions_are_named_alike_and_belong_to_the_workers_topology() -> None:
    assert [(plain_name(name), tid) for name, tid in jvm.parse_untrusted(THREADS)] == [
        ("disruptor-flush-task-pool", 0x7EA1),
        ("disruptor-executor[2 2]-send-queue", 0x7F4A),
        ("heavy-executor[2 2]", 0x7F4B),
        ("__system-executor[-1 -1]", 0x7F58),
    ]
    assert plain_name("Thread-17-heavy-executor[2, 2]") == "heavy-executor[2 2]"
    assert scope(WORKER) == f"{ONE}/"
    newer = ["java", "-cp", "x", "org.apache.storm.daemon.worker.Worker", "two-2-17", "id", "6628", "6700", "id", ""]
    assert scope(newer) == "two-2-17/"
    assert scope(["java", "org.apache.storm.LogWriter", *WORKER]) is None
    assert scope(["java", "org.apache.storm.daemon.worker"]) is None


@pytest.mark.parametrize(
    "changes",
    [
        {"/api/v1/topology/summary": None},
        {"/api/v1/topology/summary": {"topologies": [{}]}},
        {PATH: {"name": "one", "spouts": [], "bolts": [{"boltId": "b", "executors": None}]}},
        {PATH: []},
        {f"{PATH}/component/heavy": {"executorStats": [{"id": "4"}]}},
        {f"{PATH}/visualization": {"light": {}}},
    ],
)
def test_an_answer_of_another_form_is_an_error_of_the_driver(changes: Mapping[str, Any]) -> None:
    with pytest.raises(DriverError, match="storm: expected an answer as of the REST interface of Storm's UI"):
        asyncio.run(driver(Cluster(changes).get).report())


def test_only_a_cluster_of_this_machine_is_asked() -> None:
    assert make("storm=http://127.0.0.1:8080").name == "storm"
    for address in ("http://storm.example:8080", "https://127.0.0.1", "8080"):
        with pytest.raises(DriverError, match="storm: expected an address of this machine such as"):
            make(f"storm={address}")
    with pytest.raises(DriverError, match=r"storm: http://127\.0\.0\.1:1/api/v1/topology/summary: "):
        asyncio.run(make("storm=http://127.0.0.1:1").report())
