"""At-least-once flows in a gateway: what leaves ahead of a checkpoint, what waits for it, and what a crash repeats."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

from edgert.core.errors import StoreError
from edgert.flow.document import from_plain
from edgert.operators.registry import REGISTRY
from gateway.checkpoint.early_results import EarlyResults
from tests.gateway.full_outboxes import feed, fill
from tests.gateway.whole_gateway import Gateway, document
from tests.waiting import in_loop


def at_least_once(name: str = "f", **top: Any) -> Any:
    plain = copy.deepcopy(document(name).document)
    return from_plain({**plain, "delivery": "at-least-once", **top}, REGISTRY)


class Rig(Gateway):
    """With results that may leave ahead, unless `away`."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.away = False
        self.woken = 0
        self.checkpointer.on_committed = self._wake
        self.early_results = EarlyResults(self.flow_registry, self.host, self.checkpointer, lambda flow: not self.away)

    def _wake(self) -> None:
        self.woken += 1


@in_loop
async def test_results_leave_before_the_checkpoint_and_not_again_with_it(tmp_path: Path) -> None:
    rig = Rig(tmp_path / "db")
    await rig.flows.deploy(at_least_once(), "mqtt")
    await rig.flows.deploy(document("other"), "mqtt")
    feed(rig, 1, 1.0)
    feed(rig, 2, 1_000.0)
    assert await rig.early_results.send()
    assert rig.shipped() == 1, "one flow's window; the other's waits"
    assert rig.woken == 1, "the uplink hears of it"
    rig.ingest.acknowledge()
    assert len(rig.ingest.inbox.owed) == 2, "the input waits for the checkpoint as before"
    assert rig.flows.runs["f"].rows_shipped == 1
    assert len(rig.flows.runs["f"].latest) == 1
    assert await rig.early_results.send()
    assert rig.woken == 1, "nothing new"
    assert await rig.checkpoint()
    assert rig.shipped() == 2
    rig.ingest.acknowledge()
    assert not rig.ingest.inbox.owed
    await rig.flows.remove("f")
    await rig.flows.remove("other")
    assert rig.shipped() == 4
    assert not rig.database.repeated.total()
    rig.crash()


@in_loop
async def test_a_crash_repeats_what_had_left_and_says_so(tmp_path: Path) -> None:
    rig = Rig(tmp_path / "db")
    await rig.flows.deploy(at_least_once(), "mqtt")
    feed(rig, 1, 1.0)
    feed(rig, 2, 1_000.0)
    await rig.early_results.send()
    feed(rig, 3, 2_000.0)
    rig.crash()
    again = Rig(tmp_path / "db")
    assert again.database.repeated == {"f": 1}
    assert again.shipped() == 1, "what had left is still to be sent until it has landed"
    for n, time in ((1, 1.0), (2, 1_000.0), (3, 2_000.0)):
        feed(again, n, time, dup=True)
    await again.flows.remove("f")
    assert again.shipped() == 3 + 1
    assert again.database.repeated == {"f": 1}
    again.crash()


@in_loop
async def test_without_contact_results_wait_for_the_checkpoint(tmp_path: Path) -> None:
    rig = Rig(tmp_path / "db")
    await rig.flows.deploy(at_least_once(), "mqtt")
    feed(rig, 1, 1.0)
    feed(rig, 2, 1_000.0)
    rig.away = True
    assert await rig.early_results.send()
    assert rig.shipped() == 0
    rig.away = False
    assert await rig.early_results.send()
    assert rig.shipped() == 1
    rig.crash()


@pytest.mark.parametrize("error", [StoreError("disk full"), TypeError("a value that cannot be packed")])
@in_loop
async def test_what_cannot_be_written_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    rig = Rig(tmp_path / "db")
    await rig.flows.deploy(at_least_once(), "mqtt")
    for n in range(1, 4):
        feed(rig, n, 1_000.0 * n)

    def fail(*_: Any) -> None:
        raise error

    with monkeypatch.context() as broken:
        broken.setattr(rig.database, "put_early", fail)
        assert not await rig.early_results.send()
    assert rig.checkpointer.status.error == str(error)
    assert rig.checkpointer.status.failures == 1
    assert rig.shipped() == 0
    assert await rig.checkpoint()
    assert rig.shipped() == 2
    assert not rig.checkpointer.status.error
    rig.crash()


@in_loop
async def test_behind_a_checkpoint_that_is_not_committed_nothing_leaves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = Rig(tmp_path / "db")
    await rig.flows.deploy(at_least_once(), "mqtt")
    feed(rig, 1, 1.0)

    def fail(*_: Any) -> None:
        raise StoreError("disk full")

    with monkeypatch.context() as broken:
        broken.setattr(rig.database, "commit", fail)
        assert not await rig.checkpoint()
    feed(rig, 2, 1_000.0)
    assert await rig.early_results.send()
    assert rig.shipped() == 0, "it would be taken for covered by that checkpoint"
    assert await rig.checkpoint()
    assert await rig.early_results.send()
    assert rig.shipped() == 1
    rig.crash()
    again = Gateway(tmp_path / "db")
    assert again.database.repeated == {"f": 1}
    again.crash()


@in_loop
async def test_a_flow_that_keeps_all_waits_for_room(tmp_path: Path) -> None:
    rig = Rig(tmp_path / "db")
    await rig.flows.deploy(at_least_once(outbox={"full": "stop-acknowledging"}), "mqtt")
    fill(rig)
    feed(rig, 1, 1.0)
    feed(rig, 2, 1_000.0)
    assert await rig.early_results.send()
    assert rig.shipped() == 0
    assert rig.checkpointer.outbox_room.blocked == {"f"}
    assert not rig.early_results.chosen(), "it goes on with its checkpoint"
    rig.database.quota_bytes = 1e9
    assert await rig.checkpoint()
    assert rig.shipped() == 1
    assert rig.early_results.chosen()
    rig.crash()


@in_loop
async def test_a_new_version_changes_the_guarantee(tmp_path: Path) -> None:
    rig = Rig(tmp_path / "db")
    await rig.flows.deploy(at_least_once(), "mqtt")
    feed(rig, 1, 1.0)
    feed(rig, 2, 1_000.0)
    await rig.early_results.send()
    feed(rig, 3, 2_000.0)
    await rig.flows.deploy(document(topic="y/{source}"), "mqtt")  # its windows go on from none
    assert rig.shipped() == 3, "the old version's windows, each once"
    assert not rig.early_results.chosen()
    rig.crash()
    again = Gateway(tmp_path / "db")
    assert not again.database.repeated.total()
    again.crash()
