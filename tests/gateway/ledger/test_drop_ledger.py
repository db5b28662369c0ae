"""What a flow has dropped is said with its checkpoints: each drop once, at most once a minute, and all at the end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from edgert.core.errors import StoreError
from edgert.core.results.results import MOST_NAME, DropsBatch, unpack_result_untrusted
from edgert.flow.document import from_plain
from edgert.mqtt.packets.packets import Publish
from edgert.operators.registry import REGISTRY
from gateway.ledger.drop_ledger import DROPS_EVERY_S, NO_ROOM
from tests.gateway.whole_gateway import Gateway, document
from tests.waiting import in_loop

BAD = b"{"


class Rig(Gateway):
    """Of which bad payloads come in."""

    number = 0

    def come(self, *payloads: bytes, dup: bool = False) -> None:
        for payload in payloads:
            self.number += 1
            self.ingest.feed([Publish("x/a", payload, 1, False, dup, self.number)])
        assert self.pool.wait_empty([i for r in self.flows.runs.values() for i in r.all], 60.0)

    def said(self, flow: str = "f") -> list[dict[tuple[str, str], int]]:
        """By each batch that waits in the outbox, oldest first."""
        found = [unpack_result_untrusted(entry.payload) for key, _ in self.database.outbox_streams()
                 if key[0] == flow for entry in self.database.outbox(*key, 0, 1_000)]  # fmt: skip
        return [{(o, r): n for o, r, n in batch.drops} for batch in found if isinstance(batch, DropsBatch)]


def bad(count: int) -> dict[tuple[str, str], int]:
    return {("in", "bad_payload"): count}


@in_loop
async def test_the_checkpoint_that_covers_a_bad_payload_says_so_and_the_next_after_a_minute(tmp_path: Path) -> None:
    gateway = Rig(tmp_path / "db")
    await gateway.flows.deploy(document(), "mqtt")
    gateway.come(b'{"time": 1700000000}')
    assert await gateway.checkpoint()
    assert gateway.said() == []
    gateway.come(BAD, BAD)
    assert gateway.said() == []
    assert await gateway.checkpoint()
    assert gateway.said() == [bad(2)]
    for _ in range(5):
        gateway.come(BAD)
        assert await gateway.checkpoint()
        gateway.clock.advance(DROPS_EVERY_S / 10)
    assert gateway.said() == [bad(2)]
    assert gateway.ingest.inbox.due() == [], "its input is acknowledged all the same"
    gateway.clock.advance(DROPS_EVERY_S / 2)
    assert await gateway.checkpoint()
    assert gateway.said() == [bad(2), bad(5)], "also of a flow to which nothing comes any more"
    gateway.clock.advance(DROPS_EVERY_S)
    assert await gateway.checkpoint()
    assert gateway.said() == [bad(2), bad(5)]
    gateway.crash()


@in_loop
async def test_what_a_failed_commit_was_to_say_stays_due(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gateway = Rig(tmp_path / "db")
    await gateway.flows.deploy(document(), "mqtt")
    gateway.come(BAD)

    def full(*arguments: object) -> None:
        raise StoreError("disk full")

    with monkeypatch.context() as patch:
        patch.setattr(gateway.database, "commit", full)
        assert not await gateway.checkpoint()
    gateway.come(BAD)
    assert await gateway.checkpoint()
    assert gateway.said() == [bad(1)], "what was captured then"
    gateway.clock.advance(DROPS_EVERY_S)
    assert await gateway.checkpoint()
    assert gateway.said() == [bad(1), bad(1)]
    gateway.crash()


@in_loop
async def test_after_a_kill_what_comes_again_is_counted_and_said_once(tmp_path: Path) -> None:
    before = Rig(tmp_path / "db")
    await before.flows.deploy(document(), "mqtt")
    before.come(BAD)
    assert await before.checkpoint()
    before.come(BAD, BAD)
    before.crash()
    after = Rig(tmp_path / "db")
    after.come(BAD, BAD, BAD, dup=True)
    assert await after.checkpoint()
    assert after.said() == [bad(1), bad(2)]
    after.crash()


@in_loop
async def test_a_commit_says_nothing_of_what_came_after_its_capture(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It comes again after a crash, and is counted then."""
    before = Rig(tmp_path / "db")
    await before.flows.deploy(document(), "mqtt")
    before.come(BAD)
    commit = before.database.commit

    def late(*given: Any) -> Any:
        before.come(BAD)
        return commit(*given)

    monkeypatch.setattr(before.database, "commit", late)
    assert await before.checkpoint()
    assert before.said() == [bad(1)]
    before.crash()
    after = Rig(tmp_path / "db")
    after.number = 1
    after.come(BAD, dup=True)
    assert await after.checkpoint()
    assert after.said() == [bad(1), bad(1)]
    after.crash()


