"""The interface of an operator's logic to the runtime. Pure: time arrives with the batch, nothing is read or written.

An instance is run by one worker at a time, so logic needs no lock.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from edgert.core.batch import NO_WATERMARK, Batch, RawBatch, Row
from edgert.flow.graph import Flow, Node
from edgert.flow.spec import Keys
from edgert.operators.base.memory import MemoryBudget
from edgert.operators.base.values import UnusableValues

NOTHING_TO_JOIN: Final = "nothing to join"
NOT_IN_TABLE: Final = "not in the table of"
"""The reason, or its beginning, of drops that the flow asks for by `missing = "drop"`, as by a filter."""


class Message(NamedTuple):
    """A message that leaves the flow over MQTT: a published row or a dead letter."""

    topic: str
    payload: bytes
    qos: int = 0
    retain: bool = False
    reason: str = ""
    """Why a dead letter is one; empty for a published row."""


PlainMessage = tuple[str, bytes, int, bool, str]
"""A `Message`, or the same without names: those of rows that are published, since a tuple is made in a sixth of the
time."""


class Emission(NamedTuple):
    """A batch for everything connected to `port` of the operator that returned it."""

    port: int
    batch: Batch


def emission_of(batch: Batch, rows: list[Row]) -> Sequence[Emission]:
    """The emission of the `rows` that an operator makes of a batch; none without rows and watermark."""
    if not rows and batch.watermark == NO_WATERMARK:
        return ()
    size = batch.size * len(rows) // len(batch.rows) if rows else 0
    return (Emission(0, Batch(rows, batch.arrival, batch.watermark, size)),)


class Now(NamedTuple):
    """One reading of the clock, taken by the pool once per turn."""

    monotonic: float
    wall: float


class Logic:
    """Base of all logic: a stateless operator overrides `process` and nothing else.

    Where `process` raises, the flow's `[on_error]` says what becomes of the rows at fault
    (`edgert.operators.base.error_boundary`).
    """

    repeatable: bool | None = None
    """True if a batch for which `process` raised may be given again, in parts: because nothing of it is in the state
    yet, or because taking a row twice changes nothing. None: if the operator keeps no state (has no `flush`, `delta` or
    `snapshot` of its own)."""

    memory: MemoryBudget | None = None
    """The part of its flow's budget for what it keeps by key; None where it keeps nothing by key."""

    waits: bool | None = None
    """True if `process` may wait for something (a network, a device) and is to be kept from threads that must not stand
    still. None: those of this library never do, and others may."""

    def __init__(self) -> None:
        self.drops: Counter[str] = Counter()
        """Rows (or values, where the reason says so) dropped here since the start, by reason."""
        self.messages: list[PlainMessage] = []
        """Messages to send, taken by the runtime after each turn."""
        self.lost: list[tuple[Row, str]] = []
        """Rows that it dropped and counted because they are at fault, and why, for the dead letters."""
        self.unusable = UnusableValues()
        """Unusable values in rows that were kept."""

    def process(self, batch: Batch | RawBatch, source: int, now: Now) -> Sequence[Emission]:
        """Takes one batch that came from input number `source`; returns what it gives on. Of a package's operator any
        iterable of pairs (port, `Batch`) will do, a generator too."""
        raise TypeError(f"{type(self).__name__} takes no batches")

    def flush(self, now: Now) -> Sequence[Emission]:
        """Gives out what is still held; called when the flow is replaced or removed."""
        return ()

    def delta(self) -> Any | None:
        """State changed since the last call, MessagePack types only (or parts that are packed already, `msgspec.Raw`);
        None when nothing changed."""
        return None

    def snapshot(self) -> Any | None:
        """The whole state in the form of a delta from nothing."""
        return None

    def restore(self, state: Any) -> None:
        """Applies one delta or snapshot of this code or an older version of it."""
        raise TypeError(f"{type(self).__name__} keeps no state")


def foreign(logic: Logic) -> bool:
    """True if it is somebody else's code, of which less is known than of this library's."""
    return not type(logic).__module__.startswith("edgert.")


@dataclass(frozen=True, slots=True)
class Build:
    """Arguments of a specification's `logic`, which makes one instance."""

    node: Node
    flow: Flow
    fields: frozenset[str] | None
    """For a source: payload fields that the flow uses; None means all."""
    keys: Keys
    """(field, type) of the key, for stateful operators."""
    inputs: int
    """How many inputs are connected."""
    ports: frozenset[int]
    """Ports to which something is connected."""
    named: frozenset[str] = frozenset()
    """For a source: fields that operators behind it read by name."""
