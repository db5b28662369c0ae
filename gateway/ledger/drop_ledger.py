"""What flows have dropped of what came to them, on its way to the table `drops` of the central side.

Operators and queues count in memory. A checkpoint takes these counters with all else, in the same pause, and now and
then its commit has what was added since they were said last. So the table says what was dropped of input that is
committed, once, up to the checkpoint that said it last. It is no ledger to the last row: a gateway that is killed loses
what it had not said of the minute before (of input that comes again it counts anew), and a flow that falls back counts
again what it had said since.

What makes way in a full outbox stands in the table `gaps`, and not here as well.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final
from weakref import WeakKeyDictionary

from edgert.core.result_schema import MOST_COUNT
from edgert.core.results import MOST_NAME, Drop
from edgert.runtime.flow_run import FlowRun
from edgert.store.database import Database

DROPS_EVERY_S: Final = 60.0
"""Of one flow, however much of its input is bad: so much less is written to the card, and to the table."""
NO_ROOM: Final = "input of a blocked flow, no room in the database"
"""Of no operator's: it came to none."""
_FULL: Final = 0.5
"""Of the outbox's quota. When so much waits there, what is to be said waits here, where it costs nothing: there it
makes way for nothing, and in a long outage would in the end push results out."""


@dataclass(slots=True)
class _Said:
    """Of a run, up to its last commit that had any."""

    dropped: Mapping[tuple[str, str], int] = field(default_factory=dict)
    next_s: float = float("-inf")
    """Monotonic time from which on there may be more."""


class DropLedger:
    """To be asked while a checkpoint or a change of a flow is under way, by whoever makes that."""

    def __init__(self, database: Database, monotonic: Callable[[], float]) -> None:
        self.lost_input: Counter[str] = Counter()
        """Messages of flows that were blocked which had no room in the database and were needed there, by flow."""
        self.ending = False
        """There will be no more checkpoints: all that is to be said is, with the next."""
        self._said_input: Counter[str] = Counter()
        self._database, self._monotonic = database, monotonic
        self._said: WeakKeyDictionary[FlowRun, _Said] = WeakKeyDictionary()

    def due(self, run: FlowRun) -> list[Drop]:
        """What the commit of the run's last capture is to say; all that is left, if the run has ended. Nothing of a
        flow that ships nothing: the tables do not know it."""
        said = self._said.setdefault(run, _Said())
        waits = self._monotonic() < said.next_s or self._is_full()
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
        """What was due is committed; nothing, if that was nothing."""
        if drops:
            self._said[run] = _Said(run.dropped, self._monotonic() + DROPS_EVERY_S)
            self._said_input[run.flow.name] = self.lost_input[run.flow.name]

    def _is_full(self) -> bool:
        return self._database.outbox_size.bytes > _FULL * self._database.quota_bytes


def _text(text: str) -> str:
    """As the tables take it, whatever an operator of a package calls its reasons: else no commit would succeed."""
    return str(text).encode(errors="replace").decode()[:MOST_NAME]
