"""The central side's delivery as it is in the product up to the landing tables (acceptance, collector, landing), over
tables in memory."""

from __future__ import annotations

import datetime as dt
import random
from collections import Counter, deque
from collections.abc import Sequence
from typing import Final

from edgert.central.collector.collector import Collector
from edgert.central.collector.inbox import ResultMessage
from edgert.central.landing import arrow_rows
from edgert.central.landing.landing import Landing
from edgert.central.landing.lineage import Opening, counted
from edgert.core.clock import VirtualClock
from edgert.core.results.results import PARTITIONS, pack_acknowledgement
from edgert.store.outbox.outbox import LOST
from tests.protocol.memory_table import MemoryTable, Row, Stored

HOLD_S, HOLD_BYTES = 10.0, 1 << 20
LOOKS: Final = 7
"""Every other time another collector is quicker after one of so many looks at tables, else before the first commit."""
ALL: Final = [str(partition) for partition in range(PARTITIONS)]
Window = tuple[dt.datetime, str]
"""When it begins, and the field `u` of its messages."""


class CentralBroker:
    """Results on their way to the collectors, acknowledgements on theirs to the gateway. It acknowledges what it takes
    at once, and may lose it all the same."""

    def __init__(self, draw: random.Random) -> None:
        self._draw = draw
        self.results: deque[ResultMessage] = deque()
        self.acks: deque[bytes] = deque()
        self.away = False

    def publish(self, topic: str, payload: bytes) -> bool:
        """A gateway's. False: there is no connection."""
        if not self.away:
            self.results.append(ResultMessage(topic, payload))
        return not self.away

    def take(self, most: int, disorder: bool) -> list[ResultMessage]:
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

    def __init__(self, draw: random.Random, clock: VirtualClock, collectors: int, leases: bool) -> None:
        """`leases`: who takes over forgets what he knew, and who was overtaken says nothing, as in `collector_main`.
        Without, both answer from what they know: that may be older than an epoch of which results have landed."""
        self._draw, self.clock = draw, clock
        self._leases, self._holder = leases, 0
        self._races = 0
        self.broker = CentralBroker(draw)
        self.collectors = [self._collector(n) for n in range(collectors)]

    def _collector(self, number: int) -> Collector:
        tables = Landing("root", self.clock.wall, self.clock.monotonic)
        return Collector(f"c{number}", tables, self.clock, HOLD_S, HOLD_BYTES)

    def restart(self, number: int) -> None:
        """It was killed: all that it held is gone."""
        self.collectors[number] = self._collector(number)

    def handle(self, messages: list[ResultMessage], number: int, race: bool = False) -> None:
        """With `race` the next collector gets the same, and is quicker."""
        if race:
            other = (number + 1) % len(self.collectors)
            MemoryTable.others = lambda: self.handle(messages, other)
            self._races += 1
            MemoryTable.looks = 0 if self._races % 2 else self._races // 2 % LOOKS + 1
        collector = self.collectors[number]
        if self._leases and number != self._holder:
            collector.forget(ALL)
            self._holder = number
        answers = collector.handle(messages)
        MemoryTable.others = None
        if self._leases and number != self._holder:
            answers = []
        for ack in answers:
            self.broker.acks.append(pack_acknowledgement(ack))
        assert not collector.counters.last_error, collector.counters.last_error
        assert not collector.counters.refused_batches, "what a gateway sends is never refused"

    def shed(self) -> int:
        """Rows that gateways have said to have dropped from full outboxes."""
        gaps = MemoryTable.store.get("root/gaps", Stored()).rows
        return sum(row["rows"] for row in gaps if row["reason"] == "outbox full")

    def lost(self) -> int:
        """Gaps that say that the tables lost what they had acknowledged."""
        return sum(row["reason"] == LOST for row in MemoryTable.store.get("root/gaps", Stored()).rows)

    # -- what the fleet table should say

    def landed(self, flow: str) -> dict[tuple[int, int], int]:
        """The greatest sequence by epoch and stream."""
        found: Counter[tuple[int, int]] = Counter()
        for row in MemoryTable.store.get(f"root/landing/{flow}", Stored()).rows:
            found[row["epoch"], row["stream"]] = max(found[row["epoch"], row["stream"]], row["sequence"])
        return dict(found)

    def rows(self, flow: str) -> list[Row]:
        """Contributions that have landed, whether they count or not."""
        return [r for r in MemoryTable.store.get(f"root/landing/{flow}", Stored()).rows if r["day"] is not None]

    def counted(self, flow: str, waiting: Sequence[Row] = (), openings: Sequence[Opening] = ()) -> dict[Window, int]:
        """How many messages the newest lineage has counted; as if what waits in an outbox had landed."""
        stored = MemoryTable.store.get(f"root/landing/{flow}", Stored())
        openings = [*openings]
        for row in stored.rows:
            if row["day"] is None:
                _, parent, cut = arrow_rows.lineage_of(row["lineage"])
                openings.append(Opening(row["gateway"], row["epoch"], parent, cut))
        valid = counted(openings)
        found: Counter[Window] = Counter()
        landed = {number_of(row) for row in stored.rows}
        for row in (*stored.rows, *(row for row in waiting if number_of(row) not in landed)):
            epoch = (row["gateway"], row["epoch"])
            if row["day"] is None or epoch not in valid:
                continue
            upto = valid[epoch]
            if upto is None or row["sequence"] <= upto.get(row["stream"], 0):
                found[row["window_start"], row["u"]] += row["n"]
        return dict(found)


def number_of(row: Row) -> tuple[str, int, int, int]:
    """Of the batch that it came in."""
    return row["gateway"], row["epoch"], row["stream"], row["sequence"]
