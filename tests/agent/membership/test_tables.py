"""Exchanges of tables in a large fleet, and bad tables."""

from __future__ import annotations

import zlib
from random import Random

import pytest

from agent.membership import tables
from agent.membership.members import State
from agent.membership.messages import MAX_ITEMS, MAX_PIECE_BYTES, MAX_PIECES, Claim, Known, SectionUpdate, body, encode
from agent.membership.packets import MAX_FRAME
from agent.membership.parameters import Parameters
from agent.membership.protocol import Membership
from edgert.core.errors import ProtocolError

SECTIONS = ("board", "load", "flows", "coordinate", "sched")


def membership(name: str) -> Membership:
    return Membership(name, ("10.0.0.1", 7946), 1, Parameters(), Random(name), 0.0)


def large_fleet(members: int, section_bytes: int) -> Membership:
    seed, draw = membership("seed"), Random(1)
    found: list[bytes] = []
    for number in range(members - 1):
        name = f"board-{number:04}"
        found.append(encode(Claim(name, 7, 1, State.ALIVE, f"10.1.{number >> 8}.{number & 255}", 7946, name)))
        found += [encode(SectionUpdate(name, 7, section, 3, draw.randbytes(section_bytes))) for section in SECTIONS]
    for first in range(0, len(found), 1_000):
        seed.merge_untrusted(zlib.compress(body(found[first : first + 1_000])), 0.0)
    return seed


def test_newcomer_learns_a_large_fleet_in_one_exchange() -> None:
    seed, newcomer = large_fleet(1_500, 250), membership("newcomer")
    newcomer.merge_untrusted(seed.answer_table_untrusted(newcomer.table(), 1.0), 1.0)
    known = {member.name: member.sections.keys() for member in newcomer.roster}
    assert len(known) == 1_501
    assert all(sections == set(SECTIONS) for name, sections in known.items() if name not in ("seed", "newcomer"))
    assert len(seed.answer_table_untrusted(newcomer.table(), 2.0)) < 100


def test_what_an_answer_has_no_room_for_comes_with_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    seed, newcomer = large_fleet(200, 850), membership("newcomer")
    monkeypatch.setattr(tables, "MAX_PIECE_BYTES", 50_000)
    held = []
    for now in range(4):
        answer = seed.answer_table_untrusted(newcomer.table(), float(now))
        assert len(answer) < MAX_PIECES * 50_100
        newcomer.merge_untrusted(answer, float(now))
        assert len(newcomer.roster) == 201
        held.append(sum(len(member.sections) for member in newcomer.roster))
    assert 0 < held[0] < held[1] < held[2] == held[3] == 199 * len(SECTIONS)


def test_largest_table_fits_into_a_frame() -> None:
    assert len(zlib.compress(bytes(Random(1).randbytes(MAX_PIECE_BYTES)))) * MAX_PIECES < MAX_FRAME - 512


PIECE = zlib.compress(body([encode(Known("b", 1, "load", 1))]))
FULL = zlib.compress(body([encode(Known("b", 1, "load", 1))] * (MAX_ITEMS // 2)))


@pytest.mark.parametrize(
    "bad",
    [
        b"",
        b"x",
        PIECE[:-1],
        PIECE + b"x",
        PIECE + PIECE[:-1],
        PIECE * (MAX_PIECES + 1),
        PIECE + zlib.compress(bytes(MAX_PIECE_BYTES + 1)),
        zlib.compress(bytes(1 << 28)),
        FULL * 2 + PIECE,
    ],
    ids=["empty", "none", "cut", "more", "second cut", "many", "second large", "bomb", "many messages"],
)
def test_bad_tables_are_refused(bad: bytes) -> None:
    with pytest.raises(ProtocolError, match="expected"):
        tables.read_untrusted(bad)


def test_greatest_tables_are_taken() -> None:
    assert len(tables.read_untrusted(PIECE * MAX_PIECES)) == MAX_PIECES
    assert len(tables.read_untrusted(FULL * 2)) == MAX_ITEMS


def test_a_section_tells_when_it_came_and_the_same_comes_anew_where_its_age_counts() -> None:
    giver, taker = membership("giver"), membership("taker")
    for now, again in ((1.0, False), (2.0, False), (3.0, True)):
        giver.publish("ring", b"the same", again)
        taker.merge_untrusted(giver.answer_table_untrusted(taker.table(), now), now)
        member = taker.roster.get("giver")
        assert member is not None
        assert member.sections["ring"].heard == (3.0 if again else 1.0)
