"""The engine's benchmark: every way of running an application gives the same rows; nothing here looks at times."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from benchmarks.__main__ import main
from benchmarks.borne import greatest_rate
from benchmarks.ingest.trace import RANGES, messages
from benchmarks.policies import measure as policies
from benchmarks.policies.picture import draw as draw_curves
from benchmarks.report import Options, Report
from benchmarks.riotbench import beside, engine
from benchmarks.riotbench.bare_loop import operators_of
from benchmarks.riotbench.flows import APPLICATIONS, BLOOM, BY_TIME, TRAINED, known_devices
from benchmarks.riotbench.measure import Run, measure
from benchmarks.riotbench.picture import draw
from benchmarks.riotbench.probe import BY_HAND, ENGINE, FUSED_LOOP, LOOP, Subject
from benchmarks.thread_per_operator import ThreadPerInstance
from edgert.core.batch import Batch, RawBatch
from edgert.core.system_clock import SystemClock
from edgert.flow.physical import Fusion
from edgert.operators.base.logic import Now, PlainMessage
from edgert.operators.bloom import KnownKeys
from edgert.runtime.flow_run import FlowRun
from edgert.runtime.instance.instance import Instance
from edgert.runtime.instance.queue import Entry
from edgert.runtime.pool.pool import Pool
from edgert.scheduling.ranked import MinMemory

ROWS = 3_000


def out(application: str) -> int:
    """Messages for the first `ROWS` rows that go in."""
    trace, _ = messages()
    rows = [json.loads(message.payload)["e"] for message in trace]
    values = [{e["n"]: float(e["v"]) for e in row if "v" in e} for row in rows]
    valid = sum(all(low <= v[name] <= high for name, (low, high) in RANGES.items()) for v in values)
    known = KnownKeys(["source"], known_devices(), BLOOM["false_positive_rate"])
    given = Batch([{"source": message.topic.split("/")[1]} for message in trace], 0.0)
    (passed,) = known.process(given, 0, Now(0.0, 0.0))
    rounds = ROWS // len(trace)
    return {
        "etl": len(passed.batch) * rounds,
        "stats": 3 * len(passed.batch) * rounds,
        "pred": 2 * ROWS,
        "train": 3 * (valid * rounds // TRAINED),
    }[application]


def feed(application: str) -> engine.Feed:
    return engine.Feed(20_000, 0.01, time_goes_on=application in BY_TIME)


def finish(run: FlowRun, told: list[int]) -> None:
    """What the end of the run left in queues, and what still waits in operators."""
    now = Now(0.0, 0.0)
    for instance in run.all:
        for entry in (*instance.queue.take_all(), None):
            turn = instance.finish(now) if entry is None else instance.run([entry], now)
            told[0] += len(turn.messages)
            for target, batch in turn.out:
                target.instance.queue.append(Entry(target.source, batch))


@pytest.mark.parametrize("application", APPLICATIONS)
@pytest.mark.parametrize("fusion", ["full", "chains", "none"])
@pytest.mark.parametrize("dedicated", [False, True], ids=["pool", "owpoa"])
def test_a_pool_does_what_the_loop_does(application: str, fusion: Fusion, dedicated: bool) -> None:
    told, looped = [0], [0]

    def send(instance: Instance, sent: Sequence[PlainMessage]) -> None:
        told[0] += len(sent)

    run = engine.flow_run(application, fusion)
    pool = ThreadPerInstance(SystemClock(), send=send) if dedicated else Pool(SystemClock(), send=send)
    result = engine.pooled(run, pool, feed(application), 0.05, 0.1, told)
    baseline = engine.flow_run(application, "chains")
    step = operators_of(baseline, looped)
    for batch in feed(application).due(0.15):
        step(batch)
    finish(run, told)
    finish(baseline, looped)
    assert told == looped == [out(application)]
    assert (result["shed"], result["failures"]) == (0, 0)
    assert result["rows"] > 0
    if result["p99_ms"] is not None:  # on a busy machine nothing may have reached its end by then
        assert result["p99_ms"] >= result["p50_ms"] > 0
    allowed = {"etl": {"absent (values)"}, "stats": set()}.get(application, {"incomplete window"})
    assert {reason for place in run.stages.values() for reason in place.logic.drops} <= allowed


def test_the_policy_is_told_what_rows_cost_when_the_warm_up_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or min-memory knows no rank, and is first come, first served."""
    run, pool, fed = engine.flow_run("pred", "chains"), Pool(SystemClock(), policy=MinMemory()), feed("pred")
    began, profile, asked = time.monotonic(), pool.profile, list[float]()

    def noted() -> None:
        asked.append(time.monotonic() - began)
        profile()

    monkeypatch.setattr(pool, "profile", noted)
    engine.pooled(run, pool, fed, 0.05, 0.1, [0])
    assert asked
    assert asked[0] >= 0.05


