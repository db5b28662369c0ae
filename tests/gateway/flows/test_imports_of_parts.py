"""Imports of a part: in their order, only where they are stored, and set aside where they are damaged."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from edgert.core.batch import Batch
from edgert.core.errors import EdgertError, StoreError
from edgert.runtime.checkpoint.packing import pack_queues, unpack_queues
from edgert.runtime.instance.queue import Entry
from gateway.flows.parts import Parts
from gateway.flows.plans import FLEET
from tests.gateway.flows.parts_here import AT, GUEST, parts_of
from tests.gateway.whole_gateway import Gateway, document
from tests.waiting import in_loop

DOCUMENT = dict(document().document)


def waiting(*numbers: int) -> bytes:
    rows = ([{"time": 1_700_000_000.0, "source": "a", "number": number}] for number in numbers)
    return pack_queues({"minute": [Entry(0, Batch(some, 0.0)) for some in rows]})


def export(gateway: str, queue: bytes = b"", pending: bytes = b"", since: str = "") -> dict[str, Any]:
    return {"gateway": gateway, "since": since, "states": [], "queue": queue, "pending": pending}


@in_loop
async def test_batches_that_a_board_took_stand_before_those_that_were_on_their_way_to_it(tmp_path: Path) -> None:
    """`minute` comes from g3; g2, which has the source, still has what g3 had not taken."""
    gateway = Gateway(tmp_path / "db")
    parts, _ = parts_of(gateway)
    await parts.obey("f", 2)
    imports = [export("g2", pending=waiting(3, 4)), export("g3", queue=waiting(1, 2))]
    await parts.prepare(DOCUMENT, GUEST, 2, imports)
    (entries,) = unpack_queues(parts.prepared["f"].queue, 0.0).values()
    batches = [entry.batch for entry in entries if isinstance(entry.batch, Batch)]
    assert [row["number"] for batch in batches for row in batch.rows] == [1, 2, 3, 4]
    gateway.crash()


@in_loop
async def test_a_joining_board_that_cannot_store_its_part_keeps_no_run_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gateway = Gateway(tmp_path / "db")
    parts, _ = parts_of(gateway)
    await parts.obey("f", 2)
    await parts.ahead(DOCUMENT, GUEST, 2, {"g2": {"token": "t", "states": []}})

    def full(*_: Any) -> None:
        raise StoreError("no room")

    monkeypatch.setattr(gateway.database, "write", full)
    with pytest.raises(EdgertError, match="no room"):
        await parts.prepare(DOCUMENT, GUEST, 2, [export("g2", since="t")])
    assert parts.precopy.ready == {}
    gateway.crash()


async def damaged(path: Path, column: str) -> tuple[Gateway, Parts, Mapping[str, Any]]:
    """A gateway that starts with a damaged column of flow f, of which a part is prepared; flow other is there, too."""
    gateway = Gateway(path)
    await gateway.flows.deploy(document(), FLEET, AT, 1)
    await gateway.flows.deploy(document("other", topic="y/{source}"), "mqtt")
    gateway.feed(1, 1.0)
    parts, _ = parts_of(gateway)
    await parts.obey("f", 2)
    await parts.put_rules("f", 2, {"pins": {}})
    await parts.stop("f")
    await parts.prepare(DOCUMENT, AT, 2, [export("g2")])
    gateway.crash()
    with sqlite3.connect(path) as database:
        database.execute(f"UPDATE plan_change SET {column} = ? WHERE flow = 'f'", (b"\x00broken",))
    database.close()
    again = Gateway(path)
    parts, _ = parts_of(again)
    assert set(again.flows.runs) == {"f", "other"}
    again.feed(2, 2.0, topic="y/a")
    return again, parts, parts.status()["f"]


@in_loop
async def test_a_damaged_part_of_the_next_plan_stops_its_own_flow_only_until_the_coordinator_undoes_the_change(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    gateway, parts, told = await damaged(tmp_path / "db", "prepared")
    assert "flow f: its part of the next plan" in caplog.text
    assert (told["state"], told["suspended"]) == ("stopped", False), "a coordinator may have decided for the next plan"
    assert parts.stopped["f"].patience is None
    with pytest.raises(EdgertError, match="expected a prepared plan 2"):
        await parts.commit("f", 2)
    await parts.abort("f", 2)
    assert parts.status()["f"]["state"] == "running"
    gateway.crash()
    again = Gateway(tmp_path / "db")
    parts, _ = parts_of(again)
    assert parts.status()["f"]["state"] == "running"
    again.crash()


@in_loop
async def test_damaged_rules_are_lost_and_stop_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    gateway, _, told = await damaged(tmp_path / "db", "rules")
    assert (told["state"], told["rules"]) == ("prepared", {})
    assert "the rules of its placement" in caplog.text
    gateway.crash()
