"""Where flows run: in this process, or in slots. Both look the same to whoever starts, feeds and checkpoints them."""

from __future__ import annotations

import threading
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Final, Protocol

from edgert.core.batch import Batch, RawBatch, Row
from edgert.core.clock import Clock
from edgert.core.position import Position as Covered
from edgert.flow.plan import DAEMON
from edgert.operators.logic import Now, PlainMessage
from edgert.runtime import flow_run
from edgert.runtime.figures import Figures, of_instance
from edgert.runtime.flow_run import FlowRun
from edgert.runtime.instance import Instance
from edgert.runtime.pool import Pool
from edgert.runtime.queue import Entry
from edgert.runtime.report import Report, report
from edgert.runtime.targets import Target
from edgert.runtime.ticks import tick
from edgert.scheduling.consumption import Consumption
from gateway.weights import Weights

TURN_S: Final = 1.0
"""So long a turn has at the end of the process, when queues are not worked on any more. What took longer is not in the
last checkpoint, but fed again."""
PROFILE_S: Final = 1.0
"""How often the policy is told what operators cost."""
Send = Callable[[Instance, Sequence[PlainMessage]], None]
Turned = Callable[[], None]
"""Called after each turn of a flow that is brought to its end; what it raises ends that."""
Position = Callable[[Callable[[], None]], None]
"""Runs its argument while nothing can be fed."""
Entries = Iterable[tuple[Instance, int, Batch | RawBatch]]
"""(instance, number of its input, batch)."""
Arrival = tuple[Instance, int, int, Batch]
"""(instance, number of its input, which of the copies that feed that gave it, batch of another gateway)."""
Waiting = Mapping[str, Sequence[Entry]]
"""What waits in queues, by place."""


class Checkpoints(Protocol):
    """What a host asks of the registry of flows (see there), to bring one back to its last checkpoint."""

    feeding: threading.Lock
    """Held while anything is fed to a flow."""

    def store(self, call: Callable[[], Any], /) -> Awaitable[Any]:
        """Runs a call on the store thread."""
        ...

    def read_checkpoint(self, flow: str) -> tuple[list[bytes], bytes]:
        """State and queues of a flow's last checkpoint. On the store thread."""
        ...

    def last_checkpoint(self, flow: str) -> AbstractAsyncContextManager[tuple[list[bytes], bytes]]:
        """The same, while no checkpoint is made."""
        ...

    def fail(self, run: FlowRun, why: str) -> None:
        """The flow cannot go on."""
        ...


