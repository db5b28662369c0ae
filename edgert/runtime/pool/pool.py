"""A fixed pool of workers over many instances: a free worker asks the policy which instance runs next.

One lock guards queues, policy and counters; it is taken twice per turn at most (to take rows, and to pass on the output
together with the next choice), never per row, and never while an operator computes.

An instance with rows is not chosen while it runs, or while `Backpressure` has it among the `held` (a checkpoint or a
removal stops it), the `resting` (a row is tried again later) or the stalled (it feeds an instance in `over`: one whose
queue is over its budget). `Schedule.freed` is the end of the last turn, from which idle time counts. `Schedule.ready`
is when the last reason not to run ended, from which the wait for a worker counts. A `fast` instance had twenty short
turns in a row, and no operator of it waits: the thread that feeds the pool may run it (`lend`).
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Sequence

from edgert.core.batch import Batch, RawBatch
from edgert.core.clock import Clock
from edgert.operators.base.logic import Now, PlainMessage
from edgert.runtime.instance.edges import Target
from edgert.runtime.instance.instance import Instance
from edgert.runtime.instance.queue import Entry
from edgert.runtime.instance.turn import Turn
from edgert.runtime.pool.activity import Activity
from edgert.runtime.pool.backpressure import Backpressure
from edgert.runtime.pool.thread_roles import MOST_WORKERS, ThreadRoles, fast
from edgert.scheduling.congestion_aware import CongestionAware
from edgert.scheduling.consumption import DEFAULT_ROWS, SLOW_S, Consumption, at_most
from edgert.scheduling.policies import Policy

log = logging.getLogger(__name__)

LOOK_S = 0.5
"""Seconds after which a worker without work looks whether the lent thread, which has the work, is in a long turn."""
Send = Callable[[Instance, Sequence[PlainMessage]], None]
"""Takes the messages of one turn; called on a worker's thread, outside the lock."""


