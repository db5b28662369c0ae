"""What the status says of the last second."""

from __future__ import annotations

import pytest

from edgert.runtime.flow_run import FlowRun
from edgert.runtime.report import report
from gateway.status import _Counts, _Recent
from tests.runtime.test_flow_run import flow_run


def counts(run: FlowRun, now: float) -> _Counts:
    return _Counts(run, {name: report(place, now) for name, place in run.places.items()})


def test_rates_and_latency_are_those_since_the_last_look() -> None:
    run = flow_run("chains")
    before = counts(run, 0.0)
    source, last = run.all[0], run.all[-1]
    source.counters.rows_in += 50
    source.counters.idle_s += 1.5
    last.latency.add(0.010, 99)
    last.latency.add(3.0, 1)
    recent = counts(run, 2.0).since(before, 2.0)
    assert recent.rates["in"] == 25.0
    assert recent.latency_ms["p50"] == pytest.approx(10.0, rel=0.1)
    assert recent.latency_ms["p99"] == pytest.approx(10.0, rel=0.1)
    assert 0.0 <= min(recent.utilisation.values()) <= max(recent.utilisation.values()) <= 1.0


def test_a_new_version_of_a_flow_begins_anew() -> None:
    old, new = flow_run(), flow_run()
    old.all[-1].latency.add(0.01, 1_000)
    assert counts(new, 1.0).since(counts(old, 0.0), 1.0) == _Recent()
    assert counts(new, 1.0).since(None, 1.0) == _Recent()
