"""What is said, and lost, where a flow ends or is replaced and its state or last results cannot be written."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from edgert.core.checkpoint.checkpoint import Checkpoint
from edgert.core.errors import DamagedError
from edgert.mqtt.packets.packets import Publish
from edgert.store.database import Database
from gateway.ledger.gaps import ABANDONED
from tests.gateway.whole_gateway import Gateway, document
from tests.gateway.worlds import gaps
from tests.waiting import in_loop


@pytest.mark.parametrize("replaced", [True, False])
@in_loop
async def test_a_flow_whose_state_cannot_be_packed_ends_without_it(
    replaced: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gateway = Gateway(tmp_path / "db")
    for name in ("f", "other"):
        await gateway.flows.deploy(document(name), "mqtt")
    for state in ("delta", "snapshot"):
        monkeypatch.setattr(gateway.flows.runs["f"].stages["minute"].logic, state, lambda: {"windows": object()})
    gateway.feed(1, 1.0)
    assert await gateway.checkpoint()
    if replaced:
        assert await gateway.flows.deploy(document(description="repaired"), "mqtt") == 2
    else:
        assert await gateway.flows.remove("f")
    (gap,) = gaps(gateway)
    assert "could not be brought to its end (TypeError" in gap.text
    gateway.feed(2, 2.0)
    assert await gateway.checkpoint()
    assert len(gateway.ingest.inbox.owed) == 0
    for name in sorted(gateway.flows.runs):
        assert await gateway.flows.remove(name)
    assert gateway.shipped() == (3 if replaced else 2)
    gateway.crash()


@in_loop
async def test_an_end_that_cannot_be_written_in_any_way_is_over_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What happens to the flow or its successor after that is theirs again."""
    gateway = Gateway(tmp_path / "db")
    await gateway.flows.deploy(document(), "mqtt")
    monkeypatch.setattr(gateway.database, "put_flow", mock.Mock(side_effect=ValueError("not foreseen")))
    with pytest.raises(ValueError, match="not foreseen"):
        await gateway.flows.deploy(document(description="new"), "mqtt")
    assert (gateway.flows.leaving, gateway.flows.entering) == (None, {})
    gateway.crash()


@pytest.mark.parametrize("kind", [DamagedError, TypeError])
@in_loop
async def test_what_keeps_a_flow_s_last_results_from_being_written_is_said(
    kind: type[Exception], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gateway = Gateway(tmp_path / "db")
    await gateway.flows.deploy(document(), "mqtt")
    gateway.feed(1, 1.0)
    write = Database._write

    def damaged(self: Database, db: sqlite3.Connection, commit: Checkpoint) -> None:
        if commit.rows:
            raise kind("the database could not be written: expected a map")
        write(self, db, commit)

    monkeypatch.setattr(Database, "_write", damaged)
    async with asyncio.timeout(60.0):
        assert await gateway.flows.deploy(document(topic="+/{source}"), "mqtt") == 2
        await asyncio.gather(*gateway.flows.losses.telling.running)
    assert "could not be written (the database could not be written: expected a map)" in gaps(gateway)[0].text
    assert gateway.shipped() == 0
    gateway.feed(2, 2.0)
    assert await gateway.checkpoint(), "the others go on"
    gateway.crash()


@pytest.mark.parametrize("replaced", [True, False])
@in_loop
async def test_the_open_windows_of_a_stopped_flow_are_said_to_be_lost_when_they_are(
    replaced: bool, tmp_path: Path
) -> None:
    gateway = Gateway(tmp_path / "db")
    await gateway.flows.deploy(document(), "mqtt")
    gateway.feed(1, 1.0)
    assert await gateway.checkpoint()
    gateway.flows.fail(gateway.flows.runs["f"], "its slots died")
    if replaced:
        assert await gateway.flows.deploy(document(description="repaired"), "mqtt") == 2
        gateway.feed(2, 2.0)
    assert await gateway.flows.remove("f")
    stopped, lost = gaps(gateway)
    assert ("its slots died" in stopped.text, ABANDONED in lost.text) == (True, True)
    assert gateway.shipped() == (1 if replaced else 0)
    assert gateway.flows.failed == {}
    gateway.crash()


@in_loop
async def test_an_end_in_the_midst_of_a_replacement_takes_nothing_from_the_old_version(tmp_path: Path) -> None:
    """The new version was fed message 3, which is not acknowledged; no checkpoint may say that the old one was."""

    class OneThread(Gateway):
        executor = ThreadPoolExecutor(1)

        async def store(self, call: Callable[[], Any]) -> Any:
            return await asyncio.get_running_loop().run_in_executor(self.executor, call)

    path, busy, begun = tmp_path / "db", threading.Event(), asyncio.Event()
    gateway = OneThread(path)
    await gateway.flows.deploy(document(), "mqtt")
    gateway.feed(1, 1.0)
    assert await gateway.checkpoint()
    gateway.feed(2, 2.0)
    begin = gateway.host.begin

    def while_busy(run: Any, *of: Any, **how: Any) -> None:
        gateway.executor.submit(busy.wait)
        begin(run, *of, **how)
        begun.set()

    gateway.host.begin = while_busy  # type: ignore[method-assign]
    replacing = asyncio.create_task(gateway.flows.deploy(document(description="new"), "mqtt"))
    await begun.wait()
    await asyncio.sleep(0.01)
    gateway.ingest.feed([Publish("x/a", b'{"time": 1700000003}', 1, False, False, 3)])
    replacing.cancel()
    await asyncio.sleep(0)
    busy.set()
    await asyncio.gather(replacing, return_exceptions=True)
    assert await gateway.checkpoint()
    gateway.crash()
    gateway = OneThread(path)
    for number in (2, 3):
        gateway.feed(number, number, dup=True)
    await gateway.flows.remove("f")
    assert gateway.shipped() == 3
    gateway.crash()