class Pool:
    """K workers and M instances; at most one worker runs an instance at a time, so each queue keeps its order."""

    def __init__(
        self, clock: Clock, *, workers: int = 1, policy: Policy | None = None,
        consumption: Consumption | None = None, send: Send = lambda instance, messages: None, look_s: float = LOOK_S,
    ) -> None:  # fmt: skip
        self._clock = clock
        self.policy = policy or CongestionAware()
        self.consumption = consumption or at_most(DEFAULT_ROWS)
        self._send, self._look_s = send, look_s
        self._instances: dict[int, Instance] = {}
        self._stopping = False
        self.lock = threading.Lock()
        """Protects all queues. A reader of several queues that must agree takes it, too."""
        self._work, self._asleep = threading.Condition(self.lock), 0
        """The condition that workers without work wait for, and their number."""
        self._quiet, self._watching = threading.Condition(self.lock), 0
        """The condition that threads wait for which need an instance at rest, and their number."""
        self.backpressure = Backpressure(self.policy, self._instances)
        self.activity: Activity | None = None
        """The record of the instance of each thread's turn, see `Activity`."""
        self.roles = ThreadRoles(workers)
        self._lent_turn: tuple[Instance, list[Entry]] | None = None
        """The next turn of a lent thread."""
        self._threads = [self._new_thread(n + 1) for n in range(workers)]

    # -- life

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self, timeout_s: float | None = None) -> None:
        """Starts no more turns, and waits for those under way, for `timeout_s` at most. Rows in queues stay there."""
        with self.lock:
            self._stopping = True
            self._work.notify_all()
        ends = time.monotonic() + (threading.TIMEOUT_MAX if timeout_s is None else timeout_s)
        for thread in self._threads:
            if thread.ident is not None:
                thread.join(max(0.0, ends - time.monotonic()))

    def add(self, instances: Iterable[Instance]) -> None:
        """Takes the instances into the pool, which gives them turns."""
        instances = list(instances)
        for instance in instances:
            if messages := instance.take_messages():  # messages of a restore leave before later ones
                instance.send_safely(messages, self._send)
        now = self._clock.monotonic()
        with self.lock:
            for instance in instances:
                instance.schedule.freed, instance.schedule.charged_s = now, instance.counters.busy_s
                instance.time_by(self._clock.monotonic)
                instance.edges.away = any(other.remote for other in instance.edges.reaches())
                self.backpressure.add(instance)
            self.backpressure.connect()
            self._work.notify_all()

    def remove(self, instances: Iterable[Instance]) -> None:
        """Takes out instances that are held by `hold` and not running."""
        with self.lock:
            for instance in instances:
                self.backpressure.forget(instance.schedule.number)
                self._free_feeders(instance.schedule.number)
            self.backpressure.connect()

    # -- rows

    def put(self, entries: Iterable[tuple[Instance, int, Batch | RawBatch]], *, wake: bool = True) -> None:
        """Puts batches on the queues of instances, each with the number of the input it comes by. `wake` false: the
        caller lends its thread next."""
        entries = list(entries)
        now = self._clock.monotonic()
        with self.lock:
            if not wake and len(entries) == 1 and self._begin(*entries[0], now):
                return
            for instance, source, batch in entries:
                self._put(instance, Entry(source, batch, now))
            if wake and self._asleep:
                self._work.notify(len(entries))  # a worker each: the first may meet an operator that waits
            elif wake:
                self._add_worker(now)

    def _begin(self, instance: Instance, source: int, batch: Batch | RawBatch, now: float) -> bool:
        """Gives the instance the next turn of a lent thread if nothing else waits: the policy has only one choice, and
        asking it costs more than the work on a few rows. Returns True if so."""
        queue, schedule = instance.queue, instance.schedule
        if self._lent_turn or schedule.running or queue.rows or not self._goes_first(instance):
            return False
        if now > schedule.freed:
            instance.counters.idle_s += now - schedule.freed
        schedule.running = True
        self.policy.busy(schedule.number)
        rows = queue.append(Entry(source, batch, now))
        limit = min(self.consumption(rows), schedule.most_rows)
        self._lent_turn = instance, queue.take(limit)
        self.roles.since = now
        if rows > limit:
            self.policy.rows_added(schedule.number, rows - limit)
            self.backpressure.check(instance)
        return True

    def _goes_first(self, instance: Instance) -> bool:
        """True if a lent thread may run `instance`, and no other instance could be chosen."""
        backpressure, number = self.backpressure, instance.schedule.number
        return backpressure.idle() and fast(instance) and number not in backpressure.held and not self._stopping

    def take_in(self, target: Target[Instance], batch: Batch | RawBatch, *, accepted: bool = False) -> None:
        """Puts a batch that came from another process; the caller lends its thread next. What was `accepted` before is
        not shed."""
        now = self._clock.monotonic()
        with self.lock:
            self._put(target.instance, Entry(target.source, batch, now, target.producer), accepted=accepted)

    def _put(self, instance: Instance, entry: Entry, *, accepted: bool = False) -> None:
        queue, schedule = instance.queue, instance.schedule
        if not queue.rows and not schedule.running and entry.put > schedule.freed:
            instance.counters.idle_s += entry.put - schedule.freed
        change, shed = (queue.append(entry), 0) if accepted else queue.put(entry)
        if queue.size > queue.budget_bytes:  # the test spares most batches the call
            self.backpressure.check(instance)
        if shed:
            instance.delivery.shed += shed
        if change > 0:
            self.policy.rows_added(schedule.number, change)
        elif change < 0:
            self.policy.rows_taken(schedule.number, -change)

    # -- turns

    def lend(self, time_s: float, *, lends_again: bool = False) -> bool:
        """Runs turns on the caller's thread, as one more worker, until nothing waits or `time_s` are over. Returns True
        if rows are left that this thread could go on with. The workers take these unless the caller lends its thread
        at once again (`lends_again`). For a thread that has just put rows: they are still in its caches, and no other
        thread need be woken. `ThreadRoles` says which instances it runs, and which it leaves to the workers.
        """
        now = self._clock.monotonic()
        ends = now + time_s
        with self.lock:
            chosen, self._lent_turn = self._lent_turn, None
        while True:
            if chosen:
                instance, entries = chosen
                turn = self.run_turn(instance, entries)
                now = turn.ended
            with self.lock:
                if chosen:
                    if now < ends and instance.queue.rows and self._runs_again(instance, turn):
                        chosen = self.take(instance.schedule.number)
                        self.roles.since = now
                        continue
                    self.settle_turn(instance, turn)
                    if not turn.out and self.backpressure.idle():
                        self.roles.since = None
                        return False
                number, left = (None, 0) if self._stopping else self.backpressure.pick(now, self.roles.lendable(now))
                more = number is not None
                if number is None or now >= ends:
                    self.roles.since = now if lends_again and more else None
                    if left:
                        self._add_worker(now)
                    if wake := left if lends_again or not more else self._asleep:
                        self._work.notify(wake)
                    return more
                if left:
                    self._work.notify(left)
                chosen = self.take(number)
                self.roles.since = now

    def _runs_again(self, instance: Instance, turn: Turn[Instance]) -> bool:
        """True if the instance has the next turn, without a choice: it gave nothing, and no other could be chosen."""
        return not turn.out and not turn.back and self._goes_first(instance)

    def _add_worker(self, now: float, long_s: float = SLOW_S) -> None:
        """Starts one more worker if all are in turns that long, and an instance waits for one."""
        if self.roles.all_in_long_turns(now, long_s) and self.policy.waiting and self.roles.workers < MOST_WORKERS:
            log.warning("all %d workers are in turns that take long: another one is started", self.roles.workers)
            (thread := self._new_thread(self.roles.workers + 1)).start()
            self._threads.append(thread)
            self.roles.workers += 1

    def _new_thread(self, number: int) -> threading.Thread:
        return threading.Thread(target=self._worker, name=f"worker-{number}", daemon=True)

    def _worker(self) -> None:
        turn: Turn[Instance] | None = None
        instance: Instance | None = None
        while True:
            with self.lock:
                if instance is not None and turn is not None:
                    self.settle_turn(instance, turn)
                    if self._asleep and turn.out:
                        self._work.notify(len(turn.out))
                self.roles.ends()
                chosen = self._next()
                if chosen is None:
                    return
                instance, entries = chosen
                self.roles.begins(self._clock.monotonic())
            turn = self.run_turn(instance, entries)

    def _next(self) -> tuple[Instance, list[Entry]] | None:
        """Waits for work (under the lock); None when the pool stops."""
        while not self._stopping:
            now = self._clock.monotonic()
            number, left = self.backpressure.pick(now, self.roles.for_workers(now))
            if number is not None:
                return self.take(number)
            ends = [SLOW_S if left else self._look_s]
            if resting := self.backpressure.resting:
                ends.append(min(resting.values()) - now)
            self._asleep += 1
            self._work.wait(min(ends))
            self._asleep -= 1
        return None

    def take(self, number: int) -> tuple[Instance, list[Entry]]:
        """Begins the turn of instance `number`: marks it as running and takes its rows. Under the lock."""
        instance = self._instances[number]
        queue, schedule = instance.queue, instance.schedule
        before, policy = queue.rows, self.policy
        entries = queue.take(min(self.consumption(before), schedule.most_rows))
        schedule.running = True
        policy.busy(number)
        policy.rows_taken(number, before - queue.rows)
        if self.backpressure.over and number in self.backpressure.over and not queue.over:
            self._free_feeders(number)
        if queue.shedding:
            self.backpressure.end_shedding(instance)
        return instance, entries

    def run_turn(self, instance: Instance, entries: list[Entry]) -> Turn[Instance]:
        """Runs one turn outside the lock: no other thread uses a running instance. Empties `entries`."""
        clock, schedule = self._clock, instance.schedule
        if self.activity:
            self.activity.begin(instance.of_run)
        started = schedule.started = clock.monotonic()
        turn = None
        try:
            turn = instance.run(entries, Now(started, clock.wall()))
            if instance.edges.away:  # before the instance counts as at rest: then all its batches are sent
                turn.out = instance.send_away(turn.out)
            if turn.messages:
                instance.send_safely(turn.messages, self._send)
                turn.messages = ()  # freed here, so that the time counts as busy, and not as scheduling
            turn.started, turn.put, turn.rows = started, entries[0].put, instance.rows_of(entries, turn)
            entries.clear()  # for the same reason
            turn.ended = clock.monotonic()
            instance.count(turn)
            if turn.failed:
                instance.log_failure(turn)
        except BaseException as fault:  # the last net: neither worker nor instance may be lost
            turn = instance.caught(fault, entries, turn)
            turn.ended = clock.monotonic()
            schedule.freed = schedule.ready = turn.ended
            if isinstance(fault, KeyboardInterrupt) and threading.current_thread() is threading.main_thread():
                with self.lock:
                    self.settle_turn(instance, turn)
                raise  # Ctrl-C: the process is to end
        if self.activity:
            self.activity.begin(0)
        return turn

    def settle_turn(self, instance: Instance, turn: Turn[Instance]) -> None:
        """Puts the output of a turn onto the next queues, and frees its instance. Under the lock."""
        ended, schedule = turn.ended, instance.schedule
        for target, batch in turn.out:
            self._put(target.instance, Entry(target.source, batch, ended, target.producer))
        if self.policy.weighed:
            self.backpressure.charge(instance)
        schedule.running = False
        schedule.freed = ended
        if turn.back:
            self.backpressure.retry_later(instance, turn)
            self._work.notify()  # a worker must wait until the retry time
        self.backpressure.free(schedule.number, ended)
        if self._watching:
            self._quiet.notify_all()

    # -- pauses: for a checkpoint, to be taken out, or until nothing is left to do

    def hold(self, instances: Sequence[Instance], timeout_s: float) -> bool:
        """Stops `instances` at a batch boundary; false (and nothing is held) when they reach none in time."""
        self.begin_hold(instances)
        with self.lock:
            quiet = self._wait_quiet(lambda: not any(i.schedule.running for i in instances), timeout_s)
        if not quiet:
            self.release(instances)
        return quiet

    def begin_hold(self, instances: Sequence[Instance]) -> None:
        """Begins to hold the instances, without waiting for the turns under way: see `hold` and `at_rest`."""
        with self.lock:
            for instance in instances:
                self.backpressure.hold(instance.schedule.number)

    def at_rest(self, instances: Sequence[Instance]) -> bool:
        """True if none of `instances` is running."""
        with self.lock:
            return not any(instance.schedule.running for instance in instances)

    def release(self, instances: Sequence[Instance]) -> None:
        """Lets held instances go on."""
        with self.lock:
            now = self._clock.monotonic()
            for instance in instances:
                self.backpressure.let_go(instance.schedule.number, now)
            self._work.notify_all()

    def wait_empty(self, instances: Sequence[Instance], timeout_s: float) -> bool:
        """Waits until `instances` have nothing left to do; false when time ran out."""
        with self.lock:
            return self._wait_quiet(lambda: all(instance.idle for instance in instances), timeout_s)

    def _wait_quiet(self, condition: Callable[[], bool], timeout_s: float) -> bool:
        self._watching += 1
        try:
            return self._quiet.wait_for(condition, timeout_s)
        finally:
            self._watching -= 1

    # -- the policy and full queues

    def profile(self) -> None:
        """Tells the policy what rows have cost and given since the last call, and lets queues shed that hang; another
        worker begins if all hang. To be called every second or so."""
        with self.lock:
            self.backpressure.profile()
            if (freed := self.backpressure.look(now := self._clock.monotonic())) and self._asleep:
                self._work.notify(freed)
            if self.roles.since is None and not self._stopping:  # a thread that is lent looks by itself
                self._add_worker(now, self._look_s)

    def weigh(self, instances: Sequence[Instance], weight: float) -> None:
        """Gives each of the pool's `instances` this weight (1 at first): while the workers cannot keep up, the time of
        their turns is to that of others as the weights are. A copy of an operator has a weight of its own.

        Raises ValueError for a weight that is none, `EdgertError` where the pool has no weights."""
        with self.lock:
            self.backpressure.weigh(instances, weight)
            self._work.notify_all()

    def mark_full(self, number: int) -> None:
        """Makes the feeders of instance `number`, which runs in another process, wait as if its queue were over its
        budget here."""
        with self.lock:
            self.backpressure.mark_full(number)

    def mark_room(self, number: int) -> None:
        """Ends `mark_full` for instance `number`."""
        with self.lock:
            self._free_feeders(number)

    def _free_feeders(self, number: int) -> None:
        """Frees the instances that wait for room in this queue, now within its budget."""
        freed = self.backpressure.free_feeders(number, self._clock.monotonic())
        if freed and self._asleep:
            self._work.notify(freed)
