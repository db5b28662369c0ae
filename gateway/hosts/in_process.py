"""Flows that all run in this process, under one pool."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final

from edgert.core.batch import RawBatch, Row
from edgert.core.checkpoint.position import Position
from edgert.core.clock import Clock
from edgert.flow.plan import DAEMON
from edgert.operators.base.logic import Now
from edgert.operators.base.memory import MemoryBudget
from edgert.runtime import flow_run
from edgert.runtime.flow_run import FlowRun
from edgert.runtime.instance.edges import Target
from edgert.runtime.instance.figures import RawFigures, of_instance
from edgert.runtime.instance.report import Report, report
from edgert.runtime.pool.pool import Pool
from edgert.runtime.run_out import NO_HEIRS, Heirs, Said, run_out
from edgert.runtime.ticks import log_malformed, tick
from edgert.scheduling.consumption import Consumption
from gateway.hosts.host import Arrival, Entries, Feeding, QueueContents
from gateway.hosts.weights import Weights

TURN_S: Final = 1.0
"""Seconds that a turn under way has at the end of the process, when queues are not worked on any more. The input of a
longer turn is not in the last checkpoint, and is fed again."""
PROFILE_S: Final = 1.0
"""How often the policy is told what operators cost."""


class PoolCheckpoints:
    """See `Checkpoints`."""

    def __init__(self, pool: Pool, clock: Clock) -> None:
        self._pool, self._clock = pool, clock
        self.hold_s, self.turn_s = flow_run.HOLD_S, TURN_S
        self._late: set[FlowRun] = set()
        """Flows with a turn that did not end before the process: it may still produce output, which is not sent."""

    def is_up(self, run: FlowRun) -> bool:
        return True

    def hangs(self, run: FlowRun) -> bool:
        before = self._clock.monotonic() - self.hold_s

        def long() -> bool:
            return run in self._late or any(one.schedule.running and one.schedule.started < before for one in run.local)

        if not long():
            return False
        time.sleep(0.001)  # one that begins just now shows for a moment when the turn before it began
        return long()

    def capture(self, run: FlowRun, feeding: Feeding) -> bool:
        return run.capture(self._pool, feeding, self.hold_s)

    def committed(self, run: FlowRun) -> None:
        """This host keeps no input for replay."""

    def spill(self, run: FlowRun, feeding: Feeding) -> tuple[Position, QueueContents]:
        with feeding:
            return run.take_input()

    def spilled(self, run: FlowRun) -> None:
        run.input_is_safe()

    def take_results(self, run: FlowRun) -> list[Row]:
        return [row for ship in run.ships for row in ship.take()]

    def give_back(self, run: FlowRun, rows: Sequence[Row]) -> None:
        run.ships[0].give_back(rows)

    def halt(self, run: FlowRun, feeding: Feeding, timeout_s: float) -> bool:
        return self._pool.hold(run.local, timeout_s)

    def stop_for_plan(self, run: FlowRun, feeding: Feeding, timeout_s: float) -> bool:
        return run.capture(self._pool, feeding, timeout_s, stop=True)

    def run_out(self, run: FlowRun, heirs: Heirs = NO_HEIRS) -> Iterator[Said]:
        return run_out(run, _now(self._clock), heirs)

    def quiesce(self, runs: Sequence[FlowRun], feeding: Feeding, timeout_s: float) -> list[FlowRun]:
        self._pool.wait_empty([instance for run in runs for instance in run.local], timeout_s - self.turn_s)
        self._pool.stop(self.turn_s)
        resting = [run for run in runs if self._pool.at_rest(run.local)]
        self._late = set(runs) - set(resting)
        return resting

    def recount(self, run: FlowRun) -> None:
        """The last checkpoint is taken later."""


class PoolFigures:
    """See `HostFigures`."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def report(self, run: FlowRun, name: str) -> Report:
        return report(run.stages[name], self._clock.monotonic())

    def changes(self, run: FlowRun) -> float:
        """See `HostFigures`: turns, input that was not fed, and messages that were not delivered."""
        lost = [one.delivery for one in run.local]
        turns = sum(one.counters.turns for one in run.local)
        return turns + sum(each.shed + each.no_room + each.unsent.total() for each in lost)

    def slots(self) -> list[dict[str, Any]]:
        return []

    async def ask(self) -> None:
        """Does nothing: figures are read from the instances themselves."""

    def of(self, run: FlowRun) -> Sequence[RawFigures]:
        now = self._clock.monotonic()
        return [of_instance(instance, now) for instance in run.all]

    def where(self, run: FlowRun) -> Sequence[int | None]:
        return [DAEMON if run.on_board(planned) else None for planned in run.plan.instances.values()]

    def processes(self) -> Mapping[int, tuple[int, Mapping[int, str]]]:
        return {}


