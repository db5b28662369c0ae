"""The collector's acknowledgement compared with our own database: a database may be older than its own results.

**A database that went back in time** (a restored or cloned card, or one that lied about its flush) shows when the
collector has a number that cannot have left this board, or an epoch that this database never had. Then our next
numbers mean something else in the tables, so nothing of the flow is sent or deleted until it has a new epoch, above
all others:

- Numbers up to `departed` (what may have left the board before this process first asked the collector; kept in the
  database, so that starts without a connection do not move it) were given before the time that was lost, so they mean
  the same here and there. They keep their numbers, and count as landed where the collector says so.
- What the outbox holds above that moves into the new epoch, with new numbers.
- If the collector's greatest epoch is one of ours, the new one goes on from it and cuts it at `departed`: rows beyond
  become void. As after any fallback, what this database computes takes their place.
- If it is not one of ours, another state made it, and nothing here computes it again: the new epoch goes on from it as
  far as it has landed, and all of it stays valid. Only what windows that were open held may count twice. But where the
  tables hold results of an epoch of ours of which none had left when this database was copied, those may be the very
  results that wait here: then that epoch is cut before them, as above.
- What came in during the lost time and was acknowledged to the sensors' broker does not come again: a gap says so.
"""

from __future__ import annotations

import logging
import secrets
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from edgert.core.ids import ORDINAL_STEP, epoch_ordinal, is_credible, make_epoch
from edgert.core.results.results import Acknowledgement
from edgert.store.database import Database

log = logging.getLogger(__name__)
MARGIN: Final = ORDINAL_STEP // 2
"""An epoch above the one that an acknowledgement names has to be one that the collector takes."""

NEVER_HAD: Final = (
    "the tables hold results that this gateway's database never had: its card is another, or its data folder was "
    "deleted; results that waited in the one before, and what its flows held (open windows), are missing"
)


def admit(database: Database, flow: str, message: Acknowledgement) -> int | None:
    """Gives the flow an epoch that is newer than all that the collector knows and returns it; None if it is not ours.
    Raises `StoreError`."""
    departed = database.departed(flow)
    greatest, landed = _newest(flow, message)
    if greatest is None or not is_foreign(departed, greatest, landed):
        return database.epoch(flow)
    mine = [e for e, numbers in departed.items() if any(numbers.values())]
    shared = greatest if greatest in departed else _shipped_unseen(departed, flow, message)
    if shared is None and not mine:  # a new card: what it has went nowhere yet
        names = _named(departed, greatest)
        log.error("flow %s: a new epoch is opened; is a database gone, or is this a new card?", flow)
        why = database.meta("flows_unread", "")
        if not database.meta("restored", 0):  # else its flows have said it
            why = why or NEVER_HAD
        database.rebase(flow, names, greatest, landed, gap=why)
        return names[max(departed)]
    first = max(mine) if shared is None else shared
    kept, gap = departed[first], _gap(greatest, shared is not None)
    log.error("flow %s: this %s; a new epoch is opened", flow, gap)
    names = _named([e for e in departed if e >= first], greatest)
    if shared is None:
        database.rebase(flow, names, greatest, landed, kept, gap)
    else:
        database.rebase(flow, names, shared, kept, kept, gap)
    return names[max(names)]


def believed(
    database: Database, message: Acknowledgement, left: Mapping[tuple[str, int, int], int]
) -> tuple[Acknowledgement, list[str]]:
    """Returns the part of an acknowledgement that can be true, and the reasons why the rest cannot. `left`: the
    greatest number of each stream that may have left this board, of flows that have said hello since the start. Raises
    `StoreError`."""
    acks: dict[tuple[str, int, int], int] = {}
    doubts: list[str] = []
    for flow in {flow for flow, _, _ in message.acks}:
        departed = database.departed(flow)
        asked = any(name == flow for name, _, _ in left)
        for (_, epoch, stream), number in ((key, n) for key, n in message.acks.items() if key[0] == flow):
            sent = left.get((flow, epoch, stream), 0)
            if not is_credible(epoch, max(departed, default=None), MARGIN):
                doubts.append(f"flow {flow}: no epoch comes to the number {epoch_ordinal(epoch)}")
            elif asked and sent < number <= departed.get(epoch, {}).get(stream, 0):
                doubts.append(f"flow {flow}: {number} is acknowledged of stream {stream}, of which {sent} were sent")
            else:
                acks[flow, epoch, stream] = number
    return replace(message, acks=acks), doubts


def free(database: Database, message: Acknowledgement) -> tuple[Counter[str], set[str]]:
    """Deletes what has landed, but for flows whose numbers in the tables are not ours; how many batches by flow, and
    those flows. Raises `StoreError`."""
    foreign: set[str] = set()
    for flow in {flow for flow, _, _ in message.acks}:
        greatest, landed = _newest(flow, message)
        if greatest is not None and is_foreign(database.departed(flow), greatest, landed):
            foreign.add(flow)
    return database.acknowledged({k: n for k, n in message.acks.items() if k[0] not in foreign}), foreign


def _newest(flow: str, message: Acknowledgement) -> tuple[int | None, dict[int, int]]:
    """The greatest epoch of `flow` that the collector knows, and what has landed of it per stream."""
    greatest = message.greatest_epoch(flow)
    return greatest, {s: n for (f, e, s), n in message.acks.items() if f == flow and e == greatest}


def is_foreign(departed: Mapping[int, Mapping[int, int]], greatest: int, landed: Mapping[int, int]) -> bool:
    """True if the tables hold what this database did not make: `landed` per stream of their `greatest` epoch, against
    what may have left this board (`departed`, by epoch and stream).

    An epoch older than one of ours that left is settled: ours said, when it was opened, how far the older one counts.
    """
    if not departed or greatest < max((e for e, numbers in departed.items() if any(numbers.values())), default=0):
        return False
    mine = departed.get(greatest)
    return mine is None or any(number > mine.get(stream, 0) for stream, number in landed.items())


def _shipped_unseen(departed: Mapping[int, Mapping[int, int]], flow: str, message: Acknowledgement) -> int | None:
    """Our newest epoch that the tables have, if they have a stream of it of which nothing ever left this database."""
    landed: dict[int, list[int]] = {}
    for name, epoch, stream in message.acks:
        if name == flow and epoch in departed:
            landed.setdefault(epoch, []).append(stream)
    newest = max(landed, default=None)
    return newest if newest is not None and any(not departed[newest].get(s) for s in landed[newest]) else None


def _named(epochs: Iterable[int], above: int) -> dict[int, int]:
    """New names for `epochs`, in order, all greater than `above`."""
    first = epoch_ordinal(above) + 1
    return {old: make_epoch(first + at, secrets.randbits(32)) for at, old in enumerate(sorted(epochs))}


def _gap(greatest: int, void: bool) -> str:
    what = (
        "results beyond this database's are void, those it computes now take their place"
        if void
        else "this database never had that epoch; its results stay, and messages of open windows may count twice"
    )
    return (
        "database went back in time (a restored or cloned card, or one that lost what it had confirmed): the tables "
        f"hold newer results of epoch {epoch_ordinal(greatest)}; {what}; what came in in between is missing here"
    )
