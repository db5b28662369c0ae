"""A central side that lost what it had acknowledged, and gateways had deleted: it is said, and what comes after lands.
Real database, uplink and tables."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from edgert.central.collector.collector import Collector
from edgert.central.collector.inbox import ResultMessage
from edgert.central.landing.landing import Landing
from edgert.core.results.results import GapBatch, pack_acknowledgement, pack_result, results_topic
from edgert.store.outbox.outbox import LOST
from gateway.uplink.send_window import RESEND_S
from gateway.uplink.uplink import HELLO_S
from tests.central.worlds import read
from tests.gateway.uplink_rig import E1, Rig
from tests.waiting import in_loop


class Way:
    """From a gateway's outbox to the tables."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "tables"
        self.rig = Rig(folder)
        self.rig.flow()
        self.rig.uplink.connected()
        self.start()

    def start(self) -> None:
        self.collector = Collector("c1", Landing(str(self.root)), self.rig.clock, hold_s=5.0, hold_bytes=100_000)

    async def exchange(self) -> None:
        await self.rig.turn()
        messages = [ResultMessage(results_topic("fleet", "g1", "f"), pack_result(m)) for m in self.rig.sent]
        for acknowledgement in self.collector.handle(messages):
            await self.rig.uplink.acknowledged_untrusted(pack_acknowledgement(acknowledgement))

    async def ship(self, batches: int) -> None:
        for _ in range(batches):
            self.rig.rows(1)
            for _ in range(3):
                await self.exchange()

    async def settle(self) -> None:
        for _ in range(60):
            if not self.rig.database.outbox_size.batches:
                return
            await self.exchange()
            self.rig.clock.advance(HELLO_S)

    async def gap(self) -> None:
        """The next number is a gap, as the outbox's quota makes them."""
        self.rig.rows(1)
        entry = self.rig.database.outbox("f", E1, 0, 0, 10)[-1]
        n = entry.sequence
        gap = GapBatch(gateway="g1", flow="f", epoch=E1, stream=0, sequence=n, flow_version=1, reason="quota", rows=1)
        Landing(str(self.root)).land([gap])
        await self.settle()

    def lose(self, commits: int) -> None:
        """The last ones of the landing table, as a power cut may take them; the collector is started again."""
        for path in sorted((self.root / "landing" / "f" / "_delta_log").glob("*.json"))[-commits:]:
            path.unlink()
        self.start()

    def landed(self) -> list[int]:
        return sorted(row["n"] for row in read(self.root, "landing/f") if not row["lineage"])

    def gaps(self) -> list[tuple[str, int, int, int | None]]:
        rows = read(self.root, "gaps")
        return [(row["reason"], row["first_sequence"], row["sequence"], row["rows"]) for row in rows]


@pytest.fixture
def path(tmp_path: Path) -> Way:
    return Way(tmp_path)


@pytest.mark.parametrize("lost", [1, 3])
@in_loop
async def test_what_the_tables_lost_is_said_and_what_comes_after_lands(
    path: Way, lost: int, caplog: pytest.LogCaptureFixture
) -> None:
    await path.ship(5)
    assert path.landed() == [1, 2, 3, 4, 5]
    assert path.rig.database.outbox_size.batches == 0
    path.lose(lost)
    await path.ship(2)
    assert path.landed() == [1, 2, 3, 4, 5][:-lost], "what comes next is missing"
    path.rig.clock.advance(RESEND_S + 1)
    await path.settle()
    assert path.landed() == [*range(1, 6 - lost), 6, 7]
    assert path.gaps() == [(LOST, 7 - lost, 6, None)]
    assert path.rig.uplink.status.lost_by_tables == lost
    assert f"the tables lack {lost} batches that they had acknowledged" in caplog.text
    await path.ship(2)
    assert path.landed()[-2:] == [8, 9]
    assert len(path.gaps()) == 1