class Late(engine.Feed):
    def due(self, seconds: float, first: int = 0) -> Iterator[RawBatch]:
        yield self.batch(0, 100, time.monotonic() - 0.5)


def test_what_the_bare_loop_bears_is_measured_as_what_pools_bear() -> None:
    for _ in range(10):  # who stands still at the start is fed all of it after the warm-up
        told = [0]
        run = engine.flow_run("pred", "chains")
        result = engine.looped(run, feed("pred"), 0.05, 0.1, told)
        if result["rows"] < ROWS:
            break
    assert told == [out("pred")]
    assert (result["shed"], result["failures"], result["left"]) == (0, 0, 0)
    assert ROWS > result["rows"] > 0
    assert result["p99_ms"] >= result["p50_ms"] > 0
    assert engine.looped(run, Late(20_000, 0.01), 0.0, 0.1, told)["p50_ms"] >= 500 / 1.1, "from when it was due"


def test_the_sides_that_are_compared_take_turns_and_do_the_same() -> None:
    told = beside.compared("pred", engine.Feed(2_000, 0.01), 0.3, turn_s=0.06, cold_s=0.01)
    assert list(told["sides"]) == [ENGINE, LOOP, FUSED_LOOP, BY_HAND]
    for side in told["sides"].values():
        assert side["told"] >= 2 * side["rows"] > 0, "what a turn begins with is sent and not counted"
        assert 0.0 < side["cpu_us"] < 1e5
    assert (told["shed"], told["failures"]) == (0, 0)


def test_a_batch_goes_on_where_the_last_ended_and_over_the_end_of_the_trace() -> None:
    batches = list(engine.Feed(90_000, 0.01).due(0.03))
    assert batches[1].payloads[100:] == batches[0].payloads[:800]
    assert [len(batch) for batch in batches] == [900, 900, 900]
    topics = [topic for batch in batches for topic in batch.topics]
    assert topics[1000:2000] == topics[:1000]
    assert [round(b.arrival - batches[0].arrival, 6) for b in batches] == [0.0, 0.01, 0.02]


def test_a_load_may_go_on_where_a_warm_up_has_ended() -> None:
    (batch,) = engine.Feed(2_000, 0.01).due(0.01, 300)
    assert batch.payloads == engine.Feed(2_000, 0.01).batch(300, 320, 0.0).payloads


