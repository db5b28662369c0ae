"""The central side's delivery as it is in the product (acceptance, collector, landing), over tables in memory that keep
to Delta's rules. A commit to a real one takes ten milliseconds, and a walk makes a hundred of them.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import pyarrow as pa

from edgert.central import frames, landing
from edgert.central.collector import Collector
from edgert.central.inbox import Message
from edgert.central.landing import Landing
from edgert.central.lineage import Opening, counted
from edgert.central.tables import Conflict
from edgert.core.clock import VirtualClock
from edgert.core.results import pack_acknowledgement

HOLD_S, HOLD_BYTES = 10.0, 1 << 20


@dataclass(slots=True)
class Stored:
    """What a table's log says."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    commits: list[Mapping[str, int]] = field(default_factory=list)
    """The transaction identifiers of each."""
    versions: dict[str, int] = field(default_factory=dict)


class MemoryTable:
    """As `edgert.central.tables.Table`: what it reads is as of the last refresh; a commit conflicts with one that came
    after that under the same transaction identifier, and accepts any version otherwise."""

    store: dict[str, Stored]
    others: Callable[[], None] | None = None
    """What another collector does between this one's look and its commit; once."""

    def __init__(self, uri: str) -> None:
        self.uri = uri
        self._seen: int | None = None
        self._versions: dict[str, int] = {}
        self._rows = 0

    def refresh(self) -> bool:
        stored = self.store.get(self.uri)
        if stored is None:
            return False
        self._seen, self._versions, self._rows = len(stored.commits), dict(stored.versions), len(stored.rows)
        return True

    def version(self, application: str) -> int:
        return self._versions.get(application, 0)

    def properties(self) -> Mapping[str, str]:
        return {}

    def read(self, columns: list[str], where: str) -> list[dict[str, Any]]:
        assert where == "day IS NULL"
        stored = self.store.get(self.uri, Stored())
        return [{c: row[c] for c in columns} for row in stored.rows[: self._rows] if row["day"] is None]

    @classmethod
    def let_others(cls) -> None:
        others, cls.others = cls.others, None
        if others:
            others()

    def append(self, data: pa.Table, versions: Mapping[str, int]) -> None:
        self.let_others()
        if self._seen is None and self.uri in self.store:
            raise Conflict(f"{self.uri} was created by another writer")
        stored = self.store.setdefault(self.uri, Stored())
        for since in stored.commits[self._seen or 0 :]:
            if since.keys() & versions.keys():
                raise Conflict(f"{self.uri}: {sorted(since.keys() & versions.keys())}")
        columns = [data.column(name).to_pylist() for name in data.column_names]
        stored.rows += [dict(zip(data.column_names, row, strict=True)) for row in zip(*columns, strict=True)]
        stored.commits.append(dict(versions))
        stored.versions |= versions
        self.refresh()


def _list_tables(root: str, kind: str) -> list[str]:
    prefix = f"{root}/{kind}/"
    return sorted(uri.removeprefix(prefix) for uri in MemoryTable.store if uri.startswith(prefix))


@contextmanager
def in_memory() -> Iterator[None]:
    """Landing tables are `MemoryTable`s, none at first."""
    MemoryTable.store, MemoryTable.others = {}, None
    with mock.patch.object(landing, "Table", MemoryTable), mock.patch.object(landing, "list_tables", _list_tables):
        yield


class CentralBroker:
    """Results on their way to the collectors, acknowledgements on theirs to the gateway. It acknowledges what it takes
    at once, and may lose it all the same."""

    def __init__(self, draw: random.Random) -> None:
        self._draw = draw
        self.results: deque[Message] = deque()
        self.acks: deque[bytes] = deque()
        self.away = False

    def publish(self, topic: str, payload: bytes) -> bool:
        """A gateway's. False: there is no connection."""
        if not self.away:
            self.results.append(Message(topic, payload))
        return not self.away

    def take(self, most: int, disorder: bool) -> list[Message]:
        """What the collectors get next; with `disorder` some of it twice, or later than what came after it."""
        taken = [self.results.popleft() for _ in range(min(most, len(self.results)))]
        if disorder and taken:
            taken += self._draw.sample(taken, self._draw.randint(0, len(taken)))
            self._draw.shuffle(taken)
        return taken

    def lose(self) -> None:
        """It dies, and what it held is gone."""
        self.results.clear()
        if self._draw.random() < 0.5:
            self.acks.clear()


class CentralSide:
    """Collectors that share tables: one takes over from another, or both work at a time, as leases that run out may
    have it."""

    def __init__(self, draw: random.Random, clock: VirtualClock, collectors: int) -> None:
        self._draw, self._clock = draw, clock
        self.broker = CentralBroker(draw)
        self.collectors = [self._collector(n) for n in range(collectors)]

    def _collector(self, number: int) -> Collector:
        tables = Landing("root", self._clock.wall, self._clock.monotonic)
        return Collector(f"c{number}", tables, self._clock, HOLD_S, HOLD_BYTES)

    def restart(self, number: int) -> None:
        """It was killed: all that it held is gone."""
        self.collectors[number] = self._collector(number)

    def handle(self, messages: list[Message], number: int, race: bool = False) -> None:
        """With `race` the next collector gets the same, and is quicker."""
        if race:
            other = (number + 1) % len(self.collectors)
            MemoryTable.others = lambda: self.handle(messages, other)
        collector = self.collectors[number]
        answers = collector.handle(messages)
        MemoryTable.others = None
        for ack in answers:
            self.broker.acks.append(pack_acknowledgement(ack))
        assert not collector.counters.last_error, collector.counters.last_error
        assert not collector.counters.refused_batches, "what a gateway sends is never refused"

    # -- what the fleet job would make of the tables

    def counted(self, flow: str) -> dict[str, int]:
        """By the field `u`: how many messages the newest lineage has counted."""
        stored = MemoryTable.store.get(f"root/landing/{flow}", Stored())
        openings = []
        for row in stored.rows:
            if row["day"] is None:
                _, parent, cut = frames.lineage_of(row["lineage"])
                openings.append(Opening(row["gateway"], row["epoch"], parent, cut))
        valid = counted(openings)
        found: dict[str, int] = {}
        for row in stored.rows:
            epoch = (row["gateway"], row["epoch"])
            if row["day"] is None or epoch not in valid:
                continue
            upto = valid[epoch]
            if upto is None or row["sequence"] <= upto.get(row["stream"], 0):
                found[row["u"]] = found.get(row["u"], 0) + row["n"]
        return found
