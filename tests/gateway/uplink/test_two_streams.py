"""What piled up and what is new, side by side: random outages, lost messages, crashes, restored cards."""

from __future__ import annotations

import random
import shutil
import tempfile
from collections.abc import Coroutine
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from edgert.core.ids import epoch_ordinal, make_epoch
from edgert.core.results.results import EpochHello, OpenBatch
from edgert.core.settings.gateway import Uplink as UplinkSettings
from edgert.store.outbox import outbox
from gateway.uplink import uplink as uplink_module
from gateway.uplink.uplink import BACKLOG
from tests.gateway.uplink_rig import E1, Collector, Rig, restart, restore, save
from tests.waiting import in_loop

LONG_S = UplinkSettings().outage_s + 1


def now(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """Runs what never has to wait, as nothing does in the rig."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        return end.value
    raise AssertionError("it waits for something")


async def outage(rig: Rig, batches: int, seconds: float = LONG_S) -> None:
    """The connection is lost, `batches` are made, the connection is back."""
    rig.uplink.disconnected()
    rig.rows(batches)
    rig.clock.advance(seconds)
    rig.uplink.connected()


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path / "card")


async def in_contact(rig: Rig) -> Collector:
    collector = Collector()
    rig.flow()
    rig.uplink.connected()
    await collector.serve(rig)
    return collector


@in_loop
async def test_after_a_long_outage_new_results_leave_beside_the_backlog_and_before_it(rig: Rig) -> None:
    collector = await in_contact(rig)
    await outage(rig, 3 * BACKLOG)
    await collector.serve(rig, 1)
    rig.rows(2)
    await rig.turn()
    assert [(m.stream, m.sequence) for m in rig.sent][:4] == [(1, 1), (1, 2), (0, 2), (0, 3)]
    collector.take(rig.sent)
    await collector.answer(rig)
    assert collector.rows() == list(range(1, 3 * BACKLOG + 3))
    rig.rows(1)
    await collector.serve(rig)
    assert len(collector.landed[E1, 1]) == 3, "and go on in their stream when it is gone"


@pytest.mark.parametrize(("batches", "seconds"), [(3 * BACKLOG, LONG_S - 2), (BACKLOG, LONG_S)])
def test_a_short_outage_or_a_small_backlog_opens_no_stream(batches: int, seconds: float, rig: Rig) -> None:
    @in_loop
    async def run() -> None:
        collector = await in_contact(rig)
        await outage(rig, batches, seconds)
        await collector.serve(rig)
        rig.rows(1)
        await collector.serve(rig)
        assert set(collector.landed) == {(E1, 0)}
        assert collector.rows() == list(range(1, batches + 2))

    run()


@in_loop
async def test_a_start_with_a_backlog_is_the_end_of_an_outage_of_unknown_length(rig: Rig) -> None:
    collector = await in_contact(rig)
    rig.uplink.disconnected()
    rig.rows(2 * BACKLOG)
    again = restart(rig)
    again.uplink.connected()
    await collector.serve(again, 1)
    again.rows(1)
    await collector.serve(again)
    assert len(collector.landed[E1, 1]) == 1


@in_loop
async def test_a_collector_that_was_away_is_an_outage_too(rig: Rig) -> None:
    collector = await in_contact(rig)
    rig.rows(1)
    await rig.turn()
    rig.clock.advance(20.0)
    assert await rig.turn() == ["f"], "no acknowledgement came"
    rig.rows(2 * BACKLOG)
    rig.clock.advance(LONG_S)
    await collector.serve(rig, 1)
    rig.rows(1)
    await collector.serve(rig)
    assert len(collector.landed[E1, 1]) == 1


@in_loop
async def test_the_opening_of_an_epoch_goes_ahead_of_what_needs_it(rig: Rig) -> None:
    """All of the epoch was made without a connection."""
    collector = Collector()
    rig.flow()
    rig.rows(4 * BACKLOG)
    rig.uplink.connected()
    await collector.serve(rig, 1)
    rig.rows(1)
    await rig.turn()
    assert [(m.stream, m.sequence) for m in rig.sent][:3] == [(0, 1), (1, 1), (0, 2)]


@in_loop
async def test_at_most_two_streams_wait_and_a_third_opens_when_the_first_is_empty(rig: Rig) -> None:
    collector = await in_contact(rig)
    for _ in range(2):
        await outage(rig, 3 * BACKLOG)
        await rig.turn()
        await rig.acknowledge({("f", E1, 0): 1}, answers=("f",))
    assert rig.database.last_sequences("f", E1) == {0: 3 * BACKLOG + 1, 1: 3 * BACKLOG}
    await collector.serve(rig)
    await outage(rig, 3 * BACKLOG)
    await collector.serve(rig)
    assert sorted(rig.database.last_sequences("f", E1)) == [0, 1, 2]
    assert collector.rows() == list(range(1, rig.made + 1))


@in_loop
async def test_an_epoch_with_enough_streams_is_followed_by_another_with_all_of_it(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbox, "MOST_STREAMS", 2)
    collector = await in_contact(rig)
    for _ in range(2):
        await outage(rig, 2 * BACKLOG)
        await collector.serve(rig)
        rig.rows(1)
        await collector.serve(rig)
    (first, second) = rig.database.epochs("f")
    assert (first, epoch_ordinal(second), rig.renamed[-1]) == (E1, 2, ("f", second))
    (opened, *_) = collector.landed[second, 0]
    assert isinstance(opened, OpenBatch)
    assert (opened.parent, opened.cut) == (E1, {0: 2 * BACKLOG + 1, 1: 2 * BACKLOG + 1})
    assert collector.rows() == list(range(1, rig.made + 1))


@in_loop
async def test_a_backlog_keeps_to_its_limit_and_new_results_do_not_wait_for_it(tmp_path: Path) -> None:
    rig = Rig(tmp_path / "card", settings=UplinkSettings(backlog_rate=1_000))
    collector = await in_contact(rig)
    await outage(rig, 60)
    await collector.serve(rig, 1)
    sent: list[tuple[int, int]] = []
    for _ in range(20):
        rig.rows(1)
        before = rig.uplink.status.sent_bytes
        await rig.turn()
        news = [m for m in rig.sent if m.stream == 1]
        assert len(news) == 1
        sent.append((len(rig.sent) - 1, rig.uplink.status.sent_bytes - before))
        collector.take(rig.sent)
        await collector.answer(rig)
        rig.clock.advance(1.0)
    size = sent[-1][1] / (sent[-1][0] + 1)
    assert sum(n for n, _ in sent) * size <= 1_000 * 21 + size
    assert sum(n for n, _ in sent) >= 60
    assert 0 < sent[5][0] < 10


@in_loop
async def test_nothing_together_leaves_faster_than_the_cap(tmp_path: Path) -> None:
    rig = Rig(tmp_path / "card", settings=UplinkSettings(rate=2_000))
    collector = await in_contact(rig)
    await outage(rig, 200)
    started = rig.uplink.status.sent_bytes
    for n in range(1, 40):
        rig.rows(1)
        await collector.serve(rig, 1)
        assert rig.uplink.status.sent_bytes - started <= 2_000 * n + 300
        rig.clock.advance(1.0)
    await collector.serve(rig)
    assert rig.uplink.status.sent_bytes - started >= 200 * 100
    assert collector.rows() == list(range(1, rig.made + 1))


@in_loop
async def test_who_is_held_back_by_a_limit_comes_again_when_it_allows(tmp_path: Path) -> None:
    rig = Rig(tmp_path / "card", settings=UplinkSettings(rate=1_000))
    rig.flow()
    rig.rows(40)
    rig.uplink.connected()
    await rig.turn()
    await rig.acknowledge(answers=("f",))
    rig.sent.clear()
    wait = await rig.uplink.turn()
    assert 0 < wait < 1
    rig.clock.advance(wait)
    assert len(await rig.turn()) == 1


class Outages(RuleBasedStateMachine):
    """The real uplink and database; the link loses what is on it, the collector is a model."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(dir="/dev/shm" if Path("/dev/shm").is_dir() else None))
        self.patches: list[Any] = [
            mock.patch.object(outbox, "MOST_STREAMS", 2),
            mock.patch.object(uplink_module, "BACKLOG", 2),
        ]
        epochs = random.Random(1)  # or a failure could not be replayed
        self.patches.append(mock.patch("secrets.randbits", side_effect=epochs.getrandbits))
        for patch in self.patches:
            patch.start()
        self.rig = Rig(self.folder / "card")
        self.collector = Collector()
        self.wire: list[Any] = []
        self.meaning: dict[tuple[int, int, int], Any] = {}
        self.surviving: set[int] = set()
        """Rows that the database as it is has computed."""
        self.saved: set[int] | None = None
        self.epochs = 1

    def teardown(self) -> None:
        try:
            self.settle()
            rows = self.collector.rows()
            assert len(rows) == len(set(rows)), "a row counts twice"
            assert self.surviving <= set(rows), f"lost: {sorted(self.surviving - set(rows))}"
        finally:
            self.rig.database.close()
            for patch in self.patches:
                patch.stop()
            shutil.rmtree(self.folder)

    def settle(self) -> None:
        """All faults end; all that waits has to land."""
        self.wire.clear()
        self.rig.uplink.connected()
        for _ in range(60):
            if not self.rig.database.outbox_size.batches:
                return
            self.turn()
            self.arrive(len(self.wire))
            self.answer()
            self.rig.clock.advance(11.0)
        raise AssertionError(f"results still wait: {self.rig.database.outbox_streams()}")

    @initialize()
    def begin(self) -> None:
        self.rig.flow(make_epoch(1, 5))

    @rule(batches=st.integers(1, 8))
    def make(self, batches: int) -> None:
        before = self.rig.made
        self.rig.rows(batches)
        self.surviving |= set(range(before + 1, self.rig.made + 1))

    @rule()
    def another_version(self) -> None:
        self.epochs += 1
        last = max(self.rig.database.epochs("f"))
        self.rig.flow(make_epoch(epoch_ordinal(last) + 1, self.epochs), version=self.epochs)

    @rule(seconds=st.sampled_from([0.0, 5.0, 16.0, 61.0]))
    def time_goes_by(self, seconds: float) -> None:
        self.rig.clock.advance(seconds)

    @rule()
    def connect(self) -> None:
        self.wire.clear()
        self.rig.uplink.connected()

    @rule()
    def disconnect(self) -> None:
        self.rig.uplink.disconnected()

    @rule(batches=st.integers(3, 6), rounds=st.integers(0, 6))
    def long_outage(self, batches: int, rounds: int) -> None:
        """And after it nothing goes wrong for a while."""
        self.disconnect()
        self.make(batches)
        self.time_goes_by(LONG_S)
        self.connect()
        for _ in range(rounds):
            self.turn()
            self.arrive(200)
            self.answer()

    @rule()
    def turn(self) -> None:
        newest = dict(self.rig.database.outbox_streams())
        now(self.rig.turn())
        results = [m for m in self.rig.sent if not isinstance(m, EpochHello)]
        live = [newest["f", m.epoch, m.stream] for m in results if not (m.stream == 0 and m.sequence == 1)]
        assert live == sorted(live, reverse=True), "what is new goes first"
        for m in results:
            meant = self.meaning.setdefault((m.epoch, m.stream, m.sequence), m)
            assert meant == m, "a number means two things"
        for stream in {(m.epoch, m.stream) for m in results}:
            numbers = [m.sequence for m in results if (m.epoch, m.stream) == stream]
            assert numbers == list(range(numbers[0], numbers[0] + len(numbers))), "each stream in order"
        self.wire += self.rig.sent

    @rule(count=st.integers(1, 200))
    def arrive(self, count: int) -> None:
        arrived, self.wire = self.wire[:count], self.wire[count:]
        self.collector.take(arrived)

    @rule()
    def answer(self) -> None:
        now(self.collector.answer(self.rig))

    @rule()
    def crash(self) -> None:
        self.wire.clear()
        self.rig = restart(self.rig)

    @precondition(lambda self: not self.rig.database.outbox_size.batches)
    @rule()
    def save(self) -> None:
        """Not while something waits: where the other state ships that and then another version, it counts twice."""
        save(self.rig)
        self.saved = set(self.surviving)

    @precondition(lambda self: self.saved is not None)
    @rule()
    def restore(self) -> None:
        assert self.saved is not None
        self.wire.clear()
        self.surviving = set(self.saved)
        self.rig = restore(self.rig, self.rig.made)
        self.meaning.clear()  # what the other state said is another's; whether they clash shows in the tables

    @invariant()
    def at_most_two_streams_wait(self) -> None:
        waiting = [(epoch, stream) for (_, epoch, stream), _ in self.rig.database.outbox_streams()]
        for epoch in self.rig.database.epochs("f"):
            streams = [stream for e, stream in waiting if e == epoch]
            assert len(streams) <= 2
            assert max(streams, default=0) - min(streams, default=0) <= 1
            assert max(self.rig.database.last_sequences("f", epoch)) < 2


TestOutages = Outages.TestCase
TestOutages.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)
