"""The benchmark of overload: its ledger finds a row that went astray, its bounds are those of the pool."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmarks.__main__ import find
from benchmarks.ingest.trace import messages
from benchmarks.overload import measure as overload
from benchmarks.overload.engine import Engine
from benchmarks.overload.measure import OVERLOADS, Run
from benchmarks.overload.offer import MOST_ROWS, Offer
from benchmarks.overload.picture import draw
from benchmarks.overload.watch import ledger
from benchmarks.report import Options, Report
from gateway.ingest.message_size import size_of

ROWS = 15_000
"""More than a source's queue holds."""


def fed(application: str, policy: str) -> Engine:
    """`ROWS` put on the source's queue before anything runs."""
    engine = Engine(application, policy)
    offer = Offer(1.0, 1.0)
    for first in range(0, ROWS, MOST_ROWS):
        batch = offer.batch(first, first + MOST_ROWS, 0.0)
        engine.pool.put([(source, 0, batch) for source in engine.sources])
        engine.fed += len(batch)
    return engine


@pytest.mark.parametrize("policy", OVERLOADS)
@pytest.mark.parametrize("application", ["pred", "stats"])
def test_every_row_is_decoded_or_dropped_with_a_count_or_waits(application: str, policy: str) -> None:
    engine = fed(application, policy)
    (source,) = engine.sources
    assert source.queue.overload == policy
    before = ledger(engine.run, engine.fed, engine.sent)
    assert before["dropped"] == source.delivery.shed == ROWS - source.queue.rows > 0
    assert (before["decoded"], before["missing"], before["amiss"]) == (0, 0, 0)
    engine.pool.start()
    told = engine.close()
    assert told["at_end"] == before | {"decoded": source.counters.rows_in, "queued": 0}
    assert told["at_end"]["decoded"] == ROWS - source.delivery.shed
    assert told["under_way"]["missing"] == told["under_way"]["amiss"] == 0
    if application == "pred":
        assert engine.sent.total() == 2 * source.counters.rows_in
    assert 0.9 < told["fullness"]["source"] <= 1.0
    assert 0.0 < told["fullness"]["inner"] <= 1.0


def test_what_no_counter_tells_is_missing_or_amiss() -> None:
    engine = fed("pred", "shed-oldest")
    (source,) = engine.sources
    taken = sum(len(entry.batch) for entry in source.queue.take(1))
    assert ledger(engine.run, engine.fed, engine.sent)["missing"] == taken
    classify = engine.run.instances["classify+brief_class+classes"]
    classify.counters.rows_in += 1
    classify.logic.took[0] += 1  # type: ignore[attr-defined]
    assert ledger(engine.run, engine.fed, engine.sent)["amiss"] == 1
    engine.sent["classes"] += 2
    assert ledger(engine.run, engine.fed, engine.sent)["amiss"] == 3


def test_a_queue_may_hold_its_budget_and_a_turn_of_each_that_feeds_it() -> None:
    engine = fed("pred", "shed-oldest")
    (source,) = engine.sources
    regress, average = (engine.run.instances[name] for name in ("regress", "average"))
    join = engine.run.instances["beside+error+brief_error+errors"]
    engine.pool.turns |= {(regress, join): 700, (average, join): 50, (source, regress): 9}
    assert engine.pool.bound(source) == source.queue.budget_bytes == 4_194_304
    assert engine.pool.bound(join) == join.queue.budget_bytes + 750
    engine.pool.most[join] = join.queue.budget_bytes + 750
    fullness = engine.pool.fullness(engine.run)
    assert (fullness["inner"], fullness["excess"]) == (1.0, 750)


