"""One physical copy of an operator: its logic, its queue, where its batches go, and what it has done."""

from __future__ import annotations

import logging
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from edgert.core.batch import Batch, RawBatch, size_of
from edgert.operators.guard import FAILED, Guard
from edgert.operators.logic import Emission, Logic, Now, PlainMessage, foreign
from edgert.operators.region import Region
from edgert.operators.sinks import Publish
from edgert.runtime.instance.edges import Marks, Outgoing, Spread, Target
from edgert.runtime.instance.hand import Hand
from edgert.runtime.instance.latency import Latency
from edgert.runtime.instance.queue import MERGED, Entry, Queue
from edgert.runtime.instance.turn import Counters, Turn
from edgert.scheduling.consumption import FIRST_ROWS, SLOW_S, after_turn, most_rows
from edgert.scheduling.profile import Profile

log = logging.getLogger(__name__)

PROFILED_ROWS: Final = 100
"""Fewer rows than this say too little of what a row costs."""
LOGGED_S: Final = 1.0
"""An instance whose operators raise says so in the log at most this often."""


@dataclass(slots=True, eq=False)
class Instance:
    """Owned by a pool, which guards everything here but the logic, the hand and the figures: these belong to whoever
    has the turn."""

    name: str
    """As planned: an operator's name, or the names of those that were fused joined by `+`."""
    operators: tuple[str, ...]
    kind: str
    logic: Logic
    queue: Queue
    outputs: dict[int, list[Target | Spread]] = field(default_factory=dict)
    """Targets by port."""
    marks: dict[int, Marks] = field(default_factory=dict)
    """By input, where several copies of an instance feed it: what they have promised."""
    number: int = -1
    """Given by the pool."""
    of_run: int = 0
    """In a slot: the number of the run whose it is."""
    counters: Counters = field(default_factory=Counters)
    turns: list[Turn] = field(default_factory=list)
    """That have ended, and are not counted yet."""
    hand: Hand | None = None
    """What a lent thread that works on it has of it in its hand."""
    shed: int = 0
    """Rows dropped from the queue because it was over its budget."""
    unsent: Counter[int] = field(default_factory=Counter)
    """Messages that the connection did not take, or the broker refused, by the part (from 0) that gave them."""
    unacknowledged: Counter[int] = field(default_factory=Counter)
    """Messages that the broker had not acknowledged when the gateway ended, by the same: they may have come."""
    no_room: int = 0
    """Messages of QoS 0 that it was not fed, since checkpoints of its flow could not be written."""
    running: bool = False
    fast_turns: int = 0
    """Turns in a row that were not slow."""
    started: float = 0.0
    """When the turn under way, or the last one, began, monotonic seconds."""
    freed: float = 0.0
    """When the last turn ended, monotonic seconds."""
    ready: float = 0.0
    """When what kept it from running (a turn, a pause, a row that rests, a full queue behind it) was last over."""
    again: bool = False
    """Its next turn begins with what the last one began with."""
    entrances: range = range(sys.maxsize)
    """Inputs by which rows come from outside; by the others come those that are tried again, or were restored."""
    latency: Latency = field(default_factory=Latency)
    """Of rows that leave the flow here, from their arrival."""
    remote: Callable[[Target, Batch], None] | None = None
    """Takes its batches, if it runs in another process; called by any worker."""
    away: bool = False
    """Some of its outputs are remote."""
    profiled: tuple[int, float, int] = (0, 0.0, 0)
    """Rows in, time spent and rows out when the pool last told its policy."""
    charged_s: float = 0.0
    """Of `counters.busy_s`, what the policy was told; kept while some instance of the pool has a weight."""
    untold: int = 0
    """By how many rows its queue has changed, while it ran, of which the policy does not know yet."""
    most_rows: int = FIRST_ROWS
    """No more are taken in a turn, whatever the pool's consumption says: so few that it is short, as far as is known
    what a row costs. Of one that `waits` nothing is, so it begins with one row."""
    unshared_s: float = 0.0
    """Time of turns that a region has not shared out among its parts yet."""
    waits: bool = False
    """Whether an operator of it may wait for something else than the processor."""
    region: Region | None = None
    """The logic, if it is one."""
    guards: tuple[Guard, ...] = ()
    """Of the logic, or of each part of a region."""
    errors: list[tuple[str, BaseException]] = field(default_factory=list)
    """What their operators raised last, until the end of the turn."""
    beside: bool = False
    """What feeds it feeds others too, or sends something itself."""
    kept: list[RawBatch] = field(default_factory=list)
    """Input that is owed an acknowledgement, fed since the last checkpoint."""
    uncounted: int = 0
    """Times that turns could not be counted, by a fault of our own."""
    quiet_until: float = 0.0
    """Until then no more of that in the log, monotonic seconds."""

    def __post_init__(self) -> None:
        if isinstance(self.logic, Region):
            self.region = self.logic
            self.entrances = self.logic.entrances(0)
        self.guards = self.region.guards if self.region else (Guard(self.logic),)
        self.waits = any(_waits(guard.logic) for guard in self.guards)
        if self.waits:
            self.most_rows = 1
        for guard in self.guards:
            guard.errors = self.errors

    @property
    def failures(self) -> int:
        """How often an operator raised with a row by itself, or with a batch that cannot be taken apart."""
        return sum(guard.failures for guard in self.guards)

    @property
    def idle(self) -> bool:
        """Whether nothing is queued or running."""
        return not self.queue.entries and not self.running

    @property
    def done(self) -> int:
        """Grows with each row it is done with, those among them that were restored or are tried again. May be asked
        while it runs."""
        return sum(self.region.took) if self.region else self.counters.rows_in

    def idle_at(self, now: float) -> float:
        """`Counters.idle_s` as of `now`."""
        return self.counters.idle_s + (max(0.0, now - self.freed) if self.idle else 0.0)

    def not_taken(self, part: int) -> Counter[str]:
        """Messages of a part (and those to the first) that did not come, or of which nobody knows, by reason."""
        fed = {} if part else {"no checkpoint, QoS 0": self.no_room}
        return Counter({"not sent": self.unsent[part], "not acknowledged": self.unacknowledged[part], **fed})

    def run(self, entries: Sequence[Entry], now: Now) -> Turn:
        """Processes what was taken. An error of an operator costs the rows that made it (`Guard`), never the worker."""
        turn = Turn()
        outputs = self.outputs
        region, guard = self.region, self.guards[0]
        process = region.process if region else guard.process
        for at, entry in enumerate(entries):
            batch = entry.batch
            if self.marks and entry.source in self.marks and entry.producer != MERGED:
                assert isinstance(batch, Batch)
                merged = self.marks[entry.source].merged(batch, entry.producer)
                if merged is None:
                    continue
                batch = merged
            before = region.left if region else 0
            try:
                emissions = process(batch, entry.source, now)
                if emissions:
                    self._give_out(emissions, turn.out)
            except Exception as error:  # noqa: BLE001 - a row that cannot be divided; or a fault of our own
                self._astray(error, len(batch))
            held = self._held(entry) if (region.held if region else guard.held) else ()
            rows = 0
            if region:
                rows = region.left - before
            elif not outputs:
                rows = len(batch) - sum([len(back.batch) for back in held])
            if rows:
                turn.left.append((batch.arrival, rows))
            if held:
                turn.back = [*held, *entries[at + 1 :]]
                for guard in self.guards:
                    turn.wait_s, guard.wait_s = max(turn.wait_s, guard.wait_s), 0.0
                break
            if self.errors and self.guards[0].late(now):
                turn.back = entries[at + 1 :]
                break
        if outputs:
            self._settle_safely(turn.out)
        if self.logic.messages or self.errors:
            self._said(turn)
        return turn

    def _give_out(self, emissions: Sequence[Emission], out: Outgoing) -> None:
        counters = self.counters
        for emission in emissions:
            counters.rows_out += len(emission.batch.rows)
            self.give(emission, out)

    def give(self, emission: Emission, out: Outgoing) -> None:
        """Adds to `out` what goes where of one emission."""
        port, batch = emission
        targets = self.outputs.get(port)
        if not targets:
            return
        if not batch.size:
            batch.size = size_of(batch.rows, self.counters.rows_out)  # or it would count for nothing in a budget
        for target in targets:
            target.give(batch, out)

    def settle(self, out: Outgoing) -> None:
        """After all emissions of a turn."""
        for targets in self.outputs.values():
            for target in targets:
                target.settle(out)

    def _settle_safely(self, out: Outgoing) -> None:
        try:
            self.settle(out)
        except Exception as error:  # noqa: BLE001 - as in `run`
            self._astray(error, 0)

    def time_by(self, clock: Callable[[], float]) -> None:
        """From now on `clock`, seconds, tells how long a turn takes that has errors, and now and then the parts of a
        region."""
        for guard in self.guards:
            guard.clock = clock
        if self.region:
            self.region.clock = clock

    def reaches(self) -> Iterator[Instance]:
        """The instances to which something goes from here."""
        for targets in self.outputs.values():
            for target in targets:
                yield from target.instances

    def take_messages(self) -> list[PlainMessage]:
        """What is to be sent and was not taken yet."""
        messages = self.logic.messages
        if messages:
            self.logic.messages = []
        return messages

    def giver(self, message: PlainMessage) -> int:
        """The part, from 0, that gave a message: a dead letter names it, other topics tell. For messages that are lost:
        too dear for all. Of parts that publish to the same topic the first."""
        guards = self.guards
        if len(guards) == 1:
            return 0
        topic, *_, reason = message
        if reason:
            gave = (n for n, guard in enumerate(guards) if reason.startswith(f"{guard.operator}: "))
        else:
            ours = [n for n, g in enumerate(guards) if isinstance(g.logic, Publish) and g.logic.may_give(topic)]
            gave = (n for n in ours or [n for n, guard in enumerate(guards) if foreign(guard.logic)])
        return next(gave, 0)

    def _astray(self, error: Exception, rows: int) -> None:
        self.errors[:] = [(self.name, error)]
        self.logic.drops[FAILED] += rows

    def _held(self, entry: Entry) -> list[Entry]:
        """What of `entry` is to come again, because a row of it is to be tried again, or the turn has taken long."""
        if self.region:
            held = self.region.take_held()
        else:
            guard = self.guards[0]
            held, guard.held = [(entry.source, batch) for batch in guard.held], []
        for _, batch in held:
            if isinstance(batch, Batch) and not batch.size:
                batch.size = size_of(batch.rows, self.counters.turns)
        return [entry._replace(source=source, batch=batch, producer=MERGED) for source, batch in held]

    def _said(self, turn: Turn) -> None:
        """Messages and errors of a turn that is over."""
        turn.messages = self.take_messages()
        if self.errors:
            turn.failing, turn.failed = self.errors.pop()

    def rows_of(self, entries: Sequence[Entry], turn: Turn) -> int:
        """How many rows of what was taken came from outside, and are done with."""
        first, rows = self.entrances, 0
        for entry in entries:
            if entry.source in first:
                rows += len(entry.batch)
        for entry in turn.back:
            if entry.source in first:
                rows -= len(entry.batch)
        return rows

    def count(self) -> None:
        """Adds turns that have ended to the figures (T_Q, T_S and T_C: EdgeWise, section 7.2). A fault of our own costs
        figures, and neither the worker nor what the turns gave."""
        counters, region, allowed = self.counters, self.region, self.most_rows
        try:
            for turn in self.turns:
                put, started, ended, rows = turn.put, turn.started, turn.ended, turn.rows
                at_head = self.freed
                if self.again:  # it has stood at the head; its time before that was counted with the first try
                    self.again = False
                elif put < at_head:
                    counters.queued_s += at_head - put
                else:
                    at_head = put
                counters.scheduling_s += started - (at_head if at_head > self.ready else self.ready)
                took = ended - started
                counters.busy_s += took
                if region is not None:
                    self.unshared_s += took
                    if region.sample:
                        region.share(self.unshared_s)
                        self.unshared_s = 0.0
                self.fast_turns = 0 if took >= SLOW_S else self.fast_turns + 1
                counters.turns += 1
                counters.rows_in += rows
                if took >= SLOW_S or 2 * rows >= allowed:
                    self.most_rows = after_turn(allowed, rows, took)
                for arrival, rows in turn.left:
                    self.latency.add(ended - arrival, rows)
                self.freed = self.ready = ended  # as far as the next of them is concerned
        except Exception:
            self.uncounted += 1
            if self._may_say(self.turns[-1].ended):
                log.exception("turns of %s could not be counted (%d times so far)", self.name, self.uncounted)
        finally:
            self.turns.clear()

    def take_profile(self) -> Profile | None:
        """What rows have cost and given since the last call; None if they are too few to say so. From then on turns are
        short enough for that cost."""
        c, (rows, busy_s, out) = self.counters, self.profiled
        count = c.rows_in - rows
        if count < PROFILED_ROWS:
            return None
        self.profiled = (c.rows_in, c.busy_s, c.rows_out)
        cost_s = (c.busy_s - busy_s) / count
        self.most_rows = most_rows(cost_s)
        return Profile(cost_s, (c.rows_out - out) / count)

    def log_failure(self, turn: Turn) -> None:
        """Says what an operator raised in a turn that has ended, if nothing was said of one a moment ago."""
        if self._may_say(turn.ended):
            log.error("operator %s failed (%d times so far): %r", turn.failing or self.name, self.failures, turn.failed)

    def _may_say(self, now: float) -> bool:
        if now < self.quiet_until:
            return False
        self.quiet_until = now + LOGGED_S
        return True

    def caught(self, fault: BaseException, entries: list[Entry], turn: Turn | None) -> Turn:
        """A turn came to its end by a fault of our own, or by an operator's `KeyboardInterrupt`, which no guard keeps:
        what of `entries` is not done (if there is no `turn` yet) is counted, and what is goes on."""
        log.error("a turn of %s failed in a way that was not foreseen", self.name, exc_info=fault)
        if turn is None:
            self.logic.drops[FAILED] += sum(len(entry.batch) for entry in entries)
        entries.clear()
        return turn or Turn()

    def hurry(self) -> None:
        """From now on a row that is to be tried again is tried at once: the flow ends, and there is no later."""
        for guard in self.guards:
            guard.patient = False

    def send_away(self, out: Outgoing) -> Outgoing:
        """Sends what is for other processes; returns the rest."""
        left = []
        for target, batch in out:
            if target.instance.remote is None:
                left.append((target, batch))
            else:
                try:
                    target.instance.remote(target, batch)
                except Exception as error:  # noqa: BLE001 - a value of an operator's own making that cannot be packed
                    self._astray(error, len(batch))
        return left

    def finish(self, now: Now) -> Turn:
        """Lets the logic give out what it still holds."""
        turn = Turn()
        try:
            emissions = self.region.flush(now) if self.region else self.guards[0].flush(now)
            self._give_out(emissions, turn.out)
        except Exception as error:  # noqa: BLE001 - as in `run`
            self._astray(error, 1)
        self._settle_safely(turn.out)
        self._said(turn)
        return turn


def _waits(logic: Logic) -> bool:
    return logic.waits if logic.waits is not None else foreign(logic)
