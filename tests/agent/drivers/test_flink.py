"""The driver of Flink: answers recorded from a Flink 2.3.0 with one task manager (SQL: datagen → SUM → blackhole)."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from agent.drivers import jvm
from agent.drivers.base import DriverError
from agent.drivers.entities import Thread
from agent.drivers.flink import FlinkDriver, report_untrusted
from agent.drivers.recent_sums import RecentSums
from agent.drivers.registry import make
from agent.osched.policy.metric_graph import MetricProvider
from tests.agent.drivers.worlds import FLINK, JOB, SUM, THREADS


class Cluster:
    """Recorded answers by path."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def get(self, path: str) -> Any:
        self.asked.append(path)
        return FLINK[path.split("/")[4] if "/vertices/" in path else path]


class Known:
    """Names of threads that are known."""

    def find(self, wanted: set[str]) -> tuple[Mapping[str, Thread], list[str]]:
        names = ["GroupAggregate[3] (1/2)", "OutputFlusher for GroupAggregate[3] (1/2)"]
        assert set(names) < wanted
        return {name: Thread(7, 8 + k, 9) for k, name in enumerate(names)}, ["a note"]


def test_subtasks_become_operators_with_their_threads_and_edges() -> None:
    report = asyncio.run(FlinkDriver("http://127.0.0.1:1", Cluster().get, Known().find).report())
    assert len(report.operators) == 6
    first = report.operators["query-a/0a448493#0"]
    assert first.threads == (Thread(7, 8, 9), Thread(7, 9, 9))
    assert first.successors == ("query-a/ea632d67#0", "query-a/ea632d67#1")
    assert (first.instance, first.location) == ("GroupAggregate[3] (1)", "pid 7")
    assert report.operators["query-a/ea632d67#0"].threads == ()
    assert report.notes == ("a note",)


def test_cost_follows_from_flinks_counters_and_what_it_does_not_know_is_absent() -> None:
    provider = MetricProvider(asyncio.run(FlinkDriver("http://127.0.0.1:1", Cluster().get, Known().find).report()))
    assert provider.get("queue_size") == {"query-a/0a448493#0": 2.0}
    assert provider.get("cost_s") == pytest.approx({"query-a/0a448493#0": 53.042 / 6347870})
    assert provider.get("selectivity")["query-a/0a448493#0"] == pytest.approx(1.0, rel=1e-3)


def test_a_metric_is_asked_for_twice_the_first_time_and_once_then() -> None:
    cluster = Cluster()
    driver = FlinkDriver("http://127.0.0.1:1", cluster.get, Known().find)
    asyncio.run(driver.report())
    asyncio.run(driver.report())
    assert sum(SUM in path for path in cluster.asked) == 3


def test_names_and_kernel_ids_are_read_from_thread_print_of_old_and_new_jvms() -> None:
    assert list(jvm.parse_untrusted(THREADS)) == [
        ("Source: src[1] (1/2)", 0xBD5),
        ("GroupAggregate[3] (2/2)", 0xBF7),
        ("OutputFlusher for GroupAggregate[3] (1/2)", 0xBF8),
        ("Legacy Source Thread - Source: src[1] (2/2)", 3084),
        ("GC Thread", 17719),
    ]


@pytest.mark.parametrize("answer", [None, {"jobs": [{}]}, {"jobs": 3}])
def test_an_answer_of_another_form_is_an_error_of_the_driver(answer: Any) -> None:
    with pytest.raises(DriverError, match="flink: expected an answer as of Flink's REST interface"):
        asyncio.run(FlinkDriver("http://127.0.0.1:1", lambda path: answer, Known().find).report())


def test_only_a_cluster_of_this_machine_is_asked() -> None:
    assert make("flink=http://127.0.0.1:8081").name == "flink"
    for address in ("http://flink.example:8081", "ftp://127.0.0.1", "8081"):
        with pytest.raises(DriverError, match="expected an address of this machine such as"):
            make(f"flink={address}")
    with pytest.raises(DriverError, match=r"flink: http://127\.0\.0\.1:1/jobs/overview: "):
        asyncio.run(make("flink=http://127.0.0.1:1").report())


def test_two_jobs_of_one_form_keep_their_figures_apart_and_jobs_of_one_name_too() -> None:
    first = FLINK[f"/jobs/{JOB}"]
    second = {**first, "jid": "f080c5d404af602b83c8c9ea33019896"}
    figures = {
        (first["jid"], SUM): [{"id": "0.numRecordsIn", "value": "100"}, {"id": "0.numRecordsOut", "value": "50"}],
        (second["jid"], SUM): [{"id": "0.numRecordsIn", "value": "100"}, {"id": "0.numRecordsOut", "value": "10"}],
    }
    report = report_untrusted([first, second], figures, lambda wanted: ({}, []), RecentSums(), 1.0)
    assert set(report.queries) == {"query-a-a1c37c37", "query-a-f080c5d4"}
    selectivity = MetricProvider(report).get("selectivity")
    assert {name.partition("/")[0]: round(value, 6) for name, value in selectivity.items()} == {
        "query-a-a1c37c37": 0.5,
        "query-a-f080c5d4": 0.1,
    }


def test_more_subtasks_than_a_board_runs_are_refused_before_their_figures_are_asked_for() -> None:
    job = FLINK[f"/jobs/{JOB}"]
    vertex = {**job["vertices"][0], "parallelism": 1_024}
    wide = {**job, "vertices": [{**vertex, "id": str(n)} for n in range(9)]}
    cluster = Cluster()
    driver = FlinkDriver(
        "http://127.0.0.1:1", lambda path: wide if path == f"/jobs/{JOB}" else cluster.get(path), Known().find
    )
    with pytest.raises(DriverError, match="expected at most 8192 subtasks in all jobs, got 9216"):
        asyncio.run(driver.report())
    assert not [path for path in cluster.asked if "/vertices/" in path]
