"""Linked gateways: batches leave the store of one for a flow of another, exactly once, over TLS or loopback."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import cast

import pytest

from edgert.core.settings.gateway import Links
from edgert.links.messages import NOTHING, Number
from edgert.links.tls import Identity, LinkError
from gateway.links import peer as peer_module
from gateway.links.link_store import LinkStore, LinkStream, NotNow
from gateway.links.peers import Address, Peers
from tests.gateway.links.linked_boards import AB, HOST, Board, Database, link, linked
from tests.links.certificates import FLEET, Authority
from tests.waiting import in_loop, until


@pytest.mark.parametrize("secure", [False, True])
@in_loop
async def test_a_flow_gets_what_another_board_has_committed_and_that_board_deletes_it(
    secure: bool, tmp_path: Path
) -> None:
    authority = Authority(tmp_path / "ca") if secure else None
    one, two = Database(), Database()
    a = Board("a", one, authority.issue("a") if authority else None)
    b = Board("b", two, authority.issue("b") if authority else None)
    one.put(AB, b"1", b"2")
    await linked(a, b)
    await b.peers.open_incoming("f", "a")
    await a.peers.open_outgoing("f", "b")
    await until(lambda: b.bodies == [b"1", b"2"], "two batches")
    a.peers.stored("f", "b", one.put(AB, b"3"))
    await until(lambda: b.bodies == [b"1", b"2", b"3"], "the third")
    assert len(one.outbox[AB]) == 3
    b.commit("f", "a")
    await until(lambda: not one.outbox[AB], "the deletion")
    (status,) = a.peers.status()["peers"]
    assert status["connected"]
    assert status["outgoing"]["f"]["acknowledged"] == [1, 3]
    assert a.peers.status()["tls"] is secure
    await a.peers.stop()
    await b.peers.stop()


@in_loop
async def test_a_board_that_dies_gets_everything_after_its_last_commit_again() -> None:
    one, two = Database(), Database()
    a, b = Board("a", one), Board("b", two)
    one.put(AB, *(b"%d" % n for n in range(4)))
    await linked(a, b)
    await a.peers.open_outgoing("f", "b")
    await b.peers.open_incoming("f", "a")
    await until(lambda: len(b.got) == 4, "all of them")
    b.commit("f", "a")
    a.peers.stored("f", "b", one.put(AB, b"4", b"5"))
    await until(lambda: len(b.got) == 6, "two more")
    await b.peers.stop()
    b = Board("b", two)
    await b.peers.start()
    await b.peers.open_incoming("f", "a")
    link(a, b)
    await until(lambda: b.bodies == [b"4", b"5"], "what no commit covered")
    await a.peers.stop()
    await b.peers.stop()


@pytest.mark.parametrize("seed", range(3))
@in_loop
async def test_boards_and_links_that_die_at_random_lose_and_double_nothing(seed: int) -> None:
    draw = random.Random(seed)
    one, two = Database(), Database()
    a, b = Board("a", one), Board("b", two)
    await linked(a, b)
    await a.peers.open_outgoing("f", "b")
    await b.peers.open_incoming("f", "a", 20_000)
    sent: list[bytes] = []
    done: list[bytes] = []
    for _ in range(120):
        what = draw.randrange(10)
        if what < 4:
            new = [draw.randbytes(draw.randrange(9_000)) for _ in range(draw.randrange(4))]
            sent += new
            a.peers.stored("f", "b", one.put(AB, *new))
        elif what < 7 and b.got:
            b.commit("f", "a")
            done += b.bodies
            b.got.clear()
        elif what == 7:
            for peer in draw.choice((a, b)).peers.by_name.values():
                peer.detach("the test cut it")
        elif what == 8:
            await b.peers.stop()
            b = Board("b", two)
            await b.peers.start()
            await b.peers.open_incoming("f", "a", 20_000)
            link(a, b)
        elif what == 9:
            await a.peers.stop()
            a = Board("a", one)
            await a.peers.start()
            link(a, b)
            await a.peers.open_outgoing("f", "b")
        for _ in range(draw.randrange(20)):
            await asyncio.sleep(0)

    def finished() -> bool:
        if b.got:
            b.commit("f", "a")
            done.extend(b.bodies)
            b.got.clear()
        return len(done) >= len(sent) and not one.outbox.get(AB)

    await until(finished, "everything")
    assert done == sent
    await a.peers.stop()
    await b.peers.stop()


@in_loop
async def test_a_flow_that_takes_no_batch_gets_it_again_and_holds_up_no_other() -> None:
    one, two = Database(), Database()
    a, b = Board("a", one), Board("b", two)
    b.refusals = 2
    one.put(AB, b"1", b"2")
    await linked(a, b)
    await a.peers.open_outgoing("f", "b")
    await b.peers.open_incoming("f", "a")
    await until(lambda: b.bodies == [b"1", b"2"], "both, in the end")
    assert b.refusals == 0
    await a.peers.stop()
    await b.peers.stop()


@pytest.mark.parametrize(("refusal", "errors"), [(NotNow("it stands still"), 0), (RuntimeError("no"), 1)])
@in_loop
async def test_a_batch_for_a_flow_that_stands_still_is_no_error(
    refusal: Exception, errors: int, caplog: pytest.LogCaptureFixture
) -> None:
    one = Database()
    a, b = Board("a", one), Board("b", Database())
    b.refusals, b.refusal = 1, refusal
    one.put(AB, b"1")
    await linked(a, b)
    await a.peers.open_outgoing("f", "b")
    await b.peers.open_incoming("f", "a")
    await until(lambda: b.bodies == [b"1"], "the batch, in the end")
    assert [record.levelname for record in caplog.records if "batch" in record.message] == ["ERROR"] * errors
    for board in (a, b):
        await board.peers.stop()


@in_loop
async def test_a_flow_that_goes_on_from_another_position_forgets_the_batch_that_it_did_not_take() -> None:
    """The links once went back to that batch a moment later: what had come since came twice, and a position that the
    flow had left behind for good ended their clock."""
    one, two = Database(), Database()
    a, b = Board("a", one), Board("b", two)
    b.refusals = 1
    one.put(AB, b"1", b"2")
    await linked(a, b)
    a.peers.tick_s = b.peers.tick_s = 60.0  # from the next tick on
    await b.peers.open_incoming("f", "a")
    await a.peers.open_outgoing("f", "b")
    await until(lambda: b.refusals == 0, "the refusal")
    b.peers.rewind("f", "a", NOTHING)  # the flow's plan has changed, and it takes batches
    await until(lambda: b.bodies == [b"1", b"2"], "both, without waiting for a tick")

    b.refusals = 1
    a.peers.stored("f", "b", one.put(AB, b"3"))
    await until(lambda: b.refusals == 0, "the next refusal")
    b.peers.close_incoming("f", "a")
    two.positions[AB] = Number(1, 3)
    await b.peers.open_incoming("f", "a")
    (peer,) = b.peers.by_name.values()
    peer.tick()
    a.peers.stored("f", "b", one.put(AB, b"4"))
    await until(lambda: b.bodies == [b"1", b"2", b"4"], "what follows the position")
    for board in (a, b):
        await board.peers.stop()


@in_loop
async def test_a_flow_that_stands_still_sends_nothing_until_it_works_on() -> None:
    one = Database()
    a, b = Board("a", one), Board("b", Database())
    other = LinkStream("other", "a", "b")
    await linked(a, b)
    for flow in ("f", "other"):
        await a.peers.open_outgoing(flow, "b")
        await b.peers.open_incoming(flow, "a")
    a.peers.hold("f")
    a.peers.stored("f", "b", one.put(AB, b"1"))
    await b.peers.open_incoming("f", "a")  # it asks anew, as after a change of plan
    a.peers.stored("other", "b", one.put(other, b"2"))
    await until(lambda: b.bodies == [b"2"], "the batch of the other flow, and of no other")
    assert one.reads < 10, "it is not read again and again meanwhile"
    a.peers.release("f")
    await until(lambda: b.bodies == [b"2", b"1"], "the batch that was kept")
    for board in (a, b):
        await board.peers.stop()


@in_loop
async def test_a_store_that_fails_is_read_again() -> None:
    one = Database()
    a, b = Board("a", one), Board("b", Database())
    one.put(AB, b"1")
    one.failures = 3
    await linked(a, b)
    await a.peers.open_outgoing("f", "b")
    await b.peers.open_incoming("f", "a")
    await until(lambda: b.bodies == [b"1"], "the batch")
    await a.peers.stop()
    await b.peers.stop()


@in_loop
async def test_a_slow_flow_holds_up_only_itself() -> None:
    one = Database()
    a, b = Board("a", one), Board("b", Database())
    slow, quick = LinkStream("slow", "a", "b"), LinkStream("quick", "a", "b")
    for stream in (slow, quick):
        one.put(stream, *[bytes(1_000)] * 100)
    await linked(a, b)
    for flow in ("slow", "quick"):
        await a.peers.open_outgoing(flow, "b")
        await b.peers.open_incoming(flow, "a", 5_000)
    await until(lambda: len(b.got) >= 10, "the first of both")

    def quick_ones() -> bool:
        numbers = [number for stream, number, _ in b.got if stream == quick]
        b.peers.taken("quick", "a", numbers[-1])
        return len(numbers) == 100

    await until(quick_ones, "all of the quick flow")
    assert sum(stream == slow for stream, _, _ in b.got) < 10
    await a.peers.stop()
    await b.peers.stop()


@in_loop
async def test_a_gateway_that_is_no_peer_is_refused_and_told_so() -> None:
    a, b = Board("a", Database()), Board("b", Database())
    await a.peers.start()
    await b.peers.start()
    a.peers.set_peers({"b": (HOST, b.peers.listening.port)})
    peer = a.peers.peer("b")
    await until(lambda: "not among the peers" in peer.error, "the refusal")
    b.peers.set_peers({"a": (HOST, a.peers.listening.port)})
    await until(lambda: peer.link is not None and b.peers.peer("a").link is not None, "the link")
    link = b.peers.peer("a").link
    b.peers.set_peers({}, keep=["a", "of no address"])
    assert b.peers.peer("a").link is link, "it stays, though where it listens is not known now"
    b.peers.set_peers({})
    await until(lambda: b.peers.peer("a").link is None, "its end")
    await a.peers.stop()
    await b.peers.stop()


@in_loop
async def test_an_origin_whose_database_was_put_back_is_told() -> None:
    one, two = Database(), Database()
    a, b = Board("a", one), Board("b", two)
    one.positions[AB], two.positions[AB] = Number(1, 3), Number(1, 9)
    await linked(a, b)
    await a.peers.open_outgoing("f", "b")
    await b.peers.open_incoming("f", "a")
    await until(lambda: a.behind == [(AB, Number(1, 9))], "the news")
    one.positions[AB] = Number(2, 0)
    a.peers.stored("f", "b", one.put(AB, b"anew"))
    await until(lambda: b.bodies == [b"anew"], "the new epoch")
    await a.peers.stop()
    await b.peers.stop()


@in_loop
async def test_a_peer_that_asks_much_and_reads_nothing_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    from edgert.links.messages import VERSION, Hello, Ping, encode

    monkeypatch.setattr(peer_module, "MOST_BACKLOG", 100_000)
    b = Board("b", Database())
    await b.peers.start()
    b.peers.set_peers({"a": (HOST, 1)})
    _, writer = await asyncio.open_connection(HOST, b.peers.listening.port, limit=1)
    writer.write(encode(Hello(VERSION, FLEET, "a")))
    await until(lambda: b.peers.peer("a").link, "the link")
    flood = encode(Ping(1)) * 10_000
    for _ in range(2_000):
        writer.write(flood)
        await asyncio.sleep(0)
        if b.peers.peer("a").link is None:
            break
    assert "expected it to read" in b.peers.peer("a").error
    writer.transport.abort()
    await b.peers.stop()


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        (Links(True, HOST, 0, "cert.pem", "", ""), "all of links.certificate"),
        (Links(True, HOST, 0, "c.pem", "k.pem", "ca.pem"), "PEM files"),
    ],
)
def test_settings_that_cannot_be_are_told(settings: Links, error: str) -> None:
    with pytest.raises(LinkError, match=error):
        Peers(Identity(FLEET, "a"), settings, cast(LinkStore, Database()), lambda *_: None, lambda *_: None)


@in_loop
async def test_without_certificates_it_listens_on_loopback_only() -> None:
    peers = Peers(
        Identity(FLEET, "a"), Links(True, "0.0.0.0", 0), cast(LinkStore, Database()), lambda *_: None, lambda *_: None
    )
    with pytest.raises(LinkError, match="expected a loopback address"):
        await peers.start()
    address: dict[str, Address] = {"b": ("192.0.2.1", 9)}
    peers.set_peers(address)
    await until(lambda: "expected a loopback address" in peers.peer("b").error, "the refusal")
    await peers.stop()
