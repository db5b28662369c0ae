"""The driver of our own gateway: figures in, a report out."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import pytest

from agent.drivers.base import DriverError
from agent.drivers.edgert import EdgertDriver, owned_as, report_untrusted
from agent.drivers.entities import Thread
from agent.drivers.recent_sums import RecentSums
from agent.drivers.registry import make
from agent.osched.policy.metric_graph import MetricProvider
from edgert.core.errors import EdgertError
from tests.agent.drivers.worlds import figures


def test_instances_become_operators_with_all_threads_of_their_slot() -> None:
    report = report_untrusted(figures(), RecentSums(), lambda pid: True)
    assert set(report.operators) == {"air/in", "air/out"}
    first = report.operators["air/in"]
    assert first.threads == (Thread(50, 50, 2), Thread(50, 51, 3))
    assert (first.successors, first.location, first.instance) == (("air/out",), "slot 0", "in")
    assert report.queries["air"].latency_s == 0.1
    assert report.metrics["queue_size"] == {"air/in": 7.0, "air/out": 0.0}
    assert report.notes == ()


def test_the_selectivity_of_a_window_is_that_of_each_edge() -> None:
    """It gives results to one operator and contributions to another, and what it gives was counted for both."""
    recent = RecentSums()
    for at, rows in ((10.0, 100), (11.0, 300)):
        told = figures(at, rows)
        air = told["flows"]["air"]
        for name in ("alert#1", "alert#2", "ship"):
            air["instances"][name] = dict(air["instances"]["out"])
        air["instances"]["in"]["rows_out"] = rows
        each = {"alert#1": rows // 10, "alert#2": rows // 10 * 4, "ship": rows // 2}
        air["edges"] = [{"from": "in", "to": to, "rows": given, "bytes": 1} for to, given in each.items()]
        provider = MetricProvider(report_untrusted(told, recent, lambda pid: True))
    assert provider.get("selectivity")["air/in"] == pytest.approx(1 / 3)
    assert provider.get("path_selectivity")["air/in"] == pytest.approx(1.0)


def test_cost_and_selectivity_follow_from_the_counters() -> None:
    recent = RecentSums()
    report_untrusted(figures(10.0, 100), recent, lambda pid: True)
    provider = MetricProvider(report_untrusted(figures(11.0, 300), recent, lambda pid: True))
    assert provider.get("cost_s") == pytest.approx({"air/in": 0.001, "air/out": 0.004})
    assert provider.get("selectivity")["air/in"] == pytest.approx(0.5)
    assert provider.get("highest_rate")["air/out"] == pytest.approx(250)


def test_threads_of_the_daemon_are_left_alone_and_that_is_said() -> None:
    report = report_untrusted(figures(slot=-1), RecentSums(), lambda pid: True)
    assert report.operators["air/in"].threads == ()
    assert "set pool.slots" in report.notes[0]


def test_processes_of_another_user_are_left_alone_and_that_is_said() -> None:
    report = report_untrusted(figures(), RecentSums(), lambda pid: False)
    assert report.operators["air/in"].threads == ()
    assert "processes 50 do not belong to the gateway's user" in report.notes[0]


def test_a_process_is_owned_by_who_serves_the_socket(tmp_path: Path) -> None:
    (tmp_path / "control.sock").touch()
    assert owned_as(str(tmp_path / "control.sock"))(os.getpid())
    if os.geteuid() == 0:
        os.chown(tmp_path / "control.sock", 1234, -1)
        assert not owned_as(str(tmp_path / "control.sock"))(os.getpid())


@pytest.mark.parametrize(
    "wrong", [None, 3, {}, {"flows": 3, "threads": [], "monotonic": 1}, {**figures(), "threads": [{"pid": "x"}]}]
)
def test_an_answer_of_another_form_is_an_error_of_the_driver(wrong: Any) -> None:
    with pytest.raises(DriverError, match="gateway: expected figures, got"):
        report_untrusted(wrong, RecentSums(), lambda pid: True)


class Refusing:
    """A client to which nobody answers."""

    async def call(self, verb: str, args: Mapping[str, Any] | None = None) -> Any:
        raise EdgertError("no such socket")

    async def close(self) -> None: ...


async def _ask() -> None:
    await EdgertDriver("/nowhere", cast(Any, Refusing())).report()


def test_a_gateway_that_does_not_answer_is_an_error_of_the_driver() -> None:
    with pytest.raises(DriverError, match="gateway: no such socket"):
        asyncio.run(_ask())


def test_a_driver_is_named_by_kind_and_address() -> None:
    assert make("edgert=/run/x.sock").name == "edgert"
    with pytest.raises(DriverError, match="expected KIND=ADDRESS with KIND one of edgert"):
        make("spark=local")
    with pytest.raises(DriverError, match="expected KIND=ADDRESS"):
        make("edgert")


class Answering:
    """A client that answers with figures, and notes what it was asked."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, Any]] = []

    async def call(self, verb: str, args: Mapping[str, Any] | None = None) -> Any:
        self.calls.append((verb, args))
        return figures()

    async def close(self) -> None: ...


def test_weights_of_instances_become_weights_of_the_operators_in_them(tmp_path: Path) -> None:
    async def story() -> None:
        client = Answering()
        (tmp_path / "control.sock").touch()
        driver = EdgertDriver(str(tmp_path / "control.sock"), cast(Any, client))
        await driver.report()
        await driver.weigh("air", {"in": 2.0, "out": 8.0, "gone": 16.0})
        assert client.calls[1] == ("weigh", {"flow": "air", "weights": {"x": 8.0}})

    asyncio.run(story())
