"""A gateway whose database had to be set aside, and one that finds out while it runs."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from edgert.core.errors import DocumentError, EdgertError
from edgert.core.ids import epoch_ordinal
from edgert.core.results.results import GapBatch, OpenBatch, RowsBatch, unpack_result_untrusted
from edgert.flow.document import from_plain, load
from edgert.flow.graph import Flow
from edgert.mqtt.packets.packets import Publish
from gateway.flows import flows as flows_module
from tests.gateway.daemons import DOCUMENT, daemon, ends
from tests.gateway.whole_gateway import Gateway as Whole
from tests.gateway.worlds import results, with_messages
from tests.waiting import in_loop


@in_loop
async def test_flows_are_started_from_their_documents_also_when_one_of_them_cannot_be(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first = daemon(tmp_path)
    await first.start()
    for name in ("f", "g", "gone"):
        text = DOCUMENT.format(name=name, description=name).encode()
        await first.flows.deploy(load(text, first.flows.registry), "mqtt")
    await first.flows.remove("gone")
    epoch = first.flows.runs["f"].epoch
    first.database.db.execute("UPDATE flow SET document = '{\"name\": \"g\"}' WHERE name = 'g'")
    await ends(first)
    path = tmp_path / "gateway.db"
    raw = bytearray(path.read_bytes())
    at = raw.index(b"CREATE TABLE opening")
    raw[at : at + 10] = b"\xff" * 10
    path.write_bytes(raw)
    again = daemon(tmp_path)
    with caplog.at_level(logging.ERROR):
        await again.start()
    assert "is kept as" in caplog.text
    run = again.flows.runs["f"]
    assert (run.flow.description, run.version, epoch_ordinal(run.epoch)) == ("f", 2, epoch_ordinal(epoch) + 1)
    assert "is damaged" in again.flows.gaps["f"]
    status = again.status.object()
    told = {(part["part"], part["name"]): part for part in status["health"]["parts"]}
    for part in (("database", ""), ("flow", "f")):
        assert (told[part]["level"], "is damaged" in told[part]["text"]) == ("warning", True)
    assert again.database.meta("begun_anew") is None, "nobody is told again"
    assert sorted(again.flows.failed) == ["g"]
    assert again.ingest.inbox.table.is_lost(7)
    assert again.database.rescued() is None
    await ends(again)
    once_more = daemon(tmp_path)
    await once_more.start()
    assert (sorted(once_more.flows.runs), once_more.flows.gaps) == (["f"], {})
    assert sorted(once_more.flows.failed) == ["g"], "it is not forgotten"
    await ends(once_more)


@in_loop
async def test_a_flow_that_cannot_start_is_not_forgotten_and_each_says_what_it_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "db"
    await with_messages(path)
    path.write_bytes(path.read_bytes().replace(b"CREATE TABLE opening", b"\xff" * 20))

    def lacking(plain: Mapping[str, Any], *arguments: Any, **named: Any) -> Flow:
        if plain["name"] == "f":
            raise DocumentError("flow f", [])
        return from_plain(plain, *arguments, **named)

    with monkeypatch.context() as patch:
        patch.setattr(flows_module, "from_plain", lacking)
        gateway = Whole(path)
        rescued = gateway.database.rescued()
        assert rescued is not None
        await gateway.flows.restore(rescued, str(gateway.database.meta("begun_anew")))
        assert (list(gateway.flows.runs), list(gateway.flows.failed)) == (["other"], ["f"])
        gap = unpack_result_untrusted(
            gateway.database.outbox("other", gateway.flows.runs["other"].epoch, 0, 1, 9)[0].payload
        )
        assert isinstance(gap, GapBatch)
        assert "is damaged" in gap.text
        assert (gateway.database.rescued(), gateway.database.meta("begun_anew")) == (None, None)
        gateway.crash()
        gateway = Whole(path)
        assert (list(gateway.flows.runs), list(gateway.flows.failed)) == (["other"], ["f"])
        gateway.crash()
    gateway = Whole(path)
    gateway.feed(1, 1.0)
    assert await gateway.checkpoint()
    gateway.crash()
    gateway = Whole(path)
    assert (sorted(gateway.flows.runs), gateway.flows.failed) == (["f", "other"], {})
    assert epoch_ordinal(gateway.flows.runs["f"].epoch) == 2
    assert await gateway.flows.remove("f")
    opened, gap, rows = results(gateway.database)
    assert isinstance(opened, OpenBatch)
    assert isinstance(gap, GapBatch)
    assert "until the flow could start" in gap.text
    assert isinstance(rows, RowsBatch)
    gateway.crash()


@in_loop
async def test_what_a_damaged_database_would_take_is_left_to_the_sensors_broker(tmp_path: Path) -> None:
    board = daemon(tmp_path)
    await board.start()
    await board.flows.deploy(load(DOCUMENT.format(name="f", description="f").encode(), board.flows.registry), "mqtt")
    topic = board.flows.runs["f"].sources()[0][0].parameters["topic"].filter.replace("+", "x")
    board.ingest.feed([Publish(topic, b'{"time": 1700000000, "v": 1}', 1, False, False, 1)])
    assert board.ingest.inbox.owed
    board.database.damaged = "database disk image is malformed"
    await ends(board)
    assert board.ingest.inbox.owed, "it is not acknowledged at the end either"


@in_loop
async def test_damage_that_shows_while_it_runs_ends_it_so_that_a_start_looks(tmp_path: Path) -> None:
    board = daemon(tmp_path)
    board.database.damaged = "database disk image is malformed"
    with pytest.raises(EdgertError, match="malformed"):
        await board.run()