@in_loop
async def test_a_flow_that_ends_says_the_rest(tmp_path: Path) -> None:
    gateway = Rig(tmp_path / "db")
    await gateway.flows.deploy(document(), "mqtt")
    gateway.come(BAD)
    assert await gateway.checkpoint()
    gateway.come(BAD, BAD)
    await gateway.flows.deploy(document(description="new"), "mqtt")
    assert gateway.said() == [bad(1), bad(2)]
    gateway.come(BAD)
    assert await gateway.checkpoint()
    gateway.come(BAD)
    assert gateway.said() == [bad(1), bad(2), bad(1)], "of the new version"
    await gateway.flows.remove("f")
    assert gateway.said() == [bad(1), bad(2), bad(1), bad(1)]
    gateway.crash()


@in_loop
async def test_a_gateway_that_ends_says_the_rest(tmp_path: Path) -> None:
    gateway = Rig(tmp_path / "db")
    await gateway.flows.deploy(document(), "mqtt")
    gateway.come(BAD)
    assert await gateway.checkpoint()
    gateway.come(BAD)
    assert await gateway.checkpoint()
    gateway.checkpointer.drops.ending = True
    assert await gateway.checkpoint()
    assert gateway.said() == [bad(1), bad(1)]
    gateway.crash()


@in_loop
async def test_a_flow_that_ships_nothing_says_nothing(tmp_path: Path) -> None:
    gateway = Rig(tmp_path / "db")
    operators: Any = {
        "in": {"type": "mqtt_source", "topic": "x/{source}"},
        "out": {"type": "publish", "input": "in", "topic": "y/{source}"},
    }
    await gateway.flows.deploy(from_plain({"name": "f", "operators": operators}, REGISTRY), "mqtt")
    gateway.come(BAD)
    assert await gateway.checkpoint()
    await gateway.flows.remove("f")
    assert gateway.database.outbox_size.batches == 0
    gateway.crash()


@in_loop
async def test_it_waits_where_much_waits_in_the_outbox_but_for_the_end(tmp_path: Path) -> None:
    gateway = Rig(tmp_path / "db")
    await gateway.flows.deploy(document(), "mqtt")
    gateway.database.quota_bytes = 2 * gateway.database.outbox_size.bytes - 1
    gateway.come(BAD)
    assert await gateway.checkpoint()
    assert gateway.said() == []
    gateway.come(BAD)
    gateway.database.quota_bytes *= 2
    assert await gateway.checkpoint()
    assert gateway.said() == [bad(2)]
    gateway.come(BAD)
    gateway.database.quota_bytes = 1
    await gateway.flows.remove("f")
    assert gateway.said() == [bad(2), bad(1)]
    gateway.crash()


@in_loop
async def test_whatever_an_operator_calls_its_reasons_can_be_written(tmp_path: Path) -> None:
    gateway = Rig(tmp_path / "db")
    await gateway.flows.deploy(document(), "mqtt")
    drops: Any = gateway.flows.runs["f"].stages["minute"].logic.drops
    drops.update({"\ud800 half": 1, "x" * 1_000: 2, "x" * 999: 3, 7: 4, "none": 0})
    gateway.come(BAD)
    assert await gateway.checkpoint()
    named = {("minute", "? half"): 1, ("minute", "x" * MOST_NAME): 5, ("minute", "7"): 4}
    assert gateway.said() == [bad(1) | named]
    gateway.crash()


@in_loop
async def test_input_for_which_there_was_no_room_is_said(tmp_path: Path) -> None:
    gateway = Rig(tmp_path / "db")
    await gateway.flows.deploy(document(), "mqtt")
    gateway.checkpointer.drops.lost_input["f"] += 3
    gateway.come(b'{"time": 1700000000}')
    assert await gateway.checkpoint()
    assert gateway.said() == [{("", NO_ROOM): 3}]
    gateway.clock.advance(DROPS_EVERY_S)
    gateway.come(BAD)
    assert await gateway.checkpoint()
    assert gateway.said() == [{("", NO_ROOM): 3}, bad(1)]
    gateway.crash()
