"""What the uplink does with answers: acknowledgements, epochs of a new card, and forged or absurd numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from edgert.core.ids import MOST_ORDINAL, epoch_ordinal, is_credible, make_epoch
from edgert.core.packing import pack
from edgert.core.results.results import OpenBatch
from gateway.uplink.reconcile import MARGIN
from gateway.uplink.uplink import HELLO_S
from tests.gateway.uplink_rig import E1, E2, E7, Collector, Rig
from tests.waiting import in_loop


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path)


@in_loop
async def test_an_acknowledgement_deletes_what_it_covers(rig: Rig) -> None:
    rig.flow()
    rig.rows(3)
    await rig.admitted()
    await rig.turn()
    await rig.acknowledge({("f", E1, 0): 3})
    assert rig.database.outbox_size.batches == 1
    assert rig.uplink.status.acknowledged == {"f": 3}
    assert await rig.turn() == []


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
    assert await rig.turn() == [(first, 1), (second, 1), (first, 2), (first, 3)], "openings, the gap, and what is old"
    opened, again, *_ = rig.sent
    assert isinstance(opened, OpenBatch)
    assert (opened.parent, opened.cut, again.parent, again.cut) == (E7, {0: 33, 1: 4}, first, {0: 3})
    assert rig.renamed == [("f", second)]
    await rig.acknowledge({("f", E7, 0): 33, ("f", second, 0): 1}, answers=("f",))
    assert rig.database.epochs("f") == [first, second], "epochs that left keep their names"
    assert rig.uplink.status.error == ""


@in_loop
async def test_a_collector_that_knows_only_older_epochs_changes_nothing(rig: Rig) -> None:
    rig.flow(E2)
    await rig.admitted()
    await rig.turn()
    rig.uplink.connected()
    await rig.acknowledge({("f", make_epoch(1, 99), 0): 3}, answers=("f",))
    assert rig.database.epochs("f") == [E2]
    assert await rig.turn() == [(E2, 1)]


@in_loop
async def test_an_answer_about_a_flow_that_is_not_ours_is_nothing(rig: Rig) -> None:
    rig.uplink.connected()
    await rig.acknowledge({("stranger", E1, 0): 3}, answers=("stranger",))
    assert (rig.renamed, rig.uplink.status.error) == ([], "")


@in_loop
async def test_a_forged_acknowledgement_of_what_was_not_sent_empties_no_outbox(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    rig.flow()
    rig.rows(100)
    await rig.turn()
    await rig.admitted()
    await rig.turn()
    sent = max(number for _, number in ((m.epoch, m.sequence) for m in rig.sent))
    assert sent < 101, "the window holds back the rest"
    waiting = rig.database.outbox_size.batches
    for _ in range(3):
        await rig.acknowledge({("f", E1, 0): sent + 5})
    assert rig.database.outbox_size.batches == waiting
    assert rig.uplink.status.bad_acks == 3
    assert f"{sent + 5} is acknowledged of stream 0, of which {sent} were sent" in rig.uplink.status.error
    assert caplog.text.count("an acknowledgement that cannot be true is refused") == 1
    await rig.acknowledge({("f", E1, 0): sent})
    assert rig.database.outbox_size.batches == waiting - sent
    assert rig.uplink.status.error == ""


@in_loop
@pytest.mark.parametrize("number", [401, 10_000])
@pytest.mark.parametrize("tokens", [{}, {"f": b"guessed!"}])
async def test_a_forged_answer_of_somebody_who_has_not_read_the_hello_voids_nothing(
    rig: Rig, number: int, tokens: dict[str, bytes]
) -> None:
    """It tells of results that this database never had: believed, it would cut the epoch as after a restored card."""
    collector = Collector()
    rig.flow()
    rig.rows(300)
    rig.uplink.connected()
    await rig.turn()
    await rig.forge({("f", E1, 0): number}, tokens)
    await collector.serve(rig)
    await rig.forge({("f", E1, 0): number}, tokens)
    rig.rows(100)
    rig.clock.advance(HELLO_S)
    await collector.serve(rig, 20)
    assert collector.rows() == [*range(1, 401)]
    assert collector.gaps() == []
    assert rig.renamed == [("f", E1)] * len(rig.renamed)
    assert rig.uplink.status.error == ""


@in_loop
@pytest.mark.parametrize("ordinal", [2**31 - 1, MOST_ORDINAL + 1])
async def test_an_acknowledgement_of_an_epoch_that_no_flow_comes_to_stops_nothing(rig: Rig, ordinal: int) -> None:
    rig.flow()
    rig.rows(3)
    rig.uplink.connected()
    await rig.turn()
    await rig.acknowledge({("f", make_epoch(ordinal, 5), 0): 7}, answers=("f",))
    assert rig.uplink.status.bad_acks == 1
    assert "no epoch comes to the number" in rig.uplink.status.error
    assert await rig.turn() == [(E1, 1), (E1, 2), (E1, 3), (E1, 4)]


@in_loop
@pytest.mark.parametrize("entry", [["f", 2**63, 0, 1], ["f", 1, 2**63, 1], ["f", 1, 0, 2**64 - 1]])
async def test_absurd_numbers_in_an_acknowledgement_are_refused_and_counted(rig: Rig, entry: list[Any]) -> None:
    rig.flow()
    rig.rows(3)
    rig.uplink.connected()
    await rig.turn()
    plain = {"v": 1, "gateway": "g1", "collector": "c", "answers": ["f"], "acks": [entry]}
    await rig.uplink.acknowledged_untrusted(pack(plain))
    assert rig.uplink.status.bad_acks == 1


@in_loop
async def test_the_greatest_epoch_that_is_believed_leaves_room_for_the_next_at_the_collector(rig: Rig) -> None:
    rig.flow()
    rig.rows(1)
    rig.uplink.connected()
    await rig.turn()
    greatest = make_epoch(MOST_ORDINAL - MARGIN, 5)
    await rig.acknowledge({("f", greatest, 0): 7}, answers=("f",))
    ((epoch, _), *_) = await rig.turn()
    assert epoch > greatest
    assert is_credible(epoch, None)
