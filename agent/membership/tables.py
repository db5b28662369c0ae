"""Exchanged tables (anti-entropy): what a member believes of all, and in the answer to it what it lacks.

A table is up to `MAX_PIECES` bodies of messages in a row, each compressed (zlib): a fleet's names, epochs and addresses
are alike. What has no room comes with the next exchange.
"""

from __future__ import annotations

import zlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from agent.membership.events import Sync
from agent.membership.members import Address, State, Version
from agent.membership.messages import (
    MAX_ITEMS,
    MAX_PIECE_BYTES,
    MAX_PIECES,
    Claim,
    Known,
    MembershipMessage,
    SectionUpdate,
    body,
    decode_untrusted,
    encode,
)
from agent.membership.roster import Roster, claim_of, known_of, section_of
from edgert.core.errors import ProtocolError

LEVEL: Final = 6
_HEAD: Final = 5
"""Bytes of a body beside its messages, at most."""


def lost(roster: Roster, seeds: Iterable[Address], met: Mapping[Address, str], revoked: Collection[str]) -> list[Sync]:
    """Exchanges with members held for dead, and with seeds at which no present member is known."""
    present = {member.name: member.address for member in roster if member.present}
    known = {*present.values(), *(seed for seed, name in met.items() if name in present)}
    gone = [Sync(member.address, member.name) for member in roster.unreachable() if member.name not in revoked]
    return [*gone, *(Sync(seed) for seed in seeds if seed not in known)]


def table(roster: Roster) -> bytes:
    """All that is believed of all members, our own state, and the versions of the sections that are held."""
    own = roster.own
    parts = [encode(claim_of(member, own.name)) for member in roster]
    parts += [encode(section_of(own, name)) for name in own.sections]
    parts += [encode(known) for member in roster if member is not own for known in known_of(member)]
    return _packed(parts)


def answer(roster: Roster, messages: Sequence[MembershipMessage]) -> bytes:
    """News for the sender of a table with these messages: claims and sections that it lacks."""
    claims = {m.name: m for m in messages if isinstance(m, Claim)}
    known = {(m.name, m.section): (m.epoch, m.version) for m in messages if isinstance(m, Known | SectionUpdate)}
    parts: list[bytes] = []
    sections: list[bytes] = []
    """Sections go behind the claims: a member that has room for a part of all should know all members."""
    for member in roster:
        claim = claims.get(member.name)
        if claim is None or Version(claim.epoch, claim.incarnation, claim.state) < member.version:
            parts.append(encode(claim_of(member, roster.own.name)))
        for name, section in member.sections.items():
            if known.get((member.name, name), (-1, -1)) < (section.epoch, section.version):
                sections.append(encode(section_of(member, name)))
    return _packed([*parts, *sections])


def softened(claim: Claim, roster: Roster) -> Claim:
    """A claim of a table. A death is taken as a suspicion: a board that lives after a split gets time to refute it."""
    member = roster.get(claim.name)
    if claim.state is not State.DEAD or member is None or not member.present:
        return claim
    return replace(claim, state=State.SUSPECT)


def _packed(parts: Iterable[bytes]) -> bytes:
    pieces: list[list[bytes]] = [[]]
    size = _HEAD
    for part in list(parts)[:MAX_ITEMS]:
        if size + len(part) > MAX_PIECE_BYTES:
            if len(pieces) == MAX_PIECES:
                break
            pieces.append([])
            size = _HEAD
        pieces[-1].append(part)
        size += len(part)
    return b"".join(zlib.compress(body(piece), LEVEL) for piece in pieces)


def read_untrusted(payload: bytes) -> list[MembershipMessage]:
    """The messages of a table, or of the answer to one. Raises `ProtocolError`; unpacks no more than `MAX_PIECES` of
    `MAX_PIECE_BYTES` with `MAX_ITEMS` messages in all, whatever the bytes say."""
    found: list[MembershipMessage] = []
    rest = payload
    for _ in range(MAX_PIECES):
        unpacking = zlib.decompressobj()
        try:
            plain = unpacking.decompress(rest, MAX_PIECE_BYTES + 1)
        except zlib.error as error:
            raise ProtocolError(
                f"expected a compressed table, got {len(payload)} bytes that are none: {error}"
            ) from None
        if len(plain) > MAX_PIECE_BYTES or not unpacking.eof:
            break
        found += decode_untrusted(plain, MAX_PIECE_BYTES)
        if len(found) > MAX_ITEMS:
            break
        rest = unpacking.unused_data
        if not rest:
            return found
    raise ProtocolError(
        f"expected a whole table of at most {MAX_PIECES} pieces of {MAX_PIECE_BYTES} bytes and {MAX_ITEMS} messages,"
        f" got {len(payload)} bytes of another"
    )