def test_time_goes_on_when_the_trace_begins_anew() -> None:
    plain, later = (list(engine.Feed(90_000, 0.01, time_goes_on=on).due(0.03)) for on in (False, True))
    assert [batch.topics for batch in later] == [batch.topics for batch in plain]
    payloads = [[json.loads(p) for batch in batches for p in batch.payloads] for batches in (plain, later)]
    for number, (one, other) in enumerate(zip(*payloads, strict=True)):
        assert other == one | {"bt": one["bt"] + 60_000 * (number // 1_000)}
    assert {p["bt"] // 60_000 - payloads[0][0]["bt"] // 60_000 for p in payloads[0]} == {0}, "a round is a minute"


def test_one_application_can_be_chosen(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["riotbench", "--application", "sort"]) == 2
    assert "expected one of etl, stats, pred, train, got: sort" in capsys.readouterr().err
    assert main(["ingest", "--application", "etl"]) == 2
    assert "ingest has no applications" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("capacity", "rate"), [(11_000.0, 10_900.0), (40_000.0, 38_416.0), (3_000.0, 2_970.25), (0.0, 78.125)]
)
def test_the_rate_borne_is_looked_for_upwards_and_downwards(capacity: float, rate: float) -> None:
    found, any_at_all = greatest_rate(lambda tried: tried <= capacity, 10_000.0, quick=False)
    assert found == pytest.approx(rate, rel=1e-3)
    assert any_at_all == (capacity > 0)


def test_a_rate_that_was_disturbed_once_is_tried_again() -> None:
    tried: list[float] = []

    def bears(rate: float) -> bool:
        tried.append(rate)
        return rate < 15_000.0 and tried.count(rate) == 2

    assert greatest_rate(bears, 10_000.0, quick=True) == (14_000.0, True)


TOLD: dict[str, Any] = {
    "mean_ms": 1.5, "p50_ms": 1.0, "cpu_us": 8.0, "longest": 7, "balance": 0.5, "switches": 0.01,
    "preempted": 0.002, "waited": 0.5, "shed": 0, "failures": 0,
}  # fmt: skip


def seen(rate: float) -> dict[str, Any]:
    return TOLD | {"p99_ms": 10.0 if rate <= 20_000 else 1e3}


def test_a_run_compares_what_both_bear(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(Run, "probe", lambda self, application, subject, rate, *spans: seen(rate))
    sides = {name: {"cpu_us": cost} for name, cost in ((ENGINE, 8.0), (LOOP, 6.4), (FUSED_LOOP, 6.25), (BY_HAND, 4.0))}
    monkeypatch.setattr(Run, "sides", lambda self, application, load: seen(load[0]) | {"sides": sides})
    report = Report("riotbench", "x", {}, 2)
    measure(Options(False, 2, say=lambda text: None, applications=("pred",)), report)
    assert report.ratios["pred: owpoa / congestion-aware, rate borne"].values == [1.0, 1.0]
    assert not report.ratios["pred: owpoa / congestion-aware, rate borne"].holds, "the published gain"
    assert report.ratios["pred, 20,000 rows/s, 100 at a time: engine / loop"].values == [1.25, 1.25]
    assert not report.ratios["pred, 20,000 rows/s, 100 at a time: engine / fused loop"].holds
    assert report.figures["pred, 20,000 rows/s, 100 at a time: engine"].holds
    bars = {f.name: f.bar.limit for f in report.figures.values() if f.bar}
    assert bars == {
        "pred, 20,000 rows/s, 100 at a time: engine": 8.0,
        "pred, 1,000 rows/s, 100 at a time: engine": 13.0,
    }
    beside = report.ratios["pred, 1,000 rows/s, 100 at a time: engine / by hand"]
    assert (beside.values, beside.bar) == ([2.0, 2.0], None), "leaner by hand is no fault of the engine's"
    assert report.ratios["pred: owpoa / loop, rate borne"].values == [1.0, 1.0]
    for kind, count in (("voluntary", 10.0), ("involuntary", 2.0)):
        assert report.figures[f"context switches, {kind}: pred, 40% of that: owpoa"].values == [count, count]
    assert draw(report, tmp_path).stat().st_size > 10_000


def test_every_policy_is_measured_at_the_same_rates_and_drawn(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def probe(folder: Path, application: str, subject: Subject, rates: Sequence[float], *_: Any) -> list[Any]:
        told = [seen(rate) for rate in rates]
        if subject == policies.SUBJECTS[0] and len(rates) > 1:
            told[0]["shed"], told[1]["p99_ms"] = 7, None
        return told

    monkeypatch.setattr(policies, "probe", probe)
    report = Report("policies", "x", {}, 2)
    policies.measure(Options(False, 2, say=lambda text: None, applications=("pred",)), report)
    written = json.loads(report.write_json(tmp_path).read_text())
    curves = written["curves"]["pred"]
    assert list(curves) == [subject.label for subject in policies.SUBJECTS]
    assert len({tuple(point["rate"] for point in curve) for curve in curves.values()}) == 1
    assert all(len(point["p99_ms"]) == 2 for curve in curves.values() for point in curve)
    first = curves[policies.SUBJECTS[0].label]
    assert [point["faults"] for point in first] == [["7 rows or batches were lost"] * 2, [], [], []]
    assert first[1]["p99_ms"] == [None, None]
    losses = written["figures"]["pred, points with losses"]
    assert (losses["values"], losses["valid"]) == ([2], False)
    assert "7 rows or batches were lost" in losses["faults"][0]
    assert "no row came out (2 times)" in report.notes[-1]
    assert draw_curves(report, tmp_path).stat().st_size > 10_000
