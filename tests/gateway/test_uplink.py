"""The uplink with a database of its own, a clock turned by hand and a connection that only notes what it is given."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from edgert.core.clock import VirtualClock
from edgert.core.ids import epoch_ordinal, make_epoch
from edgert.core.position import Position
from edgert.core.results import Acknowledgement, Hello, OpenBatch, Schema, pack_acknowledgement, unpack_result_untrusted
from edgert.store.database import Database, FlowCommit, StoredFlow
from gateway.uplink import HELLO_S, RESEND_S, WINDOW, Uplink
from tests.waiting import in_loop

SCHEMA = Schema(60.0, (), (("n", "count"),))
E1, E2, E7 = (make_epoch(n, 5) for n in (1, 2, 7))
Acks = dict[tuple[str, int, int], int]


class Rig:
    def __init__(self, folder: Path) -> None:
        self.database = Database(folder / "gateway.db", "g1")
        self.clock = VirtualClock()
        self.sent: list[Any] = []
        self.connected = True
        self.renamed: list[tuple[str, int]] = []
        self.uplink = Uplink("fleet", "g1", self.database, self.clock, self.store, self.publish)
        self.uplink.on_epoch = lambda flow, epoch: self.renamed.append((flow, epoch))

    async def store(self, call: Callable[[], Any]) -> Any:
        return call()

    def publish(self, topic: str, payload: bytes) -> bool:
        if self.connected:
            assert topic.startswith("edgert/v1/fleet/@results/0/g1/")
            self.sent.append(unpack_result_untrusted(payload))
        return self.connected

    def flow(self, epoch: int = E1, name: str = "f", confirmed: int = 0, version: int = 1) -> None:
        stored = StoredFlow(name, {}, version, "mqtt", False, epoch, confirmed, Position())
        self.database.put_flow(stored, SCHEMA, None, {}, 1)

    def rows(self, batches: int, name: str = "f") -> None:
        for _ in range(batches):
            columns = ("window_start", "window_end", "n")
            self.database.commit([FlowCommit(name, Position(), [], b"", columns, [[0.0, 60.0, 1]])], {}, 1)

    async def acknowledge(self, acks: Acks | None = None, answers: tuple[str, ...] = (), gateway: str = "g1") -> None:
        message = Acknowledgement(gateway=gateway, collector="c", acks=acks or {}, answers=answers)
        await self.uplink.acknowledged_untrusted(pack_acknowledgement(message))

    async def turn(self) -> list[Any]:
        """What one turn sends: hello as its flow's name, results as (epoch, sequence)."""
        self.sent.clear()
        await self.uplink._turn()
        return [m.flow if isinstance(m, Hello) else (m.epoch, m.sequence) for m in self.sent]

    async def admitted(self) -> None:
        self.uplink.connected()
        await self.acknowledge(answers=("f",))


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path)


@in_loop
async def test_nothing_leaves_before_the_collector_answered_hello(rig: Rig) -> None:
    rig.flow()
    assert await rig.turn() == []
    rig.uplink.connected()
    assert await rig.turn() == ["f"]
    assert await rig.turn() == []
    await rig.acknowledge({})
    assert await rig.turn() == [], "an acknowledgement that answers nobody is no answer"
    rig.clock.advance(HELLO_S)
    assert await rig.turn() == ["f"]
    await rig.acknowledge(answers=("f",))
    assert await rig.turn() == [(E1, 1)]
    assert rig.database.flows()[0].confirmed == E1


@in_loop
async def test_every_connection_asks_anew_and_sends_again_what_is_not_acknowledged(rig: Rig) -> None:
    rig.flow()
    await rig.admitted()
    assert await rig.turn() == [(E1, 1)]
    rig.uplink.disconnected()
    assert await rig.turn() == []
    rig.uplink.connected()
    assert await rig.turn() == ["f"]
    await rig.acknowledge(answers=("f",))
    assert await rig.turn() == [(E1, 1)]


@in_loop
async def test_a_hello_that_could_not_be_sent_is_sent_as_soon_as_it_can(rig: Rig) -> None:
    rig.flow()
    rig.uplink.connected()
    rig.connected = False
    assert await rig.turn() == []
    rig.connected = True
    assert await rig.turn() == ["f"]


@in_loop
async def test_without_progress_a_stream_is_sent_again_from_its_last_acknowledged_number(rig: Rig) -> None:
    rig.flow()
    rig.rows(3)
    await rig.admitted()
    assert await rig.turn() == [(E1, n) for n in (1, 2, 3, 4)]
    rig.clock.advance(RESEND_S)
    await rig.acknowledge({("f", E1, 0): 2})
    rig.clock.advance(RESEND_S)
    assert await rig.turn() == [], "progress was made a moment ago"
    rig.clock.advance(1.0)
    assert await rig.turn() == [(E1, 3), (E1, 4)]


