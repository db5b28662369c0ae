"""What a gateway may send that is well-formed and absurd: it goes to quarantine, and neither collector nor fleet job
stands still for it."""

from __future__ import annotations

import struct
import tracemalloc
from pathlib import Path
from typing import Any

import msgpack
import pytest
from deltalake import DeltaTable

from edgert.central.collector.collector import Collector
from edgert.central.collector.inbox import ResultMessage
from edgert.central.collector.messages import memory_of
from edgert.central.collector.turns import FIRST_QUOTA
from edgert.central.landing import arrow_rows
from edgert.central.landing.checks import check_rows
from edgert.central.landing.landing import Landing
from edgert.central.landing.sketch_checks import is_kll
from edgert.central.tables.query import query
from edgert.central.tables.table import TableError
from edgert.core.clock import VirtualClock
from edgert.core.compression import compressed
from edgert.core.ids import MOST_ORDINAL, ORDINAL_STEP
from edgert.core.results.result_schema import Schema, row_columns
from edgert.core.results.results import (
    MOST_STREAMS,
    Numbered,
    OpenBatch,
    RefusedBatch,
    RowsBatch,
    pack_result,
    results_topic,
    unpack_result_untrusted,
)
from tests.central.results_examples import FLOW, SCHEMA, Gateway, contribution

EPOCH = 1 << 32


def packed(gateway: Gateway, **body: Any) -> bytes:
    return bytes(msgpack.packb({"v": 1, **gateway.number(0), **body}))


def sent(gateway: str, payload: bytes) -> ResultMessage:
    return ResultMessage(results_topic("f", gateway, FLOW), payload)


@pytest.fixture
def collector(tmp_path: Path) -> Collector:
    return Collector("c1", Landing(str(tmp_path)), VirtualClock(), 10.0, 1 << 20)


def quarantine(root: Path) -> list[dict[str, Any]]:
    return query(DeltaTable(str(root / "quarantine")))


COLUMNS = list(row_columns(SCHEMA))
ABSURD = [(2**40, 1), (16, 1), (-1, 1), (0, 2**64 - 1), (0, 2**63)]
DEEP: Any = 1
for _ in range(400):
    DEEP = [DEEP]


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ({"kind": "gap", "reason": "quota", "rows": 2**63, "text": ""}, "gap: expected rows as an integer from 0"),
        ({"kind": "gap", "reason": "quota", "rows": 2**63 - 1, "text": ""}, "gap: expected rows as an integer from 0"),
        ({"kind": "drops", "drops": [["in", "late", 2**63]]}, "drops: expected [operator, reason, count]"),
        ({"kind": "drops", "drops": [["in", "late" * 999, 1]]}, "drops: expected [operator, reason, count]"),
        ({"kind": "drops", "drops": [["in", "late", 1]] * 257}, "drops: expected a list of 1 to 256 entries"),
        ({"kind": "drops", "drops": {b"x": 1}}, "drops: expected a list of 1 to 256 entries"),
        ({"kind": "drops", "drops": {b"x": DEEP}}, "expected MessagePack, got 493 bytes: expected at most 148 lists"),
        ({"kind": "later", "rows": 1}, "kind: expected open, rows, gap, drops or hello"),
        ({"kind": "rows", "columns": COLUMNS, "rows": [{b"x": 1}]}, "row: expected 12 values"),
        ({"kind": "rows", "columns": COLUMNS, "rows": [[{b"x": 1}] * 12]}, "window_start: expected a time"),
        ({"kind": "rows", "columns": ["a"], "rows": [{b"x": 1}]}, "columns: expected window_start"),
        ({"kind": "rows", "columns": COLUMNS, "rows": [DEEP]}, "expected MessagePack, got 581 bytes: expected at most"),
    ],
)
def test_poison_goes_to_quarantine_and_others_go_on(
    collector: Collector, tmp_path: Path, body: dict[str, Any], reason: str
) -> None:
    bad, good = Gateway("g1"), Gateway("g2")
    collector.handle([sent("g1", pack_result(bad.open())), sent("g2", pack_result(good.open()))])
    said = collector.handle(
        [sent("g1", packed(bad, **body)), sent("g2", pack_result(good.rows(contribution(0, "a", 1.0))))]
    )
    assert {a.gateway: a.acks for a in said} == {"g1": {(FLOW, EPOCH, 0): 2}, "g2": {(FLOW, EPOCH, 0): 2}}
    (kept,) = quarantine(tmp_path)
    assert (kept["gateway"], kept["sequence"]) == ("g1", 2)
    assert kept["reason"].startswith(reason)