class Host(Protocol):
    """Runs flows. Calls come from the daemon's loop unless it says otherwise."""

    weights: Weights
    """Of operators of its flows."""

    async def start(self) -> None:
        """Rows may be worked on from now on."""
        ...

    async def leave(self) -> None:
        """The process ends: no flow is brought back to its checkpoint any more."""
        ...

    async def stop(self) -> None:
        """Ends all work, after `rest`; rows in queues stay where they are."""
        ...

    def begin(self, run: FlowRun, blobs: Sequence[bytes] = (), queue: bytes = b"", *, stands: bool = False) -> None:
        """Runs a flow from a checkpoint; with `stands` not before `go_on` (or a run that succeeds it). Raises
        `StoreError` where that does not fit it."""
        ...

    def remove(self, run: FlowRun) -> None:
        """Forgets a flow that was halted and drained."""
        ...

    def put(self, entries: Entries) -> None:
        """Feeds batches, under the lock that `Position` takes."""
        ...

    def deliver(self, run: FlowRun, arrivals: Sequence[Arrival]) -> None:
        """Feeds batches of other gateways, under the lock that `Position` takes."""
        ...

    def has_room(self, run: FlowRun) -> bool:
        """Whether the flow keeps up: none of its queues is over its budget, as far as is known here."""
        ...

    def lend(self) -> None:
        """To be called after `put` or `deliver`, without the lock."""
        ...

    def is_up(self, run: FlowRun) -> bool:
        """Whether it can come to a batch boundary at all: not while a slot of it is started again, or is silent."""
        ...

    def hangs(self, run: FlowRun) -> bool:
        """Whether it is in vain to wait for a batch boundary: a turn is longer under way than anybody would wait. Costs
        next to nothing; false where that is not known."""
        ...

    def capture(self, run: FlowRun, position: Position) -> bool:
        """Takes what a checkpoint needs into `run.pending`; false when the flow came to no batch boundary in time. On
        the store thread. Raises what an operator's `delta` raises."""
        ...

    def committed(self, run: FlowRun) -> None:
        """What was pending is in the database. On the store thread."""
        ...

    def spill(self, run: FlowRun, position: Position) -> tuple[Covered, Waiting]:
        """What was fed to a flow that comes to no batch boundary, and is owed an acknowledgement, since its last
        checkpoint or spill, by place; and what is covered with it. On the store thread."""
        ...

    def spilled(self, run: FlowRun) -> None:
        """That is in the database. On the store thread."""
        ...

    def take_results(self, run: FlowRun) -> list[Row]:
        """What a flow has made since the last call or capture, to leave ahead of the next one: of an at-least-once flow
        only. On the store thread."""
        ...

    def give_back(self, run: FlowRun, rows: Sequence[Row]) -> None:
        """What was taken could not be written: the next capture has it. On the store thread, before that."""
        ...

    def halt(self, run: FlowRun, position: Position, timeout_s: float) -> bool:
        """Stops a flow for good at a batch boundary; false (and it goes on) when it comes to none in time. Waits, so on
        a thread of its own."""
        ...

    def stop_for_plan(self, run: FlowRun, position: Position, timeout_s: float) -> bool:
        """As `capture`, and the flow stands still then, until `go_on` or `succeed`. On a thread of its own."""
        ...

    def go_on(self, run: FlowRun) -> None:
        """The flow works on."""
        ...

    def succeed(self, old: FlowRun, new: FlowRun, blobs: Sequence[bytes], queue: bytes) -> Callable[[], None]:
        """Prepares `new`, another plan of the same flow, from the checkpoint with which `old` was stopped. What it
        returns lets `new` go on in the place of `old`, with what was fed since; to be called while nothing can be fed.
        Raises `StoreError` where the checkpoint does not fit."""
        ...

    def drain(self, run: FlowRun, send: Send, turned: Turned) -> Callable[[], None]:
        """On the store thread. What it returns runs a halted flow, to which nothing is fed any more, to its end, on a
        thread of its own."""
        ...

    def rest(self, runs: Sequence[FlowRun], position: Position, timeout_s: float) -> list[FlowRun]:
        """For the end of the process: works off what is queued, as far as that is possible in the time, and computes
        nothing from then on. Returns the flows that stand still: all that they gave out has come then, and they may
        have a last checkpoint, by `capture`, or where it was taken here by what is pending. There is none of the others
        from then on, and `capture` is false at once. On a thread of its own."""
        ...

    def recount(self, run: FlowRun) -> None:
        """Of a flow that rests: what it has dropped may have become more, which its last checkpoint is to say."""
        ...

    def tick(self, runs: Iterable[FlowRun]) -> None:
        """To be called four times a second."""
        ...

    def consume(self, consumption: Consumption, rows: int) -> None:
        """How much an instance takes at a time from now on: the policy, and its most rows."""
        ...

    def log_level(self, level: str) -> None:
        """How much other processes are to say from now on."""
        ...

    def offer_model(self, run: FlowRun, operator: str, document: Mapping[str, Any]) -> None:
        """A model that the operator of the running flow has no objection to, and has taken where it runs here."""
        ...

    def weigh(self, flow: str, weights: Mapping[str, object]) -> None:
        """From now on operators of a running flow have these weights, in all its runs: see `Candidates.weigh`. Raises
        `EdgertError` where one is none, or cannot be given here; then none is."""
        ...

    def report(self, run: FlowRun, name: str) -> Report:
        """What the place `name` of a flow has done."""
        ...

    def slots(self) -> list[dict[str, Any]]:
        """What is to be said of each slot, for the status; none where all runs in this process."""
        ...

    def figures(self, run: FlowRun) -> Sequence[Figures]:
        """Raw figures of each instance of a flow, in the plan's order."""
        ...

    def where(self, run: FlowRun) -> Sequence[int | None]:
        """The slot of each instance of a flow, in the plan's order; `DAEMON`: this process; None: another gateway."""
        ...

    def processes(self) -> Mapping[int, tuple[int, Mapping[int, str]]]:
        """Of each slot that runs: the process id, and what its threads are for."""
        ...


