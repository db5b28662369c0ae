"""The outbox and its quota through commits, crashes, failures, lost and repeated deliveries: numbers stay whole, what
is counted is what is missing."""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from edgert.central.landing.acceptance import Acceptance
from edgert.core.checkpoint.checkpoint import Checkpoint
from edgert.core.checkpoint.position import Position
from edgert.core.errors import StoreError
from edgert.core.results.results import DropsBatch, GapBatch, unpack_result_untrusted
from edgert.store.database import Database
from edgert.store.outbox import sent_bounds
from edgert.store.outbox.quota import FULL
from tests.store.quota_world import COLUMNS, E1, KEEPS, SCHEMA, Clock, numbers, results, stored

pytestmark = pytest.mark.usefixtures("uncompressed")

QUICK = next((folder for folder in ("/dev/shm",) if Path(folder).is_dir()), None)
FLOWS = {"a": {}, "b": KEEPS, "c": {}}


class AnyOutbox(RuleBasedStateMachine):
    """The real database, with commits, sends, deliveries in any order, acknowledgements, crashes, failing commits, a
    quota and an age that change; the collector's own bookkeeping at the other end."""

    @initialize(quota=st.integers(1_500, 6_000), ahead=st.integers(0, 3))
    def start(self, quota: int, ahead: int) -> None:
        self.ahead, sent_bounds.LEAVING_AHEAD = sent_bounds.LEAVING_AHEAD, ahead
        self.folder = tempfile.TemporaryDirectory(dir=QUICK)
        self.clock = Clock()
        self.epochs = dict.fromkeys(FLOWS, E1)
        self.acceptance: Acceptance[Any] = Acceptance(0.0, 0)
        self.network: list[Any] = []
        self.meaning: dict[tuple[str, int, int], bytes] = {}
        self.made: dict[str, set[int]] = {name: set() for name in FLOWS}
        self.landed: dict[str, list[int]] = {name: [] for name in FLOWS}
        self.stated: Counter[str] = Counter()
        self.shed_before: Counter[str] = Counter()
        self.dropped: Counter[str] = Counter()
        self.told: Counter[str] = Counter()
        """Of that, what has landed."""
        self.next = 1
        self.open(quota)
        for name, document in FLOWS.items():
            self.database.put_flow(stored(name, E1, document), SCHEMA, None, {}, 1)

    def open(self, quota: float) -> None:
        self.database = Database(Path(self.folder.name) / "gateway.db", "g1", quota, self.clock)
        self.database.db.execute("PRAGMA synchronous = OFF")  # a process that dies loses nothing by it
        self.database.db.execute("PRAGMA cache_size = 2")  # pages, so that small transactions are spilled as large ones

    def teardown(self) -> None:
        if not hasattr(self, "database"):
            return
        try:
            self.settle()
        finally:
            sent_bounds.LEAVING_AHEAD = self.ahead
            self.database.close()
            self.folder.cleanup()

    def settle(self) -> None:
        """In the end all that was made has landed, once, or is stated in a gap."""
        for name, epoch in [(flow, epoch) for flow in FLOWS for epoch in self.database.epochs(flow)]:
            for _ in range(1_000):
                self.acknowledge(name)
                if not (entries := self.database.departing(name, epoch, 0, self.accepted(name, epoch), 50)):
                    break
                for entry in entries:
                    self.note(name, epoch, entry)
                    self.offer(unpack_result_untrusted(entry.payload))
        assert self.database.outbox_size.batches == 0
        for name in FLOWS:
            landed = set(self.landed[name])
            assert len(landed) == len(self.landed[name]), "nothing twice"
            assert landed <= self.made[name]
            assert len(self.made[name]) - len(landed) == self.stated[name] == self.shed(name)
        assert self.told == self.dropped, "what was dropped makes way for nothing, and is said once"

    def accepted(self, name: str, epoch: int) -> int:
        return self.acceptance.accepted(("g1", name, epoch, 0))

    def shed(self, name: str) -> int:
        """The ledger: what every life of the gateway counted."""
        return self.shed_before[name] + sum(n for (flow, _), n in self.database.shed.items() if flow == name)

    def note(self, name: str, epoch: int, entry: Any) -> None:
        """A number that leaves says what it said before."""
        assert self.meaning.setdefault((name, epoch, entry.sequence), entry.payload) == entry.payload

    def offer(self, batch: Any) -> None:
        key = (batch.gateway, batch.flow, batch.epoch, batch.stream)
        if not self.acceptance.knows(key):
            self.acceptance.learn(key, 0)
        self.acceptance.offer(key, batch.sequence, batch, 1, 0.0, batch.first)
        for taken in self.acceptance.take():
            self.landed[taken.flow] += numbers([taken])
            self.told[taken.flow] += sum(n for *_, n in taken.drops) if isinstance(taken, DropsBatch) else 0
            self.stated[taken.flow] += (taken.rows or 0) if isinstance(taken, GapBatch) else 0

    @rule(names=st.sets(st.sampled_from(sorted(FLOWS)), min_size=1), rows=st.integers(0, 4), size=st.integers(0, 400),
          drops=st.integers(0, 2))  # fmt: skip
    def commit(self, names: set[str], rows: int, size: int, drops: int) -> None:
        given = {name: range(self.next + at * rows, self.next + (at + 1) * rows) for at, name in enumerate(names)}
        self.next += rows * len(names)
        before, state = self.database.outbox_size, {name: self.database.state(name) for name in names}
        said = [("in", "late", drops)] * bool(drops)
        commits = [
            Checkpoint(n, Position(), [b"d"], b"", COLUMNS, results(n, *given[n], size=size).rows, drops=said)
            for n in names
        ]
        refused = self.database.commit(commits, {}, 1)
        assert refused <= {"b"}
        for name in names - refused:
            self.made[name] |= set(given[name])
            self.dropped[name] += drops
            assert len(self.database.state(name)) == len(state[name]) + 1
        if refused:
            assert self.database.state("b") == state["b"]
            assert rows
        elif rows and names == {"b"} and rows * (size + 30) < self.database.quota_bytes - 300:
            assert self.database.outbox_size.bytes <= self.database.quota_bytes
        if rows and names & {"a", "c"} and self.database.outbox_size.bytes > self.database.quota_bytes:
            assert self.sheddable() == 0, (before, self.database.outbox_size)

    def sheddable(self) -> int:
        query = (
            "SELECT count(*) FROM outbox JOIN stream USING (flow, epoch, stream) "
            "WHERE outbox.rows > 0 AND outbox.sequence > leaving AND flow <> 'b'"
        )
        return int(self.database.db.execute(query).fetchone()[0])

    @rule(name=st.sampled_from(sorted(FLOWS)), rows=st.integers(1, 3))
    def failing_commit(self, name: str, rows: int) -> None:
        before, shed = self.recount(), dict(self.database.shed)
        unwritable: Any = {0: object()}
        failing = replace(results(name, *[0] * rows, size=300), drops=[("in", "late", 9)])
        with pytest.raises(StoreError):
            self.database.commit([failing], unwritable, 1)
        assert (self.recount(), dict(self.database.shed)) == (before, shed)

    @rule(name=st.sampled_from(sorted(FLOWS)), back=st.integers(0, 5), limit=st.integers(1, 5))
    def send(self, name: str, back: int, limit: int) -> None:
        for epoch in self.database.epochs(name):
            after = max(0, self.accepted(name, epoch) - back)
            for entry in self.database.departing(name, epoch, 0, after, limit):
                self.note(name, epoch, entry)
                self.network.append(unpack_result_untrusted(entry.payload))

    @rule(data=st.data())
    def deliver(self, data: st.DataObject) -> None:
        """In any order, any number of times."""
        if self.network:
            self.offer(data.draw(st.sampled_from(self.network)))

    @rule()
    def deliver_in_order(self) -> None:
        for batch in self.network:
            self.offer(batch)

    @rule(name=st.sampled_from(sorted(FLOWS)))
    def acknowledge(self, name: str) -> None:
        acks = {(name, epoch, 0): self.accepted(name, epoch) for epoch in self.database.epochs(name)}
        self.database.acknowledged(acks)

    @rule()
    def crash(self) -> None:
        """The process is killed: its files stay as they are, and SQLite recovers from them."""
        for (flow, _), rows in self.database.shed.items():
            self.shed_before[flow] += rows
        before, quota = self.recount(), self.database.quota_bytes
        killed = tempfile.TemporaryDirectory(dir=QUICK)
        for file in Path(self.folder.name).glob("gateway.db*"):
            if not file.name.endswith("-shm"):
                shutil.copy(file, killed.name)
        self.database.close()
        self.folder.cleanup()
        self.folder = killed
        self.open(quota)
        assert (self.database.lost, self.recount()) == ("", before)

    @rule(quota=st.integers(1_000, 6_000))
    def another_quota(self, quota: int) -> None:
        self.database.quota_bytes = quota

    @rule(seconds=st.integers(1, 100), age=st.integers(1, 200))
    def time_passes(self, seconds: int, age: int) -> None:
        self.clock.now += seconds
        self.database.shed_old(float(age))

    @rule(name=st.sampled_from(sorted(FLOWS)), rows=st.integers(0, 3))
    def new_version(self, name: str, rows: int) -> None:
        self.epochs[name] += 1 << 32
        last = results(name, *range(self.next, self.next + rows), size=200)
        self.made[name] |= set(range(self.next, self.next + rows))
        self.next += rows
        self.database.put_flow(stored(name, self.epochs[name], FLOWS[name], 2), SCHEMA, last, {}, 1)

    def recount(self) -> tuple[int, int, int]:
        query = "SELECT count(*), coalesce(sum(rows), 0), coalesce(sum(length(payload)), 0) FROM outbox"
        found: tuple[int, int, int] = self.database.db.execute(query).fetchone()
        return found

    @invariant()
    def sizes_are_those_of_a_recount(self) -> None:
        if not hasattr(self, "database"):
            return
        size = self.database.outbox_size
        assert (size.batches, size.rows, size.bytes) == self.recount()
        query = (
            "SELECT flow, epoch, stream, batches, rows, bytes FROM stream WHERE batches <> 0 OR rows <> 0 OR bytes <> 0"
        )
        counted = (
            "SELECT flow, epoch, stream, count(*), sum(rows), sum(length(payload)) FROM outbox "
            "GROUP BY flow, epoch, stream"
        )
        ask = self.database.db.execute
        assert sorted(ask(query).fetchall()) == sorted(ask(counted).fetchall())

    @invariant()
    def numbers_are_whole(self) -> None:
        if not hasattr(self, "database"):
            return
        for name in FLOWS:
            for epoch in self.database.epochs(name):
                found = self.database.outbox(name, epoch, 0, 0, 1_000)
                plain = [msgspec.msgpack.decode(entry.payload, strict=False) for entry in found]
                for before, batch in pairwise(plain):
                    assert batch["sequence"] - batch.get("numbers", 1) == before["sequence"]
                assert [entry.sequence for entry in found] == [batch["sequence"] for batch in plain]
                assert not found or found[-1].sequence == self.database.last_sequences(name, epoch)[0]

    @invariant()
    def a_flow_that_keeps_all_sheds_nothing_for_want_of_room(self) -> None:
        assert not hasattr(self, "database") or ("b", FULL) not in self.database.shed


TestAnyOutbox = AnyOutbox.TestCase
TestAnyOutbox.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
