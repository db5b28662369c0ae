"""What the uplink sends when: hello first, a window, again what is not acknowledged."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import pytest

from edgert.core.checkpoint.checkpoint import Checkpoint
from edgert.core.checkpoint.position import Position
from edgert.core.errors import StoreError
from edgert.core.results.pieces import Piece
from edgert.core.results.results import GapBatch, RowsBatch, unpack_result_untrusted
from gateway.uplink.send_window import RESEND_MOST_S, RESEND_S, WINDOW
from gateway.uplink.uplink import HELLO_S
from tests.gateway.uplink_rig import E1, Rig
from tests.waiting import in_loop, until


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path)


@in_loop
async def test_nothing_leaves_before_the_collector_answered_hello(rig: Rig) -> None:
    rig.flow()
    assert await rig.turn() == []
    rig.uplink.connected()
    assert await rig.turn() == ["f"]
    assert await rig.turn() == []
    await rig.acknowledge({})
    assert await rig.turn() == [], "an acknowledgement that answers nobody is no answer"
    rig.clock.advance(HELLO_S)
    assert await rig.turn() == ["f"]
    await rig.acknowledge(answers=("f",))
    assert await rig.turn() == [(E1, 1)]
    assert rig.database.departed("f") == {E1: {0: 1}}


@in_loop
async def test_every_connection_asks_anew_and_sends_again_what_is_not_acknowledged(rig: Rig) -> None:
    rig.flow()
    await rig.admitted()
    assert await rig.turn() == [(E1, 1)]
    rig.uplink.disconnected()
    assert await rig.turn() == []
    rig.uplink.connected()
    assert await rig.turn() == ["f"]
    await rig.acknowledge(answers=("f",))
    assert await rig.turn() == [(E1, 1)]


@in_loop
async def test_what_the_broker_refuses_is_an_error_until_the_collector_acknowledges_and_is_logged_once(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    rig.flow()
    await rig.admitted()
    for _ in range(2):  # it may close the connection as well, each time
        rig.uplink.refused("Not authorized")
        rig.uplink.connected()
    await rig.turn()
    assert rig.uplink.status.error == "the broker refuses what is published: Not authorized"
    assert [record.levelname for record in caplog.records] == ["ERROR"]
    await rig.acknowledge({("f", E1, 0): 1}, gateway="g2")
    assert rig.uplink.status.error
    await rig.acknowledge({("f", E1, 0): 1})
    assert rig.uplink.status.error == ""


@in_loop
async def test_a_hello_that_could_not_be_sent_is_sent_as_soon_as_it_can(rig: Rig) -> None:
    rig.flow()
    rig.uplink.connected()
    rig.connected = False
    assert await rig.turn() == []
    rig.connected = True
    assert await rig.turn() == ["f"]


@in_loop
async def test_without_progress_a_stream_is_sent_again_from_its_last_acknowledged_number(rig: Rig) -> None:
    rig.flow()
    rig.rows(3)
    await rig.admitted()
    assert await rig.turn() == [(E1, n) for n in (1, 2, 3, 4)]
    rig.clock.advance(RESEND_S)
    await rig.acknowledge({("f", E1, 0): 2})
    rig.clock.advance(RESEND_S)
    assert await rig.turn() == [], "progress was made a moment ago"
    rig.clock.advance(1.0)
    assert await rig.turn() == ["f"], "is anybody there?"
    await rig.acknowledge({("f", E1, 0): 2}, answers=("f",))
    assert await rig.turn() == [(E1, 3)]
    await rig.acknowledge({("f", E1, 0): 3})
    assert await rig.turn() == [(E1, 4)]


@in_loop
async def test_a_collector_that_lands_nothing_costs_one_batch_each_time_and_that_ever_more_seldom(rig: Rig) -> None:
    rig.flow()
    rig.rows(WINDOW + 9)
    await rig.admitted()
    assert len(await rig.turn()) == WINDOW
    waits = []
    for _ in range(8):
        started = rig.clock.monotonic()
        while await rig.turn() != ["f"]:
            rig.clock.advance(5.0)
        waits.append(rig.clock.monotonic() - started)
        await rig.acknowledge(answers=("f",))
        assert await rig.turn() == [(E1, 1)]
        assert await rig.turn() == []
    assert waits == [20, 35, 65, 125, 245, 485, 605, 605]
    assert RESEND_MOST_S == 600
    await rig.acknowledge({("f", E1, 0): 1})
    assert await rig.turn() == [(E1, n) for n in range(2, WINDOW + 2)], "all of a window at the first progress"
    rig.clock.advance(RESEND_S + 1)
    assert await rig.turn() == ["f"]
    await rig.admitted()
    assert len(await rig.turn()) == WINDOW, "a new connection is a new chance"


@in_loop
async def test_a_collector_that_is_away_gets_only_hellos(rig: Rig) -> None:
    rig.flow()
    rig.rows(WINDOW)
    await rig.admitted()
    await rig.turn()
    sent = []
    for _ in range(60):
        rig.clock.advance(10.0)
        sent += await rig.turn()
    assert set(sent) == {"f"}
    assert len(sent) <= 60


@pytest.mark.parametrize("error", [ValueError("a fault"), StoreError("disk gone")])
def test_a_turn_that_fails_is_said_and_the_next_ones_go_on(
    error: Exception, rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig.uplink.pause_s = 0.001
    failures: list[str] = []
    streams = rig.database.outbox_streams

    def failing() -> list[tuple[tuple[str, int, int], bool]]:
        if len(failures) < 3:
            failures.append(rig.uplink.status.error)
            raise error
        return streams()

    @in_loop
    async def run() -> None:
        rig.flow()
        monkeypatch.setattr(rig.database, "outbox_streams", failing)
        rig.uplink.connected()
        task = asyncio.create_task(rig.uplink.run())
        await until(lambda: rig.sent, "a hello after three failures")
        await until(lambda: not rig.uplink.status.error, "the error to be taken back")
        task.cancel()
        assert failures == ["", str(error), str(error)]

    run()


@in_loop
async def test_what_fails_with_one_flow_holds_up_no_other(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    departed, departing = rig.database.departed, rig.database.departing

    def failing(call: Callable[..., Any]) -> Callable[..., Any]:
        def of_a(flow: str, *arguments: int) -> Any:
            if flow == "a":
                raise StoreError("its part is damaged")
            return call(flow, *arguments)

        return of_a

    for name in ("a", "f"):
        rig.flow(name=name)
        rig.rows(2, name)
    rig.uplink.connected()
    with monkeypatch.context() as patch:
        patch.setattr(rig.database, "departed", failing(departed))
        assert await rig.turn() == ["f"]
        assert rig.uplink.status.error == "flow a: its part is damaged"
    assert await rig.turn() == ["a"]
    assert rig.uplink.status.error == ""
    await rig.acknowledge(answers=("a", "f"))
    with monkeypatch.context() as patch:
        patch.setattr(rig.database, "departing", failing(departing))
        caplog.clear()
        await rig.turn()
        assert {batch.flow for batch in rig.sent} == {"f"}
        await rig.turn()
        assert rig.uplink.status.error == "flow a: its part is damaged"
        assert caplog.messages == ["flow a could not be sent: its part is damaged"], "said once"
    await rig.turn()
    assert ({batch.flow for batch in rig.sent}, rig.uplink.status.error) == ({"a"}, "")
    rig.rows(1, "a")
    with monkeypatch.context() as patch:
        patch.setattr(rig.database, "departing", failing(departing))
        await rig.turn()
        assert rig.uplink.status.error == "flow a: its part is damaged"
        rig.uplink.disconnected()
        await rig.turn()
        assert rig.uplink.status.error == "", "without a connection nobody tries"


@in_loop
async def test_a_first_batch_that_is_damaged_keeps_no_flow_from_being_admitted(rig: Rig) -> None:
    rig.flow()
    rig.rows(2)
    await rig.admitted()
    await rig.turn()
    await rig.acknowledge({("f", E1, 0): 1})
    rig.clock.advance(RESEND_S + 1)
    assert await rig.turn() == ["f"], "the stream stands still"
    with sqlite3.connect(rig.folder / "gateway.db") as db:
        db.execute("UPDATE outbox SET payload = x'28b52ffd' WHERE sequence = 2")
    await rig.acknowledge({("f", E1, 0): 1}, answers=("f",))
    assert await rig.turn() == [(E1, 2)], "one, until the collector moves"
    assert isinstance(rig.sent[0], GapBatch)


@in_loop
async def test_what_is_committed_during_a_turn_starts_another(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    turns = 0

    async def turn() -> float:
        nonlocal turns
        turns += 1
        if turns == 1:
            rig.uplink.committed()
        return 1.0

    waits: list[bool] = []

    class Wake(asyncio.Event):
        async def wait(self) -> Literal[True]:
            waits.append(self.is_set())
            await asyncio.sleep(0)
            return True

    monkeypatch.setattr(type(rig.uplink), "turn", lambda self: turn())
    rig.uplink._wake = Wake()
    task = asyncio.create_task(rig.uplink.run())
    await until(lambda: len(waits) >= 2, "a second turn")
    task.cancel()
    assert waits[:2] == [True, False]


@in_loop
async def test_no_more_than_a_window_is_on_its_way_wherever_the_numbers_stand(rig: Rig) -> None:
    rig.flow()
    await rig.admitted()
    rig.rows(WINDOW + 9)
    assert await rig.turn() == [(E1, n) for n in range(1, WINDOW + 1)]
    await rig.acknowledge({("f", E1, 0): 4})
    assert await rig.turn() == [(E1, n) for n in range(WINDOW + 1, WINDOW + 11)], "twice of it, and that is all"
    await rig.acknowledge({("f", E1, 0): WINDOW + 10})
    assert await rig.turn() == []
    for number in (11, 12):
        rig.rows(1)
        assert await rig.turn() == [(E1, WINDOW + number)], "the window is empty again, whatever the number"


@in_loop
async def test_results_may_leave_ahead_of_a_checkpoint_in_contact_or_where_nobody_was_asked_yet(rig: Rig) -> None:
    rig.flow()
    assert not rig.uplink.may_leave("f")
    rig.uplink.connected()
    assert rig.uplink.may_leave("f"), "the hello comes with the first of them"
    assert await rig.turn() == ["f"]
    assert not rig.uplink.may_leave("f"), "asked, and not answered"
    await rig.acknowledge(answers=("f",))
    assert rig.uplink.may_leave("f")
    assert await rig.turn() == [(E1, 1)]
    rig.clock.advance(RESEND_S + 1)
    await rig.turn()
    assert not rig.uplink.may_leave("f"), "the collector is silent"
    rig.uplink.disconnected()
    assert not rig.uplink.may_leave("f")


@in_loop
async def test_a_batch_above_the_brokers_limit_leaves_in_pieces_and_holds_up_nothing(rig: Rig) -> None:
    rig.flow(E1)
    columns = ("window_start", "window_end", "n")
    rows = [[float(n), n + 60.0, n * 7919 % 1000] for n in range(1000)]
    rig.database.commit([Checkpoint("f", Position(), [], b"", columns, rows)], {}, 1)
    rig.rows(1)
    await rig.admitted()
    rig.uplink.limit = lambda topic: 1_000
    await rig.turn()
    pieces = [m for m in rig.sent if isinstance(m, Piece)]
    assert {piece.of for piece in pieces} == {(E1, 0, 2)}
    assert [piece.at for piece in pieces] == list(range(pieces[0].pieces))
    whole = unpack_result_untrusted(b"".join(piece.data for piece in pieces))
    assert isinstance(whole, RowsBatch)
    assert whole.rows == rows
    assert [m.sequence for m in rig.sent if not isinstance(m, Piece)] == [1, 3]


@in_loop
async def test_a_limit_without_room_for_results_is_said_and_not_tried(rig: Rig) -> None:
    rig.flow(E1)
    await rig.admitted()
    rig.uplink.limit = lambda topic: 100
    assert await rig.turn() == []
    assert "limit of 100 bytes per packet" in rig.uplink.status.error