class InProcess:
    """All in this process, under one pool."""

    LEND_S = 0.002
    """After a read the loop's thread works on it itself for so long at most; what is left is the workers'."""

    def __init__(self, pool: Pool, clock: Clock, state_limit_bytes: float = math.inf) -> None:
        """`state_limit_bytes`: for what operators of all flows keep by key."""
        self.pool = pool
        self.memory = MemoryBudget(state_limit_bytes)
        self.weights = Weights()
        self._clock = clock
        self._runs: dict[FlowRun, None] = {}
        """The flows in the pool, without those being removed."""
        self._next_profile = clock.monotonic()
        self.leaving: list[FlowRun] = []
        """Removed, but a turn of them is under way."""
        self.checkpoints = PoolCheckpoints(pool, clock)
        self.figures = PoolFigures(clock)

    async def start(self) -> None:
        self.pool.start()

    async def leave(self) -> None:
        """No slot process has to leave: all flows run in this process."""

    async def stop(self) -> None:
        self.pool.stop(0.0)  # turns under way have had their time

    def begin(self, run: FlowRun, blobs: Sequence[bytes] = (), queue: bytes = b"", *, stands: bool = False) -> None:
        run.restore(blobs, queue, _now(self._clock))
        self._enter(run)
        if stands:
            run.stand(self.pool)

    def _enter(self, run: FlowRun) -> None:
        self.pool.add(run.local)
        self._runs[run] = None
        self.memory.take_in(run.memory)
        self._weigh(run)

    def _weigh(self, run: FlowRun) -> None:
        weights = self.weights.of(run)
        for instance in run.local:
            if instance.name in weights:
                self.pool.weigh([instance], weights[instance.name])

    def remove(self, run: FlowRun) -> None:
        self._runs.pop(run, None)
        log_malformed(run, self._clock)
        self.memory.let_go(run.memory)
        if not self.pool.at_rest(run.local):
            self.pool.begin_hold(run.local)
            self.leaving.append(run)
            return
        self.pool.remove(run.local)

    def put(self, entries: Entries) -> None:
        self.pool.put(kept(entries), wake=False)

    def deliver(self, run: FlowRun, arrivals: Sequence[Arrival]) -> None:
        for instance, source, producer, batch in arrivals:
            self.pool.take_in(Target(instance, source, producer), batch)

    def has_room(self, run: FlowRun) -> bool:
        return not any(instance.queue.over for instance in run.local)

    def waiting(self, run: FlowRun) -> int:
        with self.pool.lock:
            return sum(len(entry.batch) for instance in run.local for entry in instance.queue.entries)

    def lend(self) -> None:
        self.pool.lend(self.LEND_S)

    def go_on(self, run: FlowRun, state: Sequence[bytes] = ()) -> None:
        if state:
            run.restore(state, b"", _now(self._clock))
        run.go_on(self.pool)

    def successor(self, old: FlowRun, new: FlowRun, blobs: Sequence[bytes], queue: bytes) -> Callable[[], None]:
        new.restore(blobs, queue, _now(self._clock))
        return partial(self.replace, old, new)

    def replace(self, old: FlowRun, new: FlowRun) -> None:
        """Puts a restored run instead of one that stands still."""
        for instance in old.local:  # input fed since the checkpoint, by a broker or another gateway
            for entry in instance.queue.take_all():
                new.heir(instance).queue.append(entry)
            if instance.delivery.kept:
                new.heir(instance).delivery.kept += instance.delivery.kept
        self.pool.remove(old.local)
        self._runs.pop(old, None)
        self.memory.let_go(old.memory)
        self._enter(new)

    def tick(self, runs: Iterable[FlowRun]) -> bool:
        now = self._clock.monotonic()
        if now >= self._next_profile:  # not with every tick: it may take a policy milliseconds, under the pool's lock
            self._next_profile = now + PROFILE_S
            self.pool.profile()
        for run in [r for r in self.leaving if self.pool.at_rest(r.local)]:
            self.pool.remove(run.local)
            self.leaving.remove(run)
        due = [tick(run, self.pool, self._clock) for run in runs]
        return any(due) or bool(self.leaving)

    def consume(self, consumption: Consumption, rows: int) -> None:
        self.pool.consumption = consumption

    def log_level(self, level: str) -> None:
        """No slot process has a log level: all flows run in this process."""

    def offer_model(self, run: FlowRun, operator: str, document: Mapping[str, Any]) -> None:
        """The operator in this process has the model already."""

    def weigh(self, flow: str, weights: Mapping[str, object]) -> None:
        self.pool.weigh((), 1.0)  # or it has none
        for run in self.weights.put_untrusted(flow, weights, self._runs):
            self._weigh(run)


def _now(clock: Clock) -> Now:
    return Now(clock.monotonic(), clock.wall())


def kept(entries: Entries) -> Entries:
    """Returns the entries; those owed an acknowledgement are kept at their instance until they are in the database."""
    fed = list(entries)
    for instance, _, batch in fed:
        if isinstance(batch, RawBatch) and batch.owed:
            instance.delivery.kept.append(batch)
    return fed
