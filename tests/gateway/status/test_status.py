"""What the status says of the last seconds."""

from __future__ import annotations

import math
from pathlib import Path

import psutil
import pytest
from paho.mqtt.client import MQTTMessage

from edgert.core.settings.connection import Connection
from edgert.core.settings.gateway import Gateway, GatewaySettings
from edgert.mqtt.clients.control_plane import ControlConnection
from edgert.operators.sources.source import AHEAD_KEPT
from edgert.operators.state.wrong_clock import TAKEN_BACK
from edgert.runtime.flow_run import FlowRun
from edgert.runtime.instance.report import Report, report
from gateway.daemon import Daemon
from gateway.status.activity import RESTS_S, ActivityMeter, RecentActivity
from gateway.status.all_dropped import loses_rows
from gateway.status.results import _shown
from gateway.status.sections import control_connection_drops
from tests.runtime.worlds import flow_run


def reports(run: FlowRun, now: float) -> dict[str, Report]:
    return {name: report(stage, now) for name, stage in run.stages.items()}


def said(run: FlowRun, rows: int, idle_s: float, at: float) -> dict[str, Report]:
    """What a slot says."""
    return {name: Report(rows_in=rows, idle_s=idle_s, at=at) for name in run.stages}


def test_rates_and_latency_are_those_since_the_last_look() -> None:
    run = flow_run("chains")
    meter = ActivityMeter(run)
    assert meter.look(reports(run, 1.0)) == RecentActivity()
    source, last = run.all[0], run.all[-1]
    source.counters.rows_in += 50
    source.counters.idle_s += 1.5
    last.counters.latency.add(0.010, 99)
    last.counters.latency.add(3.0, 1)
    recent = meter.look(reports(run, 3.0))
    assert recent.rates["in"] == 25.0
    assert recent.latency_ms["p50"] == pytest.approx(10.0, rel=0.1)
    assert recent.latency_ms["p99"] == pytest.approx(10.0, rel=0.1)
    assert 0.0 <= min(recent.utilisation.values()) <= max(recent.utilisation.values()) <= 1.0


def test_a_look_between_two_reports_of_a_slot_says_what_the_one_before_said() -> None:
    """Looks each 0.9 s, reports each second: a flow that takes 10 rows/s and idles for 0.8 of the time says so."""
    run = flow_run("none")
    meter = ActivityMeter(run)
    for number in range(40):
        at = 1.0 + int(0.9 * number)
        recent = meter.look(said(run, int(10 * at), 0.8 * at, at))
        if number > 1:
            assert set(recent.rates.values()) == {10.0}, number
            assert list(recent.utilisation.values()) == [pytest.approx(0.2)] * len(run.all)
            assert recent.balance == pytest.approx(0.0)


def test_slots_of_a_flow_report_at_times_of_their_own() -> None:
    run = flow_run("none")
    meter = ActivityMeter(run)
    meter.look(said(run, 0, 0.0, 5.0))
    late = next(iter(run.stages))
    told = said(run, 30, 0.5, 6.0)
    late_told = told.pop(late)
    told[late] = Report(at=5.0)
    recent = meter.look(told)
    assert late not in recent.rates
    assert set(recent.rates.values()) == {30.0}
    recent = meter.look(told | {late: late_told})
    assert set(recent.rates.values()) == {30.0}


def test_while_a_slot_that_died_has_said_nothing_the_last_figures_stand() -> None:
    run = flow_run("none")
    meter = ActivityMeter(run)
    meter.look(said(run, 0, 0.0, 5.0))
    before = meter.look(said(run, 10, 1.0, 6.0))
    assert meter.look(said(run, 10, 1.0, 0.0)) == before
    assert {round(rate, 3) for rate in meter.look(said(run, 20, 2.0, 8.0)).rates.values()} == {6.667}


def test_rates_are_averages_over_ten_seconds() -> None:
    run = flow_run("none")
    meter = ActivityMeter(run)
    for second in range(30):  # a sensor that sends 20 rows each 5 s
        recent = meter.look(said(run, 20 * (second // 5), 0.0, 1.0 + second))
        if second > 12:
            assert all(3.6 <= rate <= 4.4 for rate in recent.rates.values()), second


def test_a_flow_at_rest_is_looked_at_no_more_until_something_changes() -> None:
    run = flow_run("none")
    meter = ActivityMeter(run)
    looks = []
    for second in range(60):
        if not meter.rests(7, second):
            meter.look(said(run, 9, second, second))
            looks.append(second)
    assert looks == [*range(int(RESTS_S) + 1)]
    assert not meter.rests(8, 60.0)
    recent = meter.look(said(run, 39, 59.5, 60.0))
    assert set(recent.rates.values()) == {30.0}, "of the last second, not of the minute at rest"
    assert list(recent.utilisation.values()) == [pytest.approx(0.5)] * len(run.all)


def test_a_flow_whose_host_does_not_know_of_changes_never_rests() -> None:
    meter = ActivityMeter(flow_run("none"))
    assert not any(meter.rests(math.nan, second) for second in range(100))


def test_a_flow_of_which_no_slot_has_said_anything_has_no_figures() -> None:
    run = flow_run("none")
    meter = ActivityMeter(run)
    assert meter.look(said(run, 0, 0.0, 0.0)) == RecentActivity()
    assert meter.look(said(run, 100, 0.0, 7.0)) == RecentActivity(), "there is nothing to compare it with"


def test_of_a_sketch_that_was_shipped_its_size_is_shown() -> None:
    assert _shown({"time": 1.0, "n": 2, "u__hll": b"12345"}) == {"time": 1.0, "n": 2, "u__hll": "5 bytes"}


def test_the_source_is_shown_only_where_it_is_a_key() -> None:
    assert _shown({"source": "", "room": "hall"}, ("room",)) == {"room": "hall"}
    assert _shown({"source": "a", "n": 1}, ("source",)) == {"source": "a", "n": 1}


def test_what_was_written_to_disks_is_told_where_the_kernel_counts_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    status = Daemon(GatewaySettings(gateway=Gateway(id="g1", data_dir=str(tmp_path)))).status
    first, counted = status.object()["written_bytes"], psutil.Process().io_counters().write_bytes
    assert 0 <= first <= counted <= status.object()["written_bytes"]

    def denied() -> None:
        raise psutil.AccessDenied

    monkeypatch.setattr(status._process._process, "io_counters", denied)
    assert status.object()["written_bytes"] is None


def test_rows_that_are_kept_are_told_from_those_that_are_lost() -> None:
    reasons = {"late": True, "bad_value": True, AHEAD_KEPT: False, "bad_value (values)": False, TAKEN_BACK: False}
    assert {reason: loses_rows(reason) for reason in reasons} == reasons


def test_messages_of_the_central_broker_that_came_to_no_part_are_among_the_drops() -> None:
    link = ControlConnection(Connection(), "g1", on_message=lambda topic, payload, request: 1 / 0, max_message_bytes=10)
    assert not any(control_connection_drops(link).values())
    for payload in (b"x", b"x" * 11):
        message = MQTTMessage(topic=b"t")
        message.payload = payload
        link.client.on_message(link.client, None, message)  # type: ignore[misc]
    assert control_connection_drops(link) == {
        ("", "", "control message that is too large"): 1,
        ("", "", "control message that could not be handled"): 1,
    }
    assert control_connection_drops(None) == {}
