"""Members with certificates: who has the fleet's key, and no certificate for a name, cannot speak as its board."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random

import pytest

from agent.membership.gossip import largest_body
from agent.membership.members import Peer
from agent.membership.messages import Ping, SectionUpdate, body, encode
from agent.membership.packets import MAX_SENT, hello_to
from agent.membership.parameters import Parameters
from agent.network.transport import PING, RequestError, Transport
from edgert.boards.authority import Authority, create
from edgert.boards.member_identity import BoardIdentity
from edgert.core.errors import SignatureError
from tests.agent.membership.worlds import answered, introduce, sealed, started
from tests.waiting import in_loop, until

SENDER = ("127.0.0.1", 9)


class Fleet:
    """A CA that makes certificates of boards."""

    def __init__(self, folder: Path) -> None:
        create(folder / "ca", "f", datetime.now(UTC))
        self.authority = Authority(folder / "ca")

    def identity(self, name: str, days: int = 90) -> BoardIdentity:
        made = self.authority.board(name, datetime.now(UTC), timedelta(days=days))
        return BoardIdentity(name, "f", made.certificate, made.key, lambda: datetime.now(UTC).timestamp())

    async def board(self, name: str, identity: BoardIdentity | None = None) -> Transport:
        found = await started(name)
        found.sealer.identity = identity or self.identity(name)
        return found


@pytest.fixture
def fleet(tmp_path: Path) -> Fleet:
    return Fleet(tmp_path)


async def asked(by: Transport, board: Transport) -> object:
    name, address = board.membership.name, board.membership.roster.own.address
    return await by.ask(address, PING, {}, expected=name)


def datagram(of: Transport, to: Transport, epoch: int) -> bytes:
    """A ping of one board for another, as if the sender had started in `epoch`."""
    of.sealer.epoch = epoch
    ping = body([encode(Ping(1, to.membership.name))])
    return of.sealer.seal(ping, Peer(to.membership.name, to.membership.epoch, SENDER))


@in_loop
async def test_boards_with_certificates_learn_them_with_the_first_exchange(fleet: Fleet) -> None:
    a, b = await fleet.board("a"), await fleet.board("b")
    try:
        assert await asked(a, b) == 1
        for one, other in ((a, "b"), (b, "a")):
            assert one.sealer.identity is not None
            assert list(one.sealer.identity.known) == [other]
        b.datagram_received(datagram(a, b, 1), SENDER)
        assert b.sealer.drops == {}
    finally:
        await a.stop()
        await b.stop()


@in_loop
async def test_datagram_of_a_member_that_is_not_known_has_it_asked_for_its_certificate(fleet: Fleet) -> None:
    a, b = await fleet.board("a"), await fleet.board("b")
    introduce(b, a)
    try:
        b.datagram_received(datagram(a, b, 1), a.membership.roster.own.address)
        assert b.sealer.drops == {"no certificate": 1}
        assert b.sealer.identity is not None
        await until(lambda: b.sealer.identity and "a" in b.sealer.identity.known, "b to know the certificate of a")
        b.datagram_received(datagram(a, b, 1), a.membership.roster.own.address)
        assert b.sealer.drops == {"no certificate": 1}
    finally:
        await a.stop()
        await b.stop()


@in_loop
async def test_the_fleet_key_and_another_certificate_do_not_speak_as_a_board(fleet: Fleet) -> None:
    a, b = await fleet.board("a"), await fleet.board("b")
    with_key, with_certificate = await started("a"), await fleet.board("a", fleet.identity("liar"))
    try:
        assert await asked(a, b) == 1
        for liar, reason in ((with_key, "unsigned"), (with_certificate, "bad signature")):
            with pytest.raises(RequestError):
                await asked(liar, b)
            assert b.sealer.drops.pop(reason) >= 1
            b.datagram_received(datagram(liar, b, 2**62), SENDER)
            assert b.sealer.drops.pop(reason) == 1
            b.sealer.drops.clear()
        b.datagram_received(datagram(a, b, 2), SENDER)
        assert b.sealer.drops == {}, "the honest board is muted by none of them"
    finally:
        for one in (a, b, with_key, with_certificate):
            await one.stop()


@in_loop
async def test_refused_start_is_told_so_by_boards_whose_certificates_it_does_not_know(fleet: Fleet) -> None:
    """The refusal comes in place of a greeting: no answer brought the certificate before."""
    b, new, old = await fleet.board("b"), await fleet.board("a"), await fleet.board("a")
    new.sealer.epoch = 9_000
    try:
        await answered(b, sealed(new, hello_to(b.membership.roster.own.peer)), 16)
        old.meet(b.membership.roster.own.address)
        await until(lambda: old.membership.epoch == 9_001, "the epoch to be raised")
        assert old.sealer.drops == {}
        assert b.sealer.drops["older start"] == 1
    finally:
        for one in (b, new, old):
            await one.stop()


@in_loop
async def test_signed_packet_of_the_longest_name_fits_into_a_datagram(fleet: Fleet) -> None:
    a, section = await fleet.board("a" * 63), bytes(Parameters().max_section_bytes)
    most = largest_body(a.membership.name)
    largest = body([encode(SectionUpdate(a.membership.name, 2**62, "s" * 32, 2**62, section))])
    try:
        assert len(largest) <= most
        assert len(a.sealer.seal(bytes(most), Peer("b" * 63, 2**62, SENDER))) <= MAX_SENT
    finally:
        await a.stop()


@in_loop
async def test_a_revoked_board_has_no_name_left(fleet: Fleet) -> None:
    b, stolen = await fleet.board("b"), await fleet.board("stolen")
    try:
        assert await asked(stolen, b) == 1
        b.sealer.revoked = frozenset({"stolen"})
        for name in ("stolen", "b", "c"):
            stolen.sealer.name = name
            with pytest.raises(RequestError):
                await asked(stolen, b)
        assert b.sealer.drops["revoked"] >= 1
        assert b.sealer.drops["no certificate"] >= 2
        assert not b._served.requests
    finally:
        await b.stop()
        await stolen.stop()


@in_loop
async def test_certificate_of_another_fleet_or_one_that_is_over_is_none(fleet: Fleet, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    b, foreign = await fleet.board("b"), await Fleet(tmp_path / "other").board("a")
    late = await fleet.board("c")
    try:
        with pytest.raises(RequestError):
            await asked(foreign, b)
        assert b.sealer.identity is not None
        b.sealer.identity._wall = lambda: datetime.now(UTC).timestamp() + 365 * 86_400
        with pytest.raises(RequestError):
            await asked(late, b)
        assert b.sealer.identity.known == {}
    finally:
        for one in (b, foreign, late):
            await one.stop()


@in_loop
async def test_boards_get_certificates_one_after_the_other_while_all_run(fleet: Fleet) -> None:
    old, a, b = await started("old"), await fleet.board("a"), await fleet.board("b")
    for one in (a, b):
        assert one.sealer.identity is not None
        one.sealer.identity.accepts_unsigned = True
    try:
        for asker, other in ((old, a), (a, old), (a, b), (b, a), (b, old)):
            assert await asked(asker, other) == 1
        assert a.sealer.identity is not None
        assert list(a.sealer.identity.known) == ["b"]
        a.sealer.identity.accepts_unsigned = False
        assert await asked(b, a) == 1, "it signs for boards whose certificates it knows"
        with pytest.raises(RequestError):
            await asked(old, a)
        assert a.sealer.drops["unsigned"] >= 1
    finally:
        for one in (old, a, b):
            await one.stop()


def test_signed_bytes_that_were_changed_are_refused_wherever_it_was(fleet: Fleet) -> None:
    a, b, draw = fleet.identity("a"), fleet.identity("b"), Random(1)
    sealed = a.signed(b"context", b"plain", carries=True)
    assert bytes(b.opened_untrusted("a", b"context", memoryview(sealed))) == b"plain"
    for _ in range(300):
        changed = bytearray(sealed)
        changed[draw.randrange(len(changed))] ^= 1 << draw.randrange(8)
        cut = bytes(changed[: draw.choice([len(changed), draw.randrange(len(changed))])])
        for name, context in (("a", b"context"), ("c", b"context"), ("a", b"other")):
            with pytest.raises(SignatureError):
                b.opened_untrusted(name, context, memoryview(cut))
    assert list(b.known) == ["a"]
