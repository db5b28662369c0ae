"""Exchanged tables (anti-entropy): what a member believes of all, and in the answer to it what it lacks.

A table is a body of messages, compressed (zlib): a fleet's names, epochs and addresses are alike.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Final

from agent.membership.members import Version
from agent.membership.messages import (
    MAX_TABLE_BYTES,
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


def table(roster: Roster) -> bytes:
    """All that is believed of all members, our own state, and the versions of the sections that are held."""
    own = roster.own
    parts = [encode(claim_of(member, own.name)) for member in roster]
    parts += [encode(section_of(own, name)) for name in own.sections]
    parts += [encode(known) for member in roster if member is not own for known in known_of(member)]
    return zlib.compress(body(parts), LEVEL)


def answer(roster: Roster, messages: Sequence[MembershipMessage]) -> bytes:
    """News for the sender of a table with these messages: claims and sections that it lacks."""
    claims = {m.name: m for m in messages if isinstance(m, Claim)}
    known = {(m.name, m.section): (m.epoch, m.version) for m in messages if isinstance(m, Known | SectionUpdate)}
    parts: list[bytes] = []
    for member in roster:
        claim = claims.get(member.name)
        if claim is None or Version(claim.epoch, claim.incarnation, claim.state) < member.version:
            parts.append(encode(claim_of(member, roster.own.name)))
        for name, section in member.sections.items():
            if known.get((member.name, name), (-1, -1)) < (section.epoch, section.version):
                parts.append(encode(section_of(member, name)))
    return zlib.compress(body(parts), LEVEL)


def read_untrusted(payload: bytes) -> list[MembershipMessage]:
    """The messages of a table, or of the answer to one. Raises `ProtocolError`; takes no more memory than
    `MAX_TABLE_BYTES` whatever the bytes say."""
    unpacking = zlib.decompressobj()
    try:
        plain = unpacking.decompress(payload, MAX_TABLE_BYTES + 1)
    except zlib.error as error:
        raise ProtocolError(f"expected a compressed table, got {len(payload)} bytes that are none: {error}") from None
    if len(plain) > MAX_TABLE_BYTES or not unpacking.eof or unpacking.unused_data:
        raise ProtocolError(f"expected a whole table of at most {MAX_TABLE_BYTES} bytes, got {len(payload)} others")
    return decode_untrusted(plain, MAX_TABLE_BYTES)
