"""The change of a flow's plan across gateways, as one gateway remembers it: inside a transaction of the one database.

A gateway that has prepared its part of the next plan waits for the word to run it, across a restart too. The fencing
number is that of the coordinator which it obeyed last; an older coordinator is refused.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from edgert.core.errors import DamagedError
from edgert.flow.plan import Location


@dataclass(frozen=True, slots=True)
class Prepared:
    """A gateway's part of the next plan of a flow."""

    document: Mapping[str, Any]
    plan: int
    assignment: Mapping[str, Location]
    states: Sequence[bytes]
    """All state of the operators that run here, and what changed of it since, packed as in the table `state`."""
    queue: bytes
    """Queue entries for operators that run here, by the stage at which they were stored."""

    def pack(self) -> bytes:
        plain = [self.document, self.plan, dict(self.assignment), list(self.states), self.queue]
        return msgspec.msgpack.encode(plain)

    @classmethod
    def read(cls, blob: bytes) -> Prepared | DamagedError:
        """The part, or what is wrong with its bytes: one that is damaged stops no other flow."""
        form = tuple[dict[str, Any], int, dict[str, tuple[str, int]], list[bytes], bytes]
        try:
            document, plan, assignment, states, queue = msgspec.msgpack.decode(blob, type=form)
        except msgspec.MsgspecError as error:
            return DamagedError(f"expected a prepared part of a plan, got {len(blob)} damaged bytes: {error}")
        return cls(document, plan, {name: Location(*at) for name, at in assignment.items()}, states, queue)


def fences(db: sqlite3.Connection) -> dict[str, int]:
    """Flow → the greatest fencing number that was obeyed."""
    return dict(db.execute("SELECT flow, fence FROM plan_change"))


def put_fence(db: sqlite3.Connection, flow: str, fence: int) -> None:
    """A coordinator with a greater number is obeyed from now on; a smaller one changes nothing."""
    query = (
        "INSERT INTO plan_change (flow, fence) VALUES (?, ?) "
        "ON CONFLICT DO UPDATE SET fence = max(fence, excluded.fence)"
    )
    db.execute(query, (flow, fence))


def rules(db: sqlite3.Connection) -> dict[str, tuple[int, bytes]]:
    """Flow → fencing number of the coordinator that wrote its rules of placement, and these, packed."""
    query = "SELECT flow, rules_fence, rules FROM plan_change WHERE rules IS NOT NULL"
    return {flow: (fence, packed) for flow, fence, packed in db.execute(query)}


def put_rules(db: sqlite3.Connection, flow: str, fence: int, packed: bytes | None) -> None:
    """`None`: the flow has none any more. The flow has a fence."""
    db.execute("UPDATE plan_change SET rules = ?, rules_fence = ? WHERE flow = ?", (packed, fence, flow))


def prepare(db: sqlite3.Connection, flow: str, prepared: Prepared | None) -> None:
    """`None`: there is nothing prepared any more. The flow has a fence."""
    packed = None if prepared is None else prepared.pack()
    db.execute("UPDATE plan_change SET prepared = ? WHERE flow = ?", (packed, flow))


def prepared(db: sqlite3.Connection) -> dict[str, Prepared | DamagedError]:
    """The parts of next plans that wait for the word to be run, by flow."""
    query = "SELECT flow, prepared FROM plan_change WHERE prepared IS NOT NULL"
    return {flow: Prepared.read(packed) for flow, packed in db.execute(query)}
