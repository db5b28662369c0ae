"""A gateway whose database had to be set aside, and one that finds out while it runs."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from edgert.core.errors import EdgertError
from edgert.core.ids import epoch_ordinal
from edgert.core.settings import Central, Flows, Gateway, GatewaySettings, Sensors, Web
from edgert.flow.document import load
from edgert.mqtt.packets import Publish
from gateway.daemon import Daemon
from tests.gateway.test_flow_files import DOCUMENT
from tests.waiting import in_loop


def daemon(folder: Path, *files: str) -> Daemon:
    """Without a connection to anybody."""
    return Daemon(
        GatewaySettings(
            gateway=Gateway(id="g1", data_dir=str(folder)), central=Central(enabled=False), web=Web(enabled=False),
            sensors=Sensors(port=1), flows=Flows(files=files),
        )
    )  # fmt: skip


async def ends(board: Daemon) -> None:
    board.stop()
    await board._end()


@in_loop
async def test_flows_are_started_from_their_documents_also_when_one_of_them_cannot_be(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first = daemon(tmp_path)
    await first._start()
    for name in ("f", "g", "gone"):
        text = DOCUMENT.format(name=name, description=name).encode()
        await first.flows.deploy(load(text, first.flows.registry), "mqtt")
    await first.flows.remove("gone")
    epoch = first.flows.runs["f"].epoch
    first.database._db.execute("UPDATE flow SET document = '{\"name\": \"g\"}' WHERE name = 'g'")
    await ends(first)
    path = tmp_path / "gateway.db"
    raw = bytearray(path.read_bytes())
    at = raw.index(b"CREATE TABLE opening")
    raw[at : at + 10] = b"\xff" * 10
    path.write_bytes(raw)
    again = daemon(tmp_path)
    with caplog.at_level(logging.ERROR):
        await again._start()
    assert "is kept as" in caplog.text
    run = again.flows.runs["f"]
    assert (run.flow.description, run.version, epoch_ordinal(run.epoch)) == ("f", 2, epoch_ordinal(epoch) + 1)
    assert "is damaged" in again.flows.gaps["f"]
    assert sorted(again.flows.failed) == ["g"]
    assert again.ingest.inbox.table.is_lost(7)
    assert again.database.rescued() is None
    await ends(again)
    once_more = daemon(tmp_path)
    await once_more._start()
    assert (sorted(once_more.flows.runs), once_more.flows.gaps) == (["f"], {})
    await ends(once_more)


@in_loop
async def test_what_a_damaged_database_would_take_is_left_to_the_sensors_broker(tmp_path: Path) -> None:
    board = daemon(tmp_path)
    await board._start()
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