@in_loop
async def test_a_landing_table_that_is_gone_begins_anew_with_the_opening(path: Way) -> None:
    await path.ship(4)
    shutil.rmtree(path.root)
    path.start()
    await path.ship(1)
    path.rig.clock.advance(RESEND_S + 1)
    await path.settle()
    assert path.landed() == [5]
    assert path.gaps() == [(LOST, 2, 5, None)]
    assert not (path.root / "quarantine").exists()


@pytest.mark.parametrize("later", [0, 2])
@in_loop
async def test_a_landing_table_that_is_gone_is_missed_whatever_gaps_has(path: Way, later: int) -> None:
    await path.ship(2)
    await path.gap()
    await path.ship(later)
    shutil.rmtree(path.root / "landing")
    path.start()
    await path.ship(1)
    path.rig.clock.advance(RESEND_S + 1)
    await path.settle()
    assert path.landed() == [4 + later]
    assert sorted(path.gaps()) == [(LOST, 2, 4 + later, None), ("quota", 4, 4, 1)]
    assert not (path.root / "quarantine").exists()


@pytest.mark.parametrize("later", [0, 2])
@in_loop
async def test_what_an_older_copy_of_a_landing_table_lacks_is_missed_whatever_gaps_has(
    path: Way, later: int, tmp_path: Path
) -> None:
    await path.ship(1)
    shutil.copytree(path.root / "landing", tmp_path / "copy")
    await path.ship(2)
    await path.gap()
    await path.ship(later)
    shutil.rmtree(path.root / "landing")
    shutil.copytree(tmp_path / "copy", path.root / "landing")
    path.start()
    await path.ship(1)
    path.rig.clock.advance(RESEND_S + 1)
    await path.settle()
    assert path.landed() == [1, 5 + later]
    assert sorted(path.gaps()) == [(LOST, 3, 5 + later, None), ("quota", 5, 5, 1)]
    assert path.rig.uplink.status.lost_by_tables == 3 + later


@in_loop
async def test_an_opening_is_put_again_for_the_epoch_s_other_stream(path: Way) -> None:
    await path.ship(2)
    path.rig.uplink.disconnected()
    path.rig.rows(20)
    path.rig.clock.advance(path.rig.uplink.settings.outage_s + 1)
    path.rig.uplink.connected()
    await path.exchange()
    await path.settle()
    await path.ship(2)
    shutil.rmtree(path.root)
    path.start()
    await path.ship(1)
    path.rig.clock.advance(RESEND_S + 1)
    await path.settle()
    assert path.landed() == [25]
    assert sorted(path.gaps()) == [(LOST, 1, 2, None), (LOST, 2, 23, None)]


@in_loop
async def test_an_answer_that_is_not_the_truth_takes_nothing_from_the_tables(path: Way) -> None:
    """Of a collector that others have overtaken: they have the numbers, and take neither gap nor opening."""
    await path.ship(4)
    assert path.rig.database.fill("f", E1, 0, 0) == 5
    entries = path.rig.database.outbox("f", E1, 0, 0, 10)
    assert [entry.sequence for entry in entries] == [1, 5]
    path.rig.uplink.connected()
    await path.settle()
    assert path.rig.database.outbox_size.batches == 0
    assert (path.landed(), path.gaps()) == ([1, 2, 3, 4], [])


def test_nothing_is_put_where_nothing_is_missing(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.flow()
    rig.rows(3)
    size = rig.database.outbox_size
    assert rig.database.fill("f", E1, 0, 0) == 0
    assert rig.database.fill("f", E1, 7, 0) == 0
    assert rig.database.outbox_size == size
    rig.database.acknowledged({("f", E1, 0): 2})
    assert rig.database.fill("f", E1, 0, 2) == 0
    assert rig.database.fill("f", E1, 0, 1) == 1
    assert rig.database.fill("f", E1, 0, 1) == 0, "the gap stands there now"
    assert rig.database.fill("f", E1, 0, 0) == 1, "a gap may stand for several numbers"
