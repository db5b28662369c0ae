"""Dropped input of flows, on its way to the table `drops` of the central side.

Operators and queues count in memory. A checkpoint captures these counters together with the state, in the same pause.
From time to time its commit also holds the increase of the counters since they were last reported. So the table reports
drops of committed input once, up to the checkpoint that reported last. The table is not exact to the last row: a
gateway that is killed loses the unreported counts of the minute before (input that comes again is counted anew), and a
flow that falls back counts again the drops that it had reported since.

Results that a full outbox drops stand in the table `gaps` only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final
from weakref import WeakKeyDictionary

from edgert.core.clock import Clock
from edgert.core.results.result_schema import MOST_COUNT
from edgert.core.results.results import MOST_NAME, Drop
from edgert.runtime.flow_run import FlowRun
from edgert.store.database import Database

DROPS_EVERY_S: Final = 60.0
"""Shortest time between two reports of one flow, seconds. It bounds the writes to the card and to the table, however
much of the input is bad."""
NO_ROOM: Final = "input of a stuck flow, no room in the database"
"""Reason of drops that belong to no operator: the input reached none."""
_FULL: Final = 0.5
"""Share of the outbox's quota above which reports wait in memory, where they cost nothing. In the outbox they would
take room, and in a long outage they would push results out."""


@dataclass(slots=True)
class _Reported:
    """The drops of a run that are reported, up to its last commit with a report."""

    dropped: Mapping[tuple[str, str], int] = field(default_factory=dict)
    next_s: float = float("-inf")
    """Monotonic time, seconds, before which no other report is made."""


class DropLedger:
    """Reports of drops. Used only while a checkpoint or a change of a flow is under way, by the code that makes it."""

    def __init__(self, database: Database, clock: Clock, every_s: float = DROPS_EVERY_S) -> None:
        self.lost_input: Counter[str] = Counter()
        """Messages of stuck flows that had no room in the database, by flow."""
        self.ending = False
        """True once no more checkpoints follow: the next one reports all that is left."""
        self._said_input: Counter[str] = Counter()
        self._database, self._clock, self._every_s = database, clock, every_s
        self._said: WeakKeyDictionary[FlowRun, _Reported] = WeakKeyDictionary()

    def due(self, run: FlowRun) -> list[Drop]:
        """Returns the drops that the commit of the run's last capture reports; all that are left, if the run has ended.
        None for a flow that ships nothing: the tables do not know it."""
        said = self._said.setdefault(run, _Reported())
        is_full = self._database.outbox_size.bytes > _FULL * self._database.quota_bytes
        waits = is_full or self._clock.monotonic() < said.next_s
        if run.schema is None or (waits and not (run.ended or self.ending)):
            return []
        found: Counter[tuple[str, str]] = Counter()
        for (operator, reason), count in run.dropped.items():
            if (more := int(count - said.dropped.get((operator, reason), 0))) > 0:
                found[_text(operator), _text(reason)] += more
        name = run.flow.name
        if more := self.lost_input[name] - self._said_input[name]:
            found["", NO_ROOM] += more
        return [(operator, reason, min(n, MOST_COUNT)) for (operator, reason), n in sorted(found.items())]

    def said(self, run: FlowRun, drops: object) -> None:
        """Notes that `drops`, as `due` gave them, are committed. An empty `drops` changes nothing."""
        if drops:
            self._said[run] = _Reported(run.dropped, self._clock.monotonic() + self._every_s)
            self._said_input[run.flow.name] = self.lost_input[run.flow.name]


def _text(text: str) -> str:
    """Returns `text` as the tables accept it: an operator of a package may give its reasons any name, and a commit with
    an invalid one would fail."""
    return str(text).encode(errors="replace").decode()[:MOST_NAME]
