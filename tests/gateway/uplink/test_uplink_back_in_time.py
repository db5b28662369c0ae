"""Databases that went back in time: a file copied aside, used on, and put back. The collector is a model of the real
one: it lands what comes next in each stream, drops what it has, and counts by lineage.

    this card    ──1──2──3──┬──4──5──6──            the tables have 1..6
    its copy                └──4'─5'──              4' and 5' are not 4 and 5
"""

from __future__ import annotations

from pathlib import Path

import pytest

from edgert.core.errors import StoreError
from edgert.core.ids import epoch_ordinal, make_epoch
from edgert.core.results.results import OpenBatch
from edgert.store.database import Database
from edgert.store.outbox.outbox import WENT_BACK
from tests.gateway.uplink_rig import E1, E2, E7, Collector, Rig, restart, restore, save
from tests.waiting import in_loop


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path / "card")


@pytest.mark.parametrize("offline_starts", [0, 2])
@pytest.mark.parametrize("made_offline", [1, 2, 3, 40])
def test_rows_made_after_a_restore_are_not_taken_for_those_of_the_same_numbers(
    made_offline: int, offline_starts: int, rig: Rig
) -> None:
    @in_loop
    async def run() -> None:
        collector = Collector()
        rig.flow()
        rig.rows(2)
        rig.uplink.connected()
        await collector.serve(rig)
        save(rig)
        rig.rows(3)
        await collector.serve(rig)
        assert collector.rows() == [1, 2, 3, 4, 5]
        restored = restore(rig, made=100)
        restored.rows(made_offline)
        for _ in range(offline_starts):
            restored = restart(restored)
        restored.uplink.connected()
        await collector.serve(restored)
        assert collector.rows() == [1, 2, *range(101, 101 + made_offline)], "all that this database computes, once"
        assert restored.database.outbox_size.batches == 0
        (gap,) = collector.gaps()
        assert (gap.reason, gap.rows, gap.sequence) == (WENT_BACK, None, 2)
        assert epoch_ordinal(gap.epoch) == 2
        assert restored.renamed[-1] == ("f", gap.epoch)
        restored.rows(1)
        for _ in range(2):
            restored = restart(restored)
            restored.uplink.connected()
            await collector.serve(restored)
        assert len(collector.gaps()) == 1, "said once"
        assert len(collector.rows()) == 3 + made_offline
        restored.database.close()

    run()


@in_loop
async def test_what_waited_in_the_outbox_of_the_copy_is_neither_lost_nor_doubled(rig: Rig) -> None:
    """Numbers 2..6 waited when the copy was made; the collector has them, and 7..9, from the original."""
    collector = Collector()
    rig.flow()
    rig.uplink.connected()
    await collector.serve(rig)
    rig.rows(5)
    save(rig)
    rig.rows(3)
    await collector.serve(rig)
    restored = restore(rig, made=100)
    restored.rows(1)
    restored.uplink.connected()
    await collector.serve(restored)
    assert collector.rows() == [1, 2, 3, 4, 5, 101]


@in_loop
async def test_a_copy_from_before_a_new_version_goes_on_from_the_epoch_it_never_had(rig: Rig) -> None:
    collector = Collector()
    rig.flow()
    rig.rows(2)
    rig.uplink.connected()
    await collector.serve(rig)
    save(rig)
    rig.rows(1)
    rig.flow(E7, version=2)
    rig.rows(2)
    await collector.serve(rig)
    restored = restore(rig, made=100)
    restored.rows(3)
    restored.flow(E2, version=2)
    restored.rows(1)
    restored.uplink.connected()
    await collector.serve(restored)
    assert collector.rows() == [1, 2, 3, 4, 5, 101, 102, 103, 104]
    assert [epoch_ordinal(e) for e in restored.database.epochs("f")] == [1, 8, 9]
    (gap,) = collector.gaps()
    assert gap.flow_version == 1
    assert "stay" in gap.text


