"""A gateway whose outbox was full: what it shed arrives as a gap, all else lands. Real database, uplink and tables."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from deltalake import write_deltalake

from edgert.central.collector.collector import Collector
from edgert.central.collector.inbox import ResultMessage
from edgert.central.landing import arrow_rows
from edgert.central.landing.acceptance import Acceptance, Verdict
from edgert.central.landing.landing import Landing
from edgert.core.results.results import RowsBatch, pack_acknowledgement, pack_result, results_topic
from edgert.store.outbox.quota import FULL
from gateway.uplink import send_window
from gateway.uplink.send_window import RESEND_S
from gateway.uplink.uplink import HELLO_S
from tests.central.results_examples import Gateway, contribution
from tests.central.worlds import read
from tests.gateway.uplink_rig import Rig
from tests.waiting import in_loop

QUOTA = 12_000
ON_THE_WAY = 1_500
"""Bytes: what has left and is not acknowledged is never shed, and must not fill the outbox."""


async def exchange(rig: Rig, collector: Collector, draw: random.Random) -> None:
    """One turn over a link that loses messages and swaps them, both ways."""
    await rig.turn()
    messages = [
        ResultMessage(results_topic("fleet", "g1", "f"), pack_result(m)) for m in rig.sent if draw.random() < 0.8
    ]
    draw.shuffle(messages)
    for acknowledgement in collector.handle(messages):
        if draw.random() < 0.8:
            await rig.uplink.acknowledged_untrusted(pack_acknowledgement(acknowledgement))
    rig.clock.advance(draw.choice([0.1, HELLO_S, RESEND_S + 1]))


@pytest.mark.parametrize("seed", range(4))
@in_loop
async def test_what_was_shed_lands_as_a_gap_and_the_rest_as_rows(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(send_window, "WINDOW_BYTES", ON_THE_WAY)
    draw = random.Random(seed)
    rig = Rig(tmp_path)
    collector = Collector("c1", Landing(str(tmp_path / "tables")), rig.clock, hold_s=5.0, hold_bytes=100_000)
    rig.flow()
    rig.database.quota_bytes, rig.database.leaving_ahead = QUOTA, 3
    for outage in range(4):
        rig.uplink.connected()
        for _ in range(draw.randint(0, 12)):
            rig.rows(1)
            await exchange(rig, collector, draw)
        rig.uplink.disconnected()
        rig.rows(draw.randint(120, 200))
        assert rig.database.outbox_size.bytes <= QUOTA + 8 * 300, "and gaps that may have left"
        if outage == 1:
            shed = dict(rig.database.shed)
            rig.database.close()
            again = Rig(tmp_path, rig.made)
            again.database.quota_bytes, again.database.leaving_ahead = QUOTA, 3
            rig.database, rig.uplink = again.database, again.uplink
            rig.uplink.clock, rig.uplink.publish = rig.clock, rig.publish
            rig.database.shed.update(shed)
    rig.uplink.connected()
    for _ in range(500):
        if not rig.database.outbox_size.batches:
            break
        await exchange(rig, collector, draw)
    assert rig.database.outbox_size.batches == 0
    landed = sorted(r["n"] for r in read(tmp_path / "tables", "landing/f") if not r["lineage"])
    gaps = read(tmp_path / "tables", "gaps")
    assert len(landed) == len(set(landed))
    assert landed[-1] == rig.made, "the newest are kept"
    assert rig.database.shed[("f", FULL)] == sum(g["rows"] for g in gaps) == rig.made - len(landed) > 0
    assert {g["reason"] for g in gaps} == {FULL}
    assert any(g["first_sequence"] < g["sequence"] for g in gaps)
    refused = tmp_path / "tables" / "quarantine"
    assert not refused.exists()
    rig.database.close()


def test_a_gap_of_several_numbers_is_taken_where_the_next_number_is_one_of_them() -> None:
    acceptance: Acceptance[str] = Acceptance(hold_s=5.0, hold_bytes=100)
    key = ("g", "f", 1, 0)
    acceptance.learn(key, 2)
    assert acceptance.offer(key, 12, "row", 1, 0.0) is Verdict.HELD
    assert acceptance.offer(key, 11, "late gap", 1, 0.0, first=6) is Verdict.HELD
    assert acceptance.offer(key, 11, "late gap", 1, 0.0, first=6) is Verdict.DUPLICATE
    assert acceptance.offer(key, 5, "gap", 1, 0.0, first=2) is Verdict.TAKEN, "2 landed as a row"
    assert acceptance.take() == ["gap", "late gap", "row"]
    assert acceptance.offer(key, 5, "gap", 1, 0.0, first=2) is Verdict.DUPLICATE
    assert (acceptance.accepted(key), acceptance.held_bytes) == (12, 0)
    acceptance.offer(key, 20, "gap", 1, 0.0, first=14)
    acceptance.learn(key, 20)
    assert acceptance.held_items == 0


def test_a_collector_started_anew_goes_on_behind_a_gap_of_several_numbers(tmp_path: Path) -> None:
    gateway = Gateway("g1")
    batches: list[Any] = [gateway.open(), gateway.rows(contribution(0, "a", 1.0))]
    gateway.sequences[0] = 99
    gap = gateway.gap(rows=500)
    gap = type(gap)(**{**{name: getattr(gap, name) for name in gap.__dataclass_fields__}, "numbers": 98})
    batches += [gap, gateway.rows(contribution(0, "b", 1.0))]
    for landing in (Landing(str(tmp_path)), Landing(str(tmp_path))):
        report = landing.land(batches)
        assert set(report.versions.values()) == {101}
    assert [(g["first_sequence"], g["sequence"], g["rows"]) for g in read(tmp_path, "gaps")] == [(3, 100, 500)]
    assert sorted(r["sequence"] for r in read(tmp_path, "landing/air") if not r["lineage"]) == [2, 101]
    assert isinstance(batches[-1], RowsBatch)


def test_a_gaps_table_of_an_older_collector_gets_the_new_column(tmp_path: Path) -> None:
    """Its rows say nothing of the first number: they stood for one."""
    gateway = Gateway("g1")
    old = arrow_rows.gap_rows([gateway.gap()], 1.7e9).drop_columns(["first_sequence"])
    write_deltalake(str(tmp_path / "gaps"), old, partition_by=["day"])
    gateway.sequences.clear()
    Landing(str(tmp_path)).land([gateway.open(), gateway.gap()])
    assert sorted(g["first_sequence"] or 0 for g in read(tmp_path, "gaps")) == [0, 2]