@pytest.mark.parametrize(
    ("cut", "why"),
    [
        *(({at: value}, "cut: expected a map from stream (below 16)") for at, value in ABSURD),
        (dict.fromkeys(range(100_000), 1), "expected MessagePack, got 468765 bytes: 100000 exceeds max_map_len"),
    ],
)
def test_an_opening_with_an_absurd_cut_is_refused(cut: dict[int, int], why: str) -> None:
    g = Gateway("g1", epoch=2 << 32)
    payload = packed(g, kind="open", schema=SCHEMA.plain(), parent=EPOCH, cut=cut)
    result = unpack_result_untrusted(payload)
    assert isinstance(result, RefusedBatch)
    assert result.reason.startswith(why)


@pytest.mark.parametrize("at", [3, 4, 6])
def test_counts_that_would_overflow_a_sum_are_refused(at: int) -> None:
    row = contribution(0, "a", 1.0)
    row[at] = 2**40 + 1
    good = contribution(0, "a", 1.0)
    good[at] = 2**40
    checked = check_rows(Gateway("g1").rows(row, good), SCHEMA)
    assert checked.count == 1
    assert "expected a count from 0 to 1099511627776, got 1099511627777" in checked.refused[0][1]


def kll(levels: int, on_top: int) -> bytes:
    """A well-formed sketch whose values are all on its highest level: each stands for 2**(levels - 1)."""
    capacity = sum(max(8, (2 * 200 * 2**depth // 3**depth + 1) >> 1) for depth in range(levels))
    head = struct.pack("<4BH2BQH2B", 5, 1, 15, 0, 200, 8, 0, on_top << (levels - 1), 200, levels, 0)
    offsets = struct.pack(f"<{levels}I", *[capacity - on_top] * levels)
    return head + offsets + struct.pack(f"<{on_top + 2}d", 1.0, 2.0, *[1.0 + n / 1_000 for n in range(on_top)])


@pytest.mark.parametrize(
    ("levels", "on_top", "good"), [(60, 15, False), (60, 8, False), (42, 8, False), (37, 16, True)]
)
def test_quantiles_of_more_values_than_there_can_be_are_refused(levels: int, on_top: int, good: bool) -> None:
    assert is_kll(kll(levels, on_top)) == good


def test_a_fault_over_one_result_sends_it_alone_to_quarantine(
    collector: Collector, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever no check foresaw."""
    g, other = Gateway("g1"), Gateway("g2")
    collector.handle([sent("g1", pack_result(g.open())), sent("g2", pack_result(other.open()))])
    make = arrow_rows._landing_part

    def breaks(batch: Any, *rest: Any) -> Any:
        if (batch.gateway, batch.sequence) == ("g1", 3):
            raise OverflowError("int too big")
        return make(batch, *rest)

    monkeypatch.setattr(arrow_rows, "_landing_part", breaks)
    batches = [g.rows(contribution(n, "a", 1.0)) for n in range(3)]
    batches.insert(1, other.rows(contribution(0, "b", 1.0)))
    said = collector.handle([sent(b.gateway, pack_result(b)) for b in batches])
    assert {a.gateway: a.acks for a in said} == {"g1": {(FLOW, EPOCH, 0): 4}, "g2": {(FLOW, EPOCH, 0): 2}}
    (kept,) = quarantine(tmp_path)
    assert (kept["gateway"], kept["sequence"]) == ("g1", 3)
    assert kept["reason"] == "could not be landed: OverflowError('int too big')"
    assert b"'a', 1, 1, 1.0" in kept["payload"]
    rows = query(DeltaTable(str(tmp_path / "landing" / FLOW)), ["gateway", "sequence"], "day IS NOT NULL")
    assert sorted((r["gateway"], r["sequence"]) for r in rows) == [("g1", 2), ("g1", 4), ("g2", 2)]


def test_a_fault_over_a_message_does_not_end_the_collector(
    collector: Collector, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    take = Collector._take

    def breaks(self: Collector, message: ResultMessage, result: Any) -> None:
        if result.gateway == "g1":
            raise RuntimeError("what nobody thought of")
        take(self, message, result)

    monkeypatch.setattr(Collector, "_take", breaks)
    said = collector.handle([sent(name, pack_result(Gateway(name).open())) for name in ("g1", "g2")])
    assert [a.gateway for a in said] == ["g2"]
    (kept,) = quarantine(tmp_path)
    assert kept["reason"] == "could not be taken: RuntimeError('what nobody thought of')"
    assert not collector.waits


def test_a_fault_of_the_whole_is_told_and_tried_again(collector: Collector, monkeypatch: pytest.MonkeyPatch) -> None:
    def breaks(*_: Any) -> None:
        raise RuntimeError("what nobody thought of")

    monkeypatch.setattr(Landing, "land", breaks)
    assert collector.handle([sent("g1", pack_result(Gateway("g1").open()))]) == []
    assert (collector.counters.failures, collector.counters.last_error) == (1, "what nobody thought of")
    assert collector.waits
    monkeypatch.undo()
    (said,) = collector.handle([])
    assert said.acks == {(FLOW, EPOCH, 0): 1}


def test_while_tables_cannot_be_written_no_more_is_taken_than_at_first(
    collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A message that waits is small; what is taken of it may be a thousand times as large."""

    def away(*_: Any) -> None:
        raise TableError("the store is away", "quarantine")

    g = Gateway("g1")
    messages = [sent("g1", pack_result(g.open()))]
    messages += [sent("g1", pack_result(g.rows(contribution(n, "a", 1.0)))) for n in range(4 * FIRST_QUOTA)]
    monkeypatch.setattr(Landing, "land", away)
    collector.handle(messages)
    for _ in range(5):
        collector.handle([])
        assert collector.counters.messages <= FIRST_QUOTA
    monkeypatch.undo()
    while collector.waits or collector.late:
        collector.handle([])
    assert collector.counters.rows == 4 * FIRST_QUOTA


@pytest.mark.parametrize("row", [None, 0, [], DEEP], ids=["nil", "0", "empty", "deep"])
@pytest.mark.parametrize("rows", [200, 9_000, 100_000])
def test_a_batch_of_nothing_but_bad_rows_is_one_row_in_quarantine_and_holds_up_no_other(
    collector: Collector, tmp_path: Path, row: Any, rows: int
) -> None:
    """A few hundred bytes once they are compressed; each row of it cost as much as the whole."""
    hostile, honest = Gateway("g1"), Gateway("g2")
    rows = rows if row is not DEEP else rows // 100
    bad = sent("g1", compressed(packed(hostile, kind="open", schema=SCHEMA.plain(), parent=None, cut={})))
    many = sent("g1", compressed(packed(hostile, kind="rows", columns=COLUMNS, rows=[row] * rows)))
    assert len(many.payload) < 4_000
    good: list[OpenBatch | RowsBatch] = [honest.open(), honest.rows(contribution(0, "a", 1.0))]
    messages = [bad, many, *(sent("g2", pack_result(batch)) for batch in good)]
    tracemalloc.start()
    try:
        said = collector.handle(messages)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 64 << 20
    assert {a.gateway: a.acks for a in said} == {"g1": {(FLOW, EPOCH, 0): 2}, "g2": {(FLOW, EPOCH, 0): 2}}
    (only,) = quarantine(tmp_path)
    many_lists = row == [] or row is DEEP
    assert only["reason"].startswith("expected MessagePack, got" if many_lists else "rows: expected at most")
    assert len(only["row"] or only["payload"]) <= arrow_rows.KEPT_BYTES


def test_a_nil_row_is_kept_as_a_row(collector: Collector, tmp_path: Path) -> None:
    g = Gateway("g1")
    batch = packed(g, kind="open", schema=SCHEMA.plain(), parent=None, cut={})
    rows = packed(g, kind="rows", columns=COLUMNS, rows=[None, contribution(0, "a", 1.0)])
    collector.handle([sent("g1", batch), sent("g1", rows)])
    (only,) = quarantine(tmp_path)
    assert only["row"] == "null"
    assert collector.counters.rows == 1


@pytest.mark.parametrize("ordinal", [2**31 - 1, MOST_ORDINAL + 1])
def test_an_opening_of_an_epoch_that_no_gateway_comes_to_is_refused_and_the_flow_goes_on(
    collector: Collector, tmp_path: Path, ordinal: int
) -> None:
    """The gateway's own next epoch has to be greater, and there would be none."""
    forged, honest = Gateway("g1", epoch=ordinal << 32 | 5), Gateway("g1", epoch=EPOCH)
    assert collector.handle([sent("g1", pack_result(forged.open()))]) == []
    (kept,) = quarantine(tmp_path)
    assert kept["reason"] == f"epoch: expected the {MOST_ORDINAL}. of its flow at most, got the {ordinal}."
    assert collector.counters.malformed == 1
    (said,) = collector.handle([sent("g1", pack_result(honest.open()))])
    assert said.acks == {(FLOW, EPOCH, 0): 1}


def test_epochs_above_all_that_come_out_of_nothing_go_on_in_small_steps(collector: Collector) -> None:
    greatest = MOST_ORDINAL
    for step, taken in ((0, True), (ORDINAL_STEP, True), (2 * ORDINAL_STEP, True), (3 * ORDINAL_STEP + 1, False)):
        said = collector.handle([sent("g1", pack_result(Gateway("g1", epoch=(greatest + step) << 32).open()))])
        assert bool(said) == taken


@pytest.mark.parametrize(
    "body",
    [
        {"kind": "rows", "columns": [], "rows": [[None] * 3] * 10_000},
        {"kind": "rows", "columns": [], "rows": [["ab"] * 3] * 5_000},
        {"kind": "drops", "drops": [["ab", "cd", 1_000]] * 256},
        {"kind": "open", "schema": {**SCHEMA.plain(), "keys": [[f"k{n}", "long"] for n in range(400)]}, "cut": {}},
    ],
    ids=["nils", "texts", "drops", "columns"],
)
def test_what_is_held_behind_a_gap_counts_with_all_that_it_takes_of_memory(
    collector: Collector, body: dict[str, Any]
) -> None:
    """400 messages of 124 bytes took 400 MB, and counted as 15. The collector of these tests may hold 1 MB."""
    g = Gateway("g1")
    messages = [sent("g1", compressed(packed(g, **body))) for _ in range(30)]
    tracemalloc.start()
    try:
        result = unpack_result_untrusted(messages[0].payload)
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert isinstance(result, Numbered)
    assert taken / 2 < memory_of(result) < 3 * taken + 1_000
    collector.handle(messages[1:])
    assert collector.counters.held <= (1 << 20) / (taken / 2)
    assert collector.counters.not_held == 29 - collector.counters.held > 0


def test_streams_beyond_those_of_an_epoch_are_refused_and_leave_nothing_in_the_tables(
    collector: Collector, tmp_path: Path
) -> None:
    """Each would be one more transaction identifier, which every reader of a table reads, for ever."""
    g = Gateway("g1")
    messages = [sent("g1", pack_result(g.open()))]
    messages += [sent("g1", pack_result(g.rows(contribution(0, "a", 1.0), stream=n))) for n in (*range(1, 40), 2**31)]
    (said,) = collector.handle(messages)
    assert {stream for _, _, stream in said.acks} == set(range(MOST_STREAMS))
    assert collector.counters.malformed == 40 - MOST_STREAMS + 1
    assert {row["reason"] for row in quarantine(tmp_path)} == {
        f"stream: expected an integer from 0 and below 16, got {n}" for n in range(16, 36)
    }, "20 are kept of a call"


def test_a_reason_that_names_many_columns_is_cut(
    collector: Collector, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    sums = tuple((f"{n:x>60}", "sum") for n in range(400))
    g = Gateway("g1", schema=Schema(60.0, (), sums))
    collector.handle([sent("g1", pack_result(batch)) for batch in (g.open(), g.rows([1], columns=("nonsense",)))])
    (kept,) = quarantine(tmp_path)
    assert kept["reason"].startswith("columns: expected window_start")
    assert len(kept["reason"]) == arrow_rows.KEPT_TEXT
    assert max(len(record.message) for record in caplog.records) < 2 * arrow_rows.KEPT_TEXT
