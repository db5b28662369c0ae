"""The engine's benchmark: every way of running an application gives the same rows; nothing here looks at times."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from benchmarks.report import Report
from benchmarks.riotbench import engine
from benchmarks.riotbench.flows import APPLICATIONS
from benchmarks.riotbench.picture import draw
from edgert.core.system_clock import SystemClock
from edgert.flow.physical import Fusion
from edgert.operators.logic import Message
from edgert.runtime.instance import Instance
from edgert.runtime.owpoa import ThreadPerInstance
from edgert.runtime.pool import Pool

OUT = {"pred": 2}
"""Rows at the sinks for each that goes in."""


def feed() -> engine.Feed:
    return engine.Feed(20_000, 0.01)


@pytest.mark.parametrize("application", APPLICATIONS)
@pytest.mark.parametrize("fusion", ["full", "chains", "none"])
@pytest.mark.parametrize("dedicated", [False, True], ids=["pool", "owpoa"])
def test_a_pool_does_what_the_loop_does(application: str, fusion: Fusion, dedicated: bool) -> None:
    told, looped = [0], [0]

    def send(instance: Instance, sent: Sequence[Message]) -> None:
        told[0] += len(sent)

    run = engine.flow_run(application, fusion)
    pool = ThreadPerInstance(SystemClock(), send=send) if dedicated else Pool(SystemClock(), send=send)
    result = engine.pooled(run, pool, feed(), 0.05, 0.1, told)
    for instance in run.all:  # what the end of the run left
        for entry in instance.queue.take_all():
            turn = instance.run([entry], engine.Now(0.0, 0.0))
            told[0] += len(turn.messages)
            for target, batch in turn.out:
                target.instance.queue.append(type(entry)(target.source, batch))
    baseline = engine.flow_run(application, fusion)
    again = engine.looped(baseline, feed(), 0.05, 0.1, looped)
    assert told == looped == [3_000 * OUT[application]]
    for outcome in (result, again):
        assert (outcome["shed"], outcome["failures"]) == (0, 0)
        assert outcome["rows"] > 0
        assert outcome["p99_ms"] >= outcome["p50_ms"] > 0
    assert not any(place.logic.drops for place in run.places.values())


def test_a_batch_goes_on_where_the_last_ended_and_over_the_end_of_the_trace() -> None:
    batches = list(engine.Feed(90_000, 0.01).due(0.03))
    assert [len(batch) for batch in batches] == [900, 900, 900]
    topics = [topic for batch in batches for topic in batch.topics]
    assert topics[1000:2000] == topics[:1000]
    assert [round(b.arrival - batches[0].arrival, 6) for b in batches] == [0.0, 0.01, 0.02]


def test_the_picture_shows_the_curves_of_the_notes(tmp_path: Path) -> None:
    report = Report("riotbench", "x", {}, 1, notes=["curve of pred: owpoa: [[1000, 2.0, 0.5], [2000, 3.0, 0.4]]"])
    assert draw(report, tmp_path).stat().st_size > 10_000