class InProcess:
    """All in this process, under one pool."""

    LEND_S = 0.002
    """After a read the loop's thread works on it itself for so long at most; what is left is the workers'."""

    def __init__(self, pool: Pool, clock: Clock) -> None:
        self.pool = pool
        self.weights = Weights()
        self._clock = clock
        self._runs: dict[FlowRun, None] = {}
        """Those that are in the pool, and not on their way out."""
        self._next_profile = clock.monotonic()
        self._leaving: list[FlowRun] = []
        """Removed, but a turn of them is under way."""
        self._late: set[FlowRun] = set()
        """A turn of theirs did not end before the process: it may still give out something, which nobody sends."""

    def _now(self) -> Now:
        return Now(self._clock.monotonic(), self._clock.wall())

    async def start(self) -> None:
        self.pool.start()

    async def leave(self) -> None:
        """None is."""

    async def stop(self) -> None:
        self.pool.stop(0.0)  # turns under way have had their time

    def begin(self, run: FlowRun, blobs: Sequence[bytes] = (), queue: bytes = b"", *, stands: bool = False) -> None:
        run.restore(blobs, queue, self._now())
        self._enter(run)
        if stands:
            run.stand(self.pool)

    def _enter(self, run: FlowRun) -> None:
        self.pool.add(run.local)
        self._runs[run] = None
        self._weigh(run)

    def _weigh(self, run: FlowRun) -> None:
        weights = self.weights.of(run)
        for instance in run.local:
            if instance.name in weights:
                self.pool.weigh([instance], weights[instance.name])

    def remove(self, run: FlowRun) -> None:
        self._runs.pop(run, None)
        if not self.pool.at_rest(run.local):
            self.pool.begin_hold(run.local)
            self._leaving.append(run)
            return
        self.pool.remove(run.local)

    def put(self, entries: Entries) -> None:
        self.pool.put(kept(entries), wake=False)

    def deliver(self, run: FlowRun, arrivals: Sequence[Arrival]) -> None:
        for instance, source, producer, batch in arrivals:
            self.pool.take_in(Target(instance, source, producer), batch)

    def has_room(self, run: FlowRun) -> bool:
        return not any(instance.queue.over for instance in run.local)

    def lend(self) -> None:
        self.pool.lend(self.LEND_S)

    def is_up(self, run: FlowRun) -> bool:
        return True

    def hangs(self, run: FlowRun) -> bool:
        before = self._clock.monotonic() - flow_run.HOLD_S

        def long() -> bool:
            return run in self._late or any(instance.running and instance.started < before for instance in run.local)

        if not long():
            return False
        time.sleep(0.001)  # one that begins just now shows for a moment when the turn before it began
        return long()

    def capture(self, run: FlowRun, position: Position) -> bool:
        return run.capture(self.pool, position)

    def committed(self, run: FlowRun) -> None:
        """Nothing is kept here."""

    def spill(self, run: FlowRun, position: Position) -> tuple[Covered, Waiting]:
        taken: list[tuple[Covered, Waiting]] = []
        position(lambda: taken.append(run.take_input()))
        return taken[0]

    def spilled(self, run: FlowRun) -> None:
        run.input_is_safe()

    def take_results(self, run: FlowRun) -> list[Row]:
        return [row for ship in run.ships for row in ship.take()]

    def give_back(self, run: FlowRun, rows: Sequence[Row]) -> None:
        run.ships[0].give_back(rows)

    def halt(self, run: FlowRun, position: Position, timeout_s: float) -> bool:
        return self.pool.hold(run.local, timeout_s)

    def stop_for_plan(self, run: FlowRun, position: Position, timeout_s: float) -> bool:
        return run.capture(self.pool, position, timeout_s, stop=True)

    def go_on(self, run: FlowRun) -> None:
        run.go_on(self.pool)

    def succeed(self, old: FlowRun, new: FlowRun, blobs: Sequence[bytes], queue: bytes) -> Callable[[], None]:
        new.restore(blobs, queue, self._now())

        def switch() -> None:
            for instance in old.local:  # what was fed since: by a broker, or by another gateway
                for entry in instance.queue.take_all():
                    new.heir(instance).queue.append(entry)
                if instance.kept:
                    new.heir(instance).kept += instance.kept
            self.pool.remove(old.local)
            self._runs.pop(old, None)
            self._enter(new)

        return switch

    def drain(self, run: FlowRun, send: Send, turned: Turned) -> Callable[[], None]:
        return lambda: run.drain(self._now(), send, turned)

    def rest(self, runs: Sequence[FlowRun], position: Position, timeout_s: float) -> list[FlowRun]:
        self.pool.wait_empty([instance for run in runs for instance in run.local], timeout_s - TURN_S)
        self.pool.stop(TURN_S)
        resting = [run for run in runs if self.pool.at_rest(run.local)]
        self._late = set(runs) - set(resting)
        return resting

    def recount(self, run: FlowRun) -> None:
        """The last checkpoint is taken later."""

    def tick(self, runs: Iterable[FlowRun]) -> None:
        now = self._clock.monotonic()
        if now >= self._next_profile:  # not with every tick: it may take a policy milliseconds, under the pool's lock
            self._next_profile = now + PROFILE_S
            self.pool.profile()
        for run in [r for r in self._leaving if self.pool.at_rest(r.local)]:
            self.pool.remove(run.local)
            self._leaving.remove(run)
        for run in runs:
            tick(run, self.pool, self._clock)

    def consume(self, consumption: Consumption, rows: int) -> None:
        self.pool.consumption = consumption

    def log_level(self, level: str) -> None:
        """There are none."""

    def offer_model(self, run: FlowRun, operator: str, document: Mapping[str, Any]) -> None:
        """It has it already."""

    def weigh(self, flow: str, weights: Mapping[str, object]) -> None:
        self.pool.weigh((), 1.0)  # or it has none
        for run in self.weights.put_untrusted(flow, weights, self._runs):
            self._weigh(run)

    def report(self, run: FlowRun, name: str) -> Report:
        return report(run.places[name], self._clock.monotonic())

    def slots(self) -> list[dict[str, Any]]:
        return []

    def figures(self, run: FlowRun) -> Sequence[Figures]:
        now = self._clock.monotonic()
        return [of_instance(instance, now) for instance in run.all]

    def where(self, run: FlowRun) -> Sequence[int | None]:
        return [DAEMON if run.on_board(planned) else None for planned in run.plan.instances.values()]

    def processes(self) -> Mapping[int, tuple[int, Mapping[int, str]]]:
        return {}


def kept(entries: Entries) -> Entries:
    """The same; what is owed an acknowledgement is kept at its instance, until it is in the database."""
    fed = list(entries)
    for instance, _, batch in fed:
        if isinstance(batch, RawBatch) and batch.owed:
            instance.kept.append(batch)
    return fed
