"""QoS 2 through the product's own session: of equal messages under one packet id each is counted, whatever dies."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from edgert.flow.document import from_plain
from edgert.mqtt.packets import encode
from edgert.mqtt.packets.packets import V5
from edgert.operators.registry import REGISTRY
from tests.gateway.whole_gateway import Gateway
from tests.waiting import in_loop

PUBREC_1, PUBREL_1, PUBCOMP_1 = (encode.acknowledgement(kind, 1) for kind in (0x50, 0x62, 0x70))


class Board:
    """A gateway, and what a broker says to it and hears from it."""

    def __init__(self, path: Path) -> None:
        self.gateway = Gateway(path)
        self.client = self.gateway.ingest.client
        self.client.schedule_flush = lambda: None  # type: ignore[method-assign]
        self.session = self.client.session
        self.gateway.ingest.tasks.begin = lambda work: work.close()  # type: ignore[method-assign]

    async def deploy(self) -> None:
        operators = {
            "in": {"type": "mqtt_source", "topic": "x/{source}", "qos": 2},
            "each": {"type": "tumbling_window", "input": "in", "size_s": 10, "aggregates": {"n": "count()"}},
            "out": {"type": "ship", "input": "each"},
        }
        await self.gateway.flows.deploy(from_plain({"name": "f", "operators": operators}, REGISTRY), "mqtt")

    def connect(self, present: bool = True) -> None:
        self.session.lost("cut")
        self.session.connect(0.0)
        self.gateway.ingest.inbox.connection_lost()
        self.hear(bytes((0x20, 3, present, 0, 0)))

    def hear(self, data: bytes) -> None:
        self.client.received_untrusted(data, 0.0)
        assert self.gateway.pool.wait_empty([i for r in self.gateway.flows.runs.values() for i in r.all], 60.0)

    def message(self, *, dup: bool) -> None:
        """Always the same."""
        self.hear(encode.publish(V5, "x/a", b'{"time": 1700000001}', qos=2, dup=dup, packet_id=1))

    async def answers(self) -> bytes:
        """What a checkpoint gives leave to say."""
        assert await self.gateway.checkpoint()
        return self.session.take_output()

    async def counted(self) -> int:
        await self.gateway.flows.remove("f")
        return self.gateway.shipped()

    @property
    def ambiguous(self) -> int:
        return self.gateway.ingest.inbox.counters.ambiguous


async def first_answered(path: Path) -> Board:
    """A board that has sent PUBREC of a message."""
    board = Board(path)
    await board.deploy()
    board.connect(present=True)
    board.session.take_output()
    board.message(dup=False)
    assert await board.answers() == PUBREC_1
    return board


@in_loop
async def test_pubrel_comes_after_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "db"
    (await first_answered(path)).gateway.crash()
    board = Board(path)
    board.connect()
    board.hear(PUBREL_1)
    assert await board.answers() == PUBCOMP_1
    board.connect()
    board.message(dup=True)  # an equal one, whose first delivery was cut
    assert await board.answers() == PUBREC_1
    assert (await board.counted(), board.ambiguous) == (2, 0)
    board.gateway.crash()


@in_loop
async def test_the_id_is_free_only_when_a_restart_knows_that_it_is(tmp_path: Path) -> None:
    path = tmp_path / "db"
    board = await first_answered(path)
    board.hear(PUBREL_1)
    board.gateway.ingest.acknowledge()
    assert board.session.take_output() == b"", "a crash now would take the next message for this one"
    board.gateway.crash()
    board = Board(path)
    board.connect()
    board.hear(PUBREL_1)
    assert await board.answers() == PUBCOMP_1
    board.message(dup=False)
    board.gateway.crash()  # and nothing of it was committed
    board = Board(path)
    board.connect()
    board.message(dup=True)
    assert await board.answers() == PUBREC_1
    assert (await board.counted(), board.ambiguous) == (2, 0)
    board.gateway.crash()


@in_loop
async def test_a_first_delivery_under_an_answered_id_is_a_new_message(tmp_path: Path) -> None:
    """The broker has gone back to an older state in between."""
    path = tmp_path / "db"
    board = await first_answered(path)
    board.connect()
    board.message(dup=False)
    assert await board.answers() == PUBREC_1
    assert (await board.counted(), board.ambiguous) == (2, 0)
    board.gateway.crash()


@in_loop
async def test_what_comes_again_after_its_pubrec_is_answered_again_and_counted_once(tmp_path: Path) -> None:
    path = tmp_path / "db"
    board = await first_answered(path)
    board.connect()
    board.message(dup=True)
    assert await board.answers() == PUBREC_1
    board.gateway.crash()
    board = Board(path)
    board.connect()
    board.message(dup=True)
    assert await board.answers() == PUBREC_1
    assert (await board.counted(), board.ambiguous) == (1, 0)
    board.gateway.crash()


@in_loop
async def test_a_failed_commit_completes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "db"
    board = await first_answered(path)
    board.hear(PUBREL_1)
    commit = board.gateway.database.commit

    def fails(*_: object) -> None:
        raise OSError("disk full")

    board.gateway.database.commit = fails  # type: ignore[assignment, method-assign]
    assert not await board.gateway.checkpoint()
    assert board.session.take_output() == b""
    board.gateway.database.commit = commit  # type: ignore[method-assign]
    assert await board.answers() == PUBCOMP_1
    board.gateway.crash()


@in_loop
async def test_an_id_is_free_again_where_no_flow_runs(tmp_path: Path) -> None:
    """What the broker had queued for a flow that is removed."""
    board = await first_answered(tmp_path / "db")
    gateway = board.gateway
    await gateway.flows.remove("f")
    board.hear(PUBREL_1)
    completed, complete = asyncio.Event(), board.client.complete

    def note(packet_ids: Any, connection: int | None = None) -> bool:
        completed.set()
        return complete(packet_ids, connection)

    board.client.complete = note  # type: ignore[method-assign]
    gateway.checkpointer.ask()
    running = asyncio.create_task(gateway.checkpointer.run())
    async with asyncio.timeout(60.0):
        await completed.wait()
    assert board.session.take_output() == PUBCOMP_1
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    gateway.crash()
