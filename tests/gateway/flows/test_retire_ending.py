"""A flow is brought to its end while the others go on."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from edgert.core.clock import VirtualClock
from edgert.core.results.results import GapBatch, unpack_result_untrusted
from edgert.mqtt.packets.packets import Publish
from edgert.runtime.flow_run import FlowRun
from edgert.runtime.run_out import Heirs, Said
from tests.gateway.whole_gateway import Gateway, document
from tests.waiting import DEADLINE_S, in_loop


def gaps(gateway: Gateway) -> list[str]:
    """What the tables are told to be missing."""
    batches = [
        unpack_result_untrusted(entry.payload)
        for stream, _ in gateway.database.outbox_streams()
        for entry in gateway.database.outbox(*stream, 0, 1_000)
    ]
    return [batch.text for batch in batches if isinstance(batch, GapBatch)]


class Stands:
    """In the place of what runs flow f to its end: does not go on until it may. `turn`: of which it makes one after the
    other meanwhile."""

    def __init__(self, gateway: Gateway, patch: pytest.MonkeyPatch, turn: Callable[[], None] | None = None) -> None:
        self.began, self.may = threading.Event(), threading.Event()
        self.threads: list[threading.Thread] = []
        run_out = gateway.host.checkpoints.run_out

        def standing(run: FlowRun, heirs: Heirs) -> Iterator[Said]:
            turns = run_out(run, heirs)

            def stand() -> Iterator[Said]:
                self.threads.append(threading.current_thread())
                self.began.set()
                while turn and not self.may.is_set():
                    turn()
                    yield run.all[0], ()
                assert self.may.wait(DEADLINE_S)
                yield from turns

            return stand()

        patch.setattr(gateway.host.checkpoints, "run_out", standing)


async def both(gateway: Gateway) -> None:
    await gateway.flows.deploy(document(), "mqtt")
    await gateway.flows.deploy(document("g", topic="y/{source}"), "mqtt")
    gateway.feed(1, 1.0)
    assert await gateway.checkpoint()


@in_loop
async def test_while_a_flow_is_brought_to_its_end_the_others_are_checkpointed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gateway = Gateway(tmp_path / "db")
    await both(gateway)
    gateway.flows.retirement.still_s = 0.2  # turns end all the time: it is not given up
    clock = VirtualClock()  # of the turns alone, for a busy machine may stand still for so long
    monkeypatch.setattr("gateway.flows.retire.time", clock)
    stands = Stands(gateway, monkeypatch, lambda: clock.advance(0.02))
    change = asyncio.ensure_future(gateway.flows.deploy(document(topic="+/{source}"), "mqtt"))
    assert await asyncio.to_thread(stands.began.wait, DEADLINE_S)
    gateway.ingest.feed([Publish("y/a", b"{}", 1, False, False, 2)])
    commits = gateway.checkpointer.status.commits
    ends = time.monotonic() + 2 * gateway.flows.retirement.still_s
    while time.monotonic() < ends:
        assert await gateway.checkpoint()
    assert gateway.checkpointer.status.commits > commits
    assert not change.done()
    stands.may.set()
    await change
    assert gateway.shipped() == 1
    assert gaps(gateway) == []
    gateway.crash()


@in_loop
async def test_a_flow_that_is_blocked_on_its_way_to_its_end_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gateway = Gateway(tmp_path / "db")
    await both(gateway)
    gateway.flows.retirement.still_s = 0.05
    stands = Stands(gateway, monkeypatch)
    assert await gateway.flows.deploy(document(description="new"), "mqtt") == 2
    (gap,) = gaps(gateway)
    assert "flow f was stuck when it was brought to its end" in gap
    stands.may.set()
    await asyncio.to_thread(stands.threads[0].join, DEADLINE_S)
    assert not stands.threads[0].is_alive()
    assert gateway.shipped() == 0, "nobody waits for it any more"
    gateway.crash()


@in_loop
async def test_a_gateway_that_ends_meanwhile_does_not_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next start brings the old version back, with its windows."""
    gateway = Gateway(tmp_path / "db")
    await both(gateway)
    stands = Stands(gateway, monkeypatch)
    change = asyncio.ensure_future(gateway.flows.deploy(document(description="new"), "mqtt"))
    assert await asyncio.to_thread(stands.began.wait, DEADLINE_S)
    change.cancel()
    with pytest.raises(asyncio.CancelledError):
        await change
    assert not gateway.flow_registry.busy.locked()
    assert await gateway.checkpoint()
    stands.may.set()
    await asyncio.to_thread(stands.threads[0].join, DEADLINE_S)
    gateway.crash()
    again = Gateway(tmp_path / "db")
    assert again.flows.version("f") == 1
    await again.flows.remove("f")
    assert again.shipped() == 1
    again.crash()