@in_loop
async def test_an_acknowledgement_deletes_what_it_covers(rig: Rig) -> None:
    rig.flow()
    rig.rows(3)
    await rig.admitted()
    await rig.turn()
    await rig.acknowledge({("f", E1, 0): 3})
    assert rig.database.outbox_size.batches == 1
    assert rig.uplink.status.acknowledged == 3
    assert await rig.turn() == []


@in_loop
async def test_no_more_than_a_window_is_on_its_way_wherever_the_numbers_stand(rig: Rig) -> None:
    rig.flow()
    rig.rows(WINDOW + 9)
    await rig.admitted()
    assert await rig.turn() == [(E1, n) for n in range(1, WINDOW + 1)]
    await rig.acknowledge({("f", E1, 0): 4})
    assert await rig.turn() == [(E1, n) for n in range(WINDOW + 1, WINDOW + 5)]
    await rig.acknowledge({("f", E1, 0): WINDOW + 10})
    assert await rig.turn() == []
    for number in (11, 12):
        rig.rows(1)
        assert await rig.turn() == [(E1, WINDOW + number)], "the window is empty again, whatever the number"


@in_loop
async def test_a_foreign_gateways_acknowledgement_is_ignored_and_a_malformed_one_counted(rig: Rig) -> None:
    rig.flow()
    rig.uplink.connected()
    await rig.acknowledge({("f", E1, 0): 9}, answers=("f",), gateway="g2")
    assert rig.database.outbox_size.batches == 1
    assert await rig.turn() == ["f"]
    for payload in (b"", b"\xc1", b"\x80", b"{}"):
        await rig.uplink.acknowledged_untrusted(payload)
    assert rig.uplink.status.bad_acks == 4


@in_loop
async def test_a_new_card_takes_epochs_above_what_the_tables_hold(rig: Rig) -> None:
    rig.flow(E1)
    rig.rows(1)
    rig.flow(E2, version=2)
    rig.uplink.connected()
    await rig.acknowledge({("f", E7, 0): 33, ("f", E7, 1): 4, ("f", E1 + 1, 0): 1}, answers=("f",))
    (first, second) = rig.database.epochs("f")
    assert (epoch_ordinal(first), epoch_ordinal(second)) == (8, 9)
    assert await rig.turn() == [(first, 1), (first, 2), (second, 1)]
    opened, _, again = rig.sent
    assert isinstance(opened, OpenBatch)
    assert (opened.parent, opened.cut, again.parent, again.cut) == (E7, {0: 33, 1: 4}, first, {0: 2})
    assert rig.renamed == [("f", second)]
    await rig.acknowledge({("f", E7, 0): 33, ("f", second, 0): 1}, answers=("f",))
    assert rig.database.epochs("f") == [first, second], "epochs that left keep their names"
    assert rig.uplink.status.error == ""


@pytest.mark.parametrize("acks", [{("f", E7, 0): 3}, {("f", E1, 0): 500}])
def test_a_card_older_than_the_tables_says_so_until_the_flow_is_deployed_anew(acks: Acks, rig: Rig) -> None:
    @in_loop
    async def run() -> None:
        rig.flow(E1, confirmed=E1)
        rig.uplink.connected()
        await rig.acknowledge(acks, answers=("f",))
        assert "restored or cloned card" in rig.uplink.status.error
        rig.flow(E1, name="other")
        await rig.acknowledge(answers=("other",))
        assert "flow f" in rig.uplink.status.error, "the answer about another flow takes nothing back"

        rig.flow(E2, confirmed=E1, version=2)
        await rig.acknowledge(acks, answers=("f",))
        assert rig.uplink.status.error == ""
        ((_, greatest, stream), number) = next(iter(acks.items()))
        opened = unpack_result_untrusted(rig.database.outbox("f", rig.database.epochs("f")[-1], 0, 0, 1)[0].payload)
        assert isinstance(opened, OpenBatch)
        assert opened.epoch > greatest
        assert (opened.parent, opened.cut) == (greatest, {stream: number})

    run()


@in_loop
async def test_a_collector_that_knows_only_older_epochs_changes_nothing(rig: Rig) -> None:
    rig.flow(E2, confirmed=E2)
    rig.uplink.connected()
    await rig.acknowledge({("f", make_epoch(1, 99), 0): 3}, answers=("f",))
    assert rig.database.epochs("f") == [E2]
    assert await rig.turn() == [(E2, 1)]


@in_loop
async def test_an_answer_about_a_flow_that_is_not_ours_is_nothing(rig: Rig) -> None:
    rig.uplink.connected()
    await rig.acknowledge({("stranger", E1, 0): 3}, answers=("stranger",))
    assert (rig.renamed, rig.uplink.status.error) == ([], "")
