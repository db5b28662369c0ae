"""The collector cuts acknowledgements to its broker's limit: parts do to the outbox what the whole one does."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.gateway.uplink_rig import E1, E7, Acks, Rig
from tests.waiting import in_loop

FLOWS = ("f", "h")


async def shipped(folder: Path) -> Rig:
    """Two flows with five batches each, all of which have left."""
    rig = Rig(folder)
    for name in FLOWS:
        rig.flow(name=name)
        rig.rows(4, name)
    rig.uplink.connected()
    await rig.acknowledge(answers=FLOWS)
    for _ in range(3):
        await rig.turn()
        await rig.acknowledge({(name, E1, 0): 1 for name in FLOWS})
    return rig


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("foreign", [False, True])
def test_parts_in_any_order_do_what_the_whole_acknowledgement_does(seed: int, foreign: bool, tmp_path: Path) -> None:
    """`foreign`: the tables hold an epoch of flow h that this database never had."""
    draw = random.Random(seed)
    acks: Acks = {("f", E1, 0): 4, ("f", E1, 1): 0, ("h", E1, 0): 3, **({("h", E7, 0): 9} if foreign else {})}
    parts = [{key: n} for key, n in acks.items()]
    draw.shuffle(parts)

    folders = [tmp_path / "whole", tmp_path / "cut"]
    for folder in folders:
        folder.mkdir()

    @in_loop
    async def compare() -> None:
        whole, cut = await shipped(folders[0]), await shipped(folders[1])
        await whole.acknowledge(acks)
        for part in parts:
            await cut.acknowledge(part)
        assert cut.uplink.status.bad_acks == 0
        assert cut.uplink._answered == whole.uplink._answered
        assert whole.database.outbox_size.batches == (5 if foreign else 3)
        # Numbers that left before the tables were another's mean the same here and there, and may go.
        assert cut.database.outbox_size.batches in ({3, 5} if foreign else {3})
        assert list(cut.database.departed("h")) == [E1]

    compare()