def test_what_was_not_fed_in_time_comes_at_once_in_batches_of_a_read(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([0.0, 0.0, 0.011, 0.011, 0.011, 0.011, 0.011, 0.1])
    monkeypatch.setattr("benchmarks.overload.offer.time.monotonic", lambda: next(clock))
    monkeypatch.setattr("benchmarks.overload.offer.time.sleep", lambda seconds: None)
    offer = Offer(100_000, 0.005)
    told = [(len(batch), offer.waiting, round(batch.arrival, 6)) for batch in offer.due(0.1)]
    assert told == [(500, 500, 0.005), (500, 0, 0.01)]


def test_payloads_are_those_of_the_trace_also_over_its_end_and_copies() -> None:
    trace, _ = messages()
    offer = Offer(1.0, 1.0)
    one, again = (offer.batch(len(trace) - 1, len(trace) + 2, 0.0) for _ in range(2))
    assert one.payloads == [trace[-1].payload, trace[0].payload, trace[1].payload]
    assert one.topics == [trace[-1].topic, trace[0].topic, trace[1].topic]
    assert one.payloads[0] is not again.payloads[0]
    assert one.size == size_of(one.topics, sum(map(len, one.payloads)))


LOOKS = [
    {"at": float(at), "rss_mb": 40.0 + at / 100, "source_mb": 4.0, "inner_mb": 1.0, "fed": 300 * at, "done": 100 * at}
    for at in range(1, 121)
]
LEDGER = {"fed": 36_000, "decoded": 12_000, "dropped": 23_900, "queued": 100, "missing": 0, "amiss": 0}


def result(rate: float, **changed: Any) -> dict[str, Any]:
    told = {
        "p50_ms": 5.0, "p99_ms": 10.0 if rate <= 40_000 else 900.0, "shed": 0, "failures": 0, "cpu_us": 25.0,
        "rss_before_mb": 30.0,
        "fed_per_s": rate, "done_per_s": min(rate, 40_000.0), "under_way": LEDGER, "at_end": LEDGER,
        "fullness": {"source": 1.0, "inner": 0.9, "excess": 7},
    }  # fmt: skip
    return told | changed


@pytest.mark.parametrize(
    ("changed", "what"),
    [
        ({}, None),
        ({"fed_per_s": 90_000.0}, "rate fed"),
        ({"done_per_s": 20_000.0}, "sustainable / done"),
        ({"failures": 1}, "rate done"),
        ({"under_way": LEDGER | {"missing": -1}}, "rows missing in the ledger"),
        ({"at_end": LEDGER | {"amiss": 1}}, "rows amiss behind the decoder"),
        ({"at_end": LEDGER | {"dropped": 0}}, "rows dropped"),
        ({"fullness": {"source": 1.01, "inner": 0.9, "excess": 0}}, "source's queue, most / budget"),
        ({"fullness": {"source": 0.9, "inner": 1.01, "excess": 9}}, "inner queues, most / bound"),
        ({"growth": 1.3}, "memory, end / third"),
    ],
)
def test_each_bar_can_fail(
    changed: dict[str, Any], what: str | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    growth = changed.get("growth", 1.0)

    def load(self: Run, application: str, policy: str, rate: float, seconds: float) -> Any:
        looks = [look | {"rss_mb": look["rss_mb"] * (growth if look["at"] > 60 else 1)} for look in LOOKS]
        return looks, result(rate, **changed) if seconds > 100 else result(rate)

    monkeypatch.setattr(Run, "load", load)
    report = Report("overload", "x", {}, 1)
    overload.measure(Options(False, 1, lambda text: None, ("pred",)), report)
    failed = {f.name.partition(": ")[2] for f in (*report.figures.values(), *report.ratios.values()) if not f.holds}
    assert what in failed if what else not failed
    assert report.figures["pred, shed-oldest: sustainable rate"].values == [pytest.approx(38_416)]
    assert report.figures["pred, shed-newest: resident memory before"].values == [30.0]
    points = report.curves["pred, sample"]
    assert len(points) == 60
    assert points[1] == {
        "at": 4.0, "rss_mb": 40.04, "source_mb": 4.0, "inner_mb": 1.0, "fed_per_s": 300, "done_per_s": 100,
    } or growth != 1.0  # fmt: skip
    assert what or draw(report, tmp_path).stat().st_size > 10_000


def test_pred_is_measured_unless_told() -> None:
    assert (find("overload").usual, find("overload").applications) == (("pred",), ("pred", "stats"))


@pytest.mark.integration
def test_under_a_real_load_it_says_how_it_stood_and_what_became_of_the_rows(tmp_path: Path) -> None:
    run = Run(Options(True, 1, lambda text: None), Report("overload", "x", {}, 1), tmp_path)
    looks, told = run.load("pred", "shed-oldest", 5_000, 2.5)
    assert looks[0].keys() >= {"at", "rss_mb", "source_mb", "inner_mb", "fed", "done"}
    for of in (told["under_way"], told["at_end"]):
        assert (of["missing"], of["amiss"]) == (0, 0)
    assert told["at_end"]["fed"] > 0
