"""One physical copy of an operator: its logic, its queue, where its batches go, and what it has done."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass, field
from typing import Final

from edgert.core.batch import Batch, size_of
from edgert.operators.base.error_boundary import FAILED, ErrorBoundary
from edgert.operators.base.logic import Emission, Logic, Now, PlainMessage, foreign
from edgert.operators.fusion.region import Region
from edgert.runtime.instance.counters import NOT_SENT, Counters, DeliveryCounts
from edgert.runtime.instance.edges import Edges, Target, TurnOutput
from edgert.runtime.instance.givers import Givers
from edgert.runtime.instance.queue import MERGED, Entry, Queue
from edgert.runtime.instance.schedule import Schedule
from edgert.runtime.instance.turn import Turn

log = logging.getLogger(__name__)

LOGGED_S: Final = 1.0
"""Seconds between two log lines about exceptions of one instance's operators, at least."""


@dataclass(slots=True, eq=False)
class Instance:
    """One physical copy of an operator, or of several fused ones. Its pool protects queue, schedule and delivery; all
    else belongs to the thread that runs its turn."""

    name: str
    """The planned name: an operator's name, or the names of fused operators joined by `+`."""
    operators: tuple[str, ...]
    kind: str
    logic: Logic
    queue: Queue
    edges: Edges[Instance] = field(default_factory=Edges)
    schedule: Schedule = field(default_factory=Schedule)
    counters: Counters = field(default_factory=Counters)
    delivery: DeliveryCounts = field(default_factory=DeliveryCounts)
    of_run: int = 0
    """In a slot: the number of the instance's run."""
    remote: Callable[[Target[Instance], Batch], None] | None = None
    """Takes its batches, if it runs in another process; called by any worker."""
    entrances: range = range(sys.maxsize)
    """Inputs for rows from outside the instance. Rows that are tried again, or were restored, come by others."""
    region: Region | None = None
    """The logic, if that is a region; else None."""
    boundaries: tuple[ErrorBoundary, ...] = ()
    """The error boundaries: of the logic, or of each stage of a region."""
    receiver: Region | ErrorBoundary = field(init=False)
    """The receiver of the rows of a turn: the region, or the error boundary of the logic."""
    errors: list[tuple[str, BaseException]] = field(default_factory=list)
    """The last exception of each operator that raised, until the end of the turn."""
    quiet_until: float = 0.0
    """Time until which the log gets no more errors of the instance, monotonic seconds."""

    def __post_init__(self) -> None:
        if isinstance(self.logic, Region):
            self.region = self.logic
            self.entrances = self.logic.entrances(0)
        self.boundaries = self.region.boundaries if self.region else (ErrorBoundary(self.logic),)
        self.receiver = self.region or self.boundaries[0]
        if any(_waits(boundary.logic) for boundary in self.boundaries):
            self.schedule.waits, self.schedule.most_rows = True, 1
        for boundary in self.boundaries:
            boundary.errors = self.errors

    @property
    def failures(self) -> int:
        """Returns how often an operator raised with a row by itself, or with a batch that cannot be taken apart."""
        return sum(boundary.failures for boundary in self.boundaries)

    @property
    def idle(self) -> bool:
        """True if nothing is queued and no turn is under way."""
        return not self.queue.rows and not self.schedule.running

    @property
    def done(self) -> int:
        """Number of finished rows, restored and retried ones included. Safe to read during a turn."""
        return sum(self.region.took) if self.region else self.counters.rows_in

    def idle_at(self, now: float) -> float:
        """`Counters.idle_s` as of `now`."""
        return self.counters.idle_s + (max(0.0, now - self.schedule.freed) if self.idle else 0.0)

    def run(self, entries: Sequence[Entry], now: Now) -> Turn[Instance]:
        """Processes the entries of a turn. An error of an operator costs the rows that made it (`ErrorBoundary`), never
        the worker."""
        turn: Turn[Instance] = Turn()
        outputs, watermarks = self.edges.outputs, self.edges.watermarks
        region, receiver = self.region, self.receiver
        for at, entry in enumerate(entries):
            batch = entry.batch
            if watermarks and entry.source in watermarks and entry.producer != MERGED:
                assert isinstance(batch, Batch)
                merged = watermarks[entry.source].merged(batch, entry.producer)
                if merged is None:  # it only told of time, which another producer still holds back
                    continue
                batch = merged
            before = region.left if region else 0
            try:
                emissions = receiver.process(batch, entry.source, now)
                if emissions:
                    self._give_out(emissions, turn.out)
            except Exception as error:  # noqa: BLE001 - a row that cannot be divided; or a fault of our own
                self._count_failed(error, len(batch))
            held = self._held(entry) if receiver.held else ()  # rows that are tried again later
            rows = 0
            if region:
                rows = region.left - before
            elif not outputs:
                rows = len(batch) - sum([len(back.batch) for back in held])
            if rows:
                turn.left.append((batch.arrival, rows))
            if held:
                turn.back = [*held, *entries[at + 1 :]]
                for boundary in self.boundaries:
                    turn.wait_s, boundary.wait_s = max(turn.wait_s, boundary.wait_s), 0.0
                break
            if self.errors and self.boundaries[0].late(now):  # errors are costly, and others wait for the thread
                turn.back = entries[at + 1 :]
                break
        if outputs:
            self._settle_safely(turn.out)
        if self.logic.messages or self.errors:
            self._finish_turn(turn)
        return turn

    def _give_out(self, emissions: Sequence[Emission], out: TurnOutput[Instance]) -> None:
        counters, edges = self.counters, self.edges
        for emission in emissions:
            counters.rows_out += len(emission.batch.rows)
            edges.give(emission, counters.rows_out, out)

    def _settle_safely(self, out: TurnOutput[Instance]) -> None:
        try:
            self.edges.settle(out)
        except Exception as error:  # noqa: BLE001 - as in `run`
            self._count_failed(error, 0)

    def time_by(self, clock: Callable[[], float]) -> None:
        """Sets the clock, in seconds, that times a turn with errors, and sometimes the stages of a region."""
        for boundary in self.boundaries:
            boundary.clock = clock
        if self.region:
            self.region.clock = clock

    def take_messages(self) -> list[PlainMessage]:
        """Returns the messages to send that were not taken yet."""
        messages = self.logic.messages
        if messages:
            self.logic.messages = []
        return messages

    def giver(self, message: PlainMessage) -> int:
        """Index of the stage that gave a message."""
        if self.delivery.givers is None:
            self.delivery.givers = Givers(self.boundaries)
        return self.delivery.givers.stage(message)

    def _count_failed(self, error: Exception, rows: int) -> None:
        """Counts rows that an error cost, and keeps the error for the end of the turn."""
        self.errors[:] = [(self.name, error)]
        self.logic.drops[FAILED] += rows

    def _held(self, entry: Entry) -> list[Entry]:
        """The rows of `entry` for a later turn: a row of it is to be tried again, or the turn has taken long."""
        held = self.receiver.take_held(entry.source)
        for _, batch in held:
            if isinstance(batch, Batch) and not batch.size:
                batch.size = size_of(batch.rows, self.counters.turns)
        return [entry._replace(source=source, batch=batch, producer=MERGED) for source, batch in held]

    def _finish_turn(self, turn: Turn[Instance]) -> None:
        """Gives a turn that is over its messages, and its last error."""
        turn.messages = self.take_messages()
        if self.errors:
            turn.failing, turn.failed = self.errors.pop()

    def rows_of(self, entries: Sequence[Entry], turn: Turn[Instance]) -> int:
        """Returns the number of finished rows of a turn, without those that were restored or are tried again."""
        first, rows = self.entrances, 0
        for entry in entries:
            if entry.source in first:
                rows += len(entry.batch)
        for entry in turn.back:
            if entry.source in first:
                rows -= len(entry.batch)
        return rows

    def count(self, turn: Turn[Instance]) -> None:
        """Adds a turn that has ended to the figures. A fault in counting costs figures, and neither the worker nor the
        turn's output."""
        try:
            self.schedule.count(turn, self.counters, self.region)
        except Exception:
            self.counters.uncounted += 1
            if self._may_say(turn.ended):
                log.exception("a turn of %s could not be counted (%d times so far)", self.name, self.counters.uncounted)

    def log_failure(self, turn: Turn[Instance]) -> None:
        """Logs what an operator raised in a turn that has ended, at most once in `LOGGED_S`."""
        if self._may_say(turn.ended):
            log.error("operator %s failed (%d times so far): %r", turn.failing or self.name, self.failures, turn.failed)

    def _may_say(self, now: float) -> bool:
        if now < self.quiet_until:
            return False
        self.quiet_until = now + LOGGED_S
        return True

    def caught(self, fault: BaseException, entries: list[Entry], turn: Turn[Instance] | None) -> Turn[Instance]:
        """Ends a turn that raised: by a fault of edgert, or an operator's `KeyboardInterrupt`, which no error boundary
        catches. The rows of `entries` are counted as failed if there is no `turn` yet; else its output goes on."""
        log.error("a turn of %s failed in a way that was not foreseen", self.name, exc_info=fault)
        if turn is None:
            self.logic.drops[FAILED] += sum(len(entry.batch) for entry in entries)
        entries.clear()
        return turn or Turn()

    def hurry(self) -> None:
        """Makes all later retries immediate: the flow ends, and no time is left to wait."""
        for boundary in self.boundaries:
            boundary.patient = False

    def send_away(self, out: TurnOutput[Instance]) -> TurnOutput[Instance]:
        """Sends the batches for other processes; returns the others."""
        left = []
        for target, batch in out:
            if target.instance.remote is None:
                left.append((target, batch))
            else:
                try:
                    target.instance.remote(target, batch)
                except Exception as error:  # noqa: BLE001 - a value of an operator's own making that cannot be packed
                    self._count_failed(error, len(batch))
        return left

    def send_safely(
        self, messages: Sequence[PlainMessage], send: Callable[[Instance, Sequence[PlainMessage]], None]
    ) -> None:
        """Gives `messages` to `send`; counts and logs them if it fails."""
        try:
            send(self, messages)
        except Exception:
            self.logic.drops[NOT_SENT] += len(messages)
            log.exception("messages of %s could not be handed to the connection", self.name)

    def finish(self, now: Now, but: Container[Logic] = ()) -> Turn[Instance]:
        """Returns a turn with all that the logic still holds. Logic in `but` keeps it."""
        turn: Turn[Instance] = Turn()
        try:
            self._give_out(self.receiver.flush(now, but), turn.out)
        except Exception as error:  # noqa: BLE001 - as in `run`
            self._count_failed(error, 1)
        self._settle_safely(turn.out)
        self._finish_turn(turn)
        return turn


def _waits(logic: Logic) -> bool:
    return logic.waits if logic.waits is not None else foreign(logic)