@in_loop
async def test_a_copy_that_opened_the_epoch_but_never_sent_it_ships_all_of_it_again(rig: Rig) -> None:
    collector = Collector()
    rig.flow()
    rig.rows(2)
    save(rig)
    rig.uplink.connected()
    await collector.serve(rig)
    restored = restore(rig, made=100)
    restored.rows(1)
    restored.uplink.connected()
    await collector.serve(restored)
    assert collector.rows() == [1, 2, 101]
    (opened,) = [b for (e, _), s in collector.landed.items() for b in s if isinstance(b, OpenBatch) and e != E1]
    assert (opened.parent, opened.cut) == (E1, {0: 0})


@in_loop
async def test_a_copy_of_which_nothing_had_left_does_not_ship_again_what_the_original_did_before_a_new_version(
    rig: Rig,
) -> None:
    """Nobody knows which of 1..3 this card held when it was copied, so its own rows take the place of all of them."""
    collector = Collector()
    rig.flow()
    rig.rows(2)
    save(rig)
    rig.rows(1)
    rig.uplink.connected()
    await collector.serve(rig)
    rig.flow(E7, version=2)
    rig.rows(1)
    await collector.serve(rig)
    assert collector.rows() == [1, 2, 3, 4]
    restored = restore(rig, made=100)
    restored.rows(1)
    restored.uplink.connected()
    await collector.serve(restored)
    assert collector.rows() == [1, 2, 101]
    (gap,) = collector.gaps()
    assert "void" in gap.text
    assert restored.database.outbox_size.batches == 0


@in_loop
async def test_nothing_leaves_or_is_deleted_until_the_new_epoch_is_open(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other half of a clone shows up while we are connected: an acknowledgement above all that we have given."""
    rig.flow()
    rig.rows(3)
    await rig.admitted()
    await rig.turn()
    await rig.acknowledge({("f", E1, 0): 9})
    assert rig.database.outbox_size.batches == 4
    assert await rig.turn() == ["f"]

    def fails(*arguments: object) -> None:
        raise StoreError("database or disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(Database, "rebase", fails)
        await rig.acknowledge({("f", E1, 0): 9}, answers=("f",))
        assert rig.database.outbox_size.batches == 4
        assert await rig.turn() == []
    rig.clock.advance(10.0)
    assert await rig.turn() == ["f"]
    await rig.acknowledge({("f", E1, 0): 9}, answers=("f",))
    new = rig.database.epoch("f")
    assert new is not None
    assert epoch_ordinal(new) == 2


@in_loop
async def test_a_flow_in_trouble_does_not_hold_up_another(rig: Rig) -> None:
    rig.flow()
    rig.flow(name="other")
    rig.uplink.connected()
    await rig.acknowledge(answers=("f", "other"))
    await rig.turn()
    await rig.acknowledge({("f", make_epoch(9, 1), 0): 9, ("other", E1, 0): 1})
    assert rig.database.outbox_streams() == [(("f", E1, 0), True)]


@pytest.mark.parametrize("read", [True, False], ids=["its flows were read", "they were not"])
@in_loop
async def test_a_database_that_was_begun_anew_goes_on_from_what_landed_and_says_why(rig: Rig, read: bool) -> None:
    collector = Collector()
    rig.flow()
    rig.rows(3)
    rig.uplink.connected()
    await collector.serve(rig)
    rig.rows(2)
    rig.database.close()
    path = rig.folder / "gateway.db"
    raw = path.read_bytes().replace(b"CREATE TABLE opening", b"\xff" * 20)
    path.write_bytes(raw if read else b"no database" * 1_000)
    anew = Rig(rig.folder, made=100)
    anew.flow(E2)
    anew.database.restored({"f": anew.database.meta("begun_anew")} if read else {})
    anew.rows(2)
    anew.uplink.connected()
    await collector.serve(anew)
    assert collector.rows() == [1, 2, 3, 101, 102]
    (gap,) = collector.gaps()
    assert f"the database {path} is damaged" in gap.text
