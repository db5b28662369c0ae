"""The ledger of cost: its file, its verdict, and the gateway without threads that is counted."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.cost import ledger
from benchmarks.cost.ledger import Entry
from benchmarks.cost.stand import Stand
from benchmarks.cost.workloads import IDLE, SPACING_S, WORKLOADS, Workload, filtered, idle_document

BUILD = "CPython"


def _entry(instructions: int, figure: str = "JSON", build: str = BUILD) -> Entry:
    return Entry(build, figure, instructions, "2026-11-28", "first figures")


@pytest.mark.parametrize(("counted", "dearer"), [(1000.0, False), (1009.0, False), (1011.0, True), (900.0, False)])
def test_more_than_a_hundredth_above_the_ledger_is_dearer(counted: float, dearer: bool) -> None:
    (one,) = ledger.compare({"JSON": counted}, [_entry(2000), _entry(1000)], BUILD)
    assert one.dearer is dearer
    assert ("DEARER" in ledger.table([one])) is dearer


def test_figures_of_another_interpreter_are_no_measure() -> None:
    (one,) = ledger.compare({"JSON": 5000.0}, [_entry(1000, build="PyPy")], BUILD)
    assert one.ledger is None
    assert not one.dearer


def test_a_written_figure_counts_from_then_on(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    for instructions in (1000.4, 1200.0):
        ledger.write({"JSON": instructions}, BUILD, "2026-11-28", "a bound per batch", path)
    assert ledger.newest(ledger.read(path), BUILD) == {"JSON": 1200}
    assert [entry.instructions for entry in ledger.read(path)] == [1000, 1200]


@pytest.mark.parametrize("line", ["{", '{"build": "x"}', json.dumps([1])])
def test_a_damaged_line_is_named(tmp_path: Path, line: str) -> None:
    path = tmp_path / "ledger.jsonl"
    path.write_text(line + "\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"ledger\.jsonl, line 1: expected an entry"):
        ledger.read(path)


def test_the_ledger_has_all_figures_of_its_builds() -> None:
    figures = {f"{w.name}, reads of {size}" for w in WORKLOADS for size in w.reads} | {idle.name for idle in IDLE}
    entries = ledger.read()
    for build in {entry.build for entry in entries}:
        assert set(ledger.newest(entries, build)) == figures


@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda workload: workload.name)
def test_the_counted_gateway_does_the_work(tmp_path: Path, workload: Workload) -> None:
    documents = list(workload.documents())[:3]
    stand = Stand(tmp_path, documents)
    broker, wall = stand.loop.broker, stand.clock.wall()
    reads = [
        broker.publish(workload.message(n, wall + n * SPACING_S), workload.qos, n)
        for n in range(1, 301)
    ]  # fmt: skip
    for read in reads[:200]:
        stand.feed([read], SPACING_S)
        stand.drain()
    before = broker.written
    stand.feed([b"".join(reads[200:])], SPACING_S, checkpoint_after=1)
    assert not stand.pool.policy.waiting, "the loop's thread did all work"
    for run in stand.gateway.flows.runs.values():
        source = run.all[0]
        assert source.counters.rows_in == 300
        assert not source.delivery.unsent
    assert broker.written > before or not workload.qos, "acknowledgements and publications"


def test_half_of_the_messages_are_published_again(tmp_path: Path) -> None:
    stand = Stand(tmp_path, [filtered()])
    workload = WORKLOADS[0]
    for n in range(60):
        stand.feed([stand.loop.broker.publish(workload.message(n, 0.0), 0, 0)], SPACING_S)
        stand.drain()
    outputs = stand.gateway.flows.runs["filtered"].all[-1]
    assert stand.gateway.ingest.client.session.has_output is False, "all is written"
    assert outputs.counters.rows_in == 60
    assert stand.loop.broker.published == 30


def test_an_idle_gateway_wakes_by_its_timers(tmp_path: Path) -> None:
    stand = Stand(tmp_path, [idle_document(0)])
    began = stand.loop.time()
    stand.run(30.0)
    assert stand.loop.time() - began == pytest.approx(30.0)
    assert stand.gateway.ingest.client.status.connected, "the broker answers pings"
