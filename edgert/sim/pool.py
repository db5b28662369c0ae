"""A pool on a virtual clock: the product's own policies and consumptions over operators that only cost time.

Discrete events: rows are read, a turn ends. As in the real pool a worker takes what the consumption says
(but not more rows than cost 10 ms, by their mean), is away for as long as these rows cost, hands on what came of them,
and asks the policy again. Workers compute side by side.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush, heapreplace, merge
from itertools import cycle
from typing import Final

from edgert.scheduling.consumption import Consumption, most_rows
from edgert.scheduling.policies import Policy
from edgert.scheduling.profile import Profile

Draw = Callable[[], float]
"""Numbers from 0 to below 1."""
COLD_AFTER_S: Final = 0.003
"""An instance without a turn for so long finds nothing of its own in the caches."""
READ: Final = -1
"""In place of an instance: what is read goes to whatever sources it is for."""


def poisson(rate: float, draw: Draw) -> Callable[[], float]:
    """Seconds from one arrival to the next when arrivals know nothing of each other."""
    return lambda: -math.log(1.0 - draw()) / rate


def regular(rate: float) -> Callable[[], float]:
    """Seconds from one arrival to the next, always the same."""
    return lambda: 1.0 / rate


def constant(cost_s: float) -> float:
    """Every row costs the same."""
    return cost_s


def exponential(draw: Draw) -> Callable[[float], float]:
    """Costs that are exponentially distributed about their mean."""
    return lambda cost_s: -math.log(1.0 - draw()) * cost_s


@dataclass(slots=True)
class SeenInstance:
    """Work of one instance in the measured span. Times in seconds."""

    rows: int = 0
    turns: int = 0
    waited_s: float = 0.0
    """Σ over rows, from the queue's end to the beginning of their turn (T_Q + T_S)."""
    computing_s: float = 0.0
    """Σ over rows of their cost (T_C)."""
    busy_s: float = 0.0
    """Time in turns."""
    empty_s: float = 0.0
    longest: int = 0
    """Greatest queue length, rows."""
    area: float = 0.0
    """∫ queue length dt."""

    def utilisation(self, span_s: float) -> float:
        """ρ_w = 1 - T_emptyQ / T_w (EdgeWise, equation 11)."""
        return 1.0 - self.empty_s / span_s if span_s > 0 else 0.0


@dataclass(slots=True)
class Outcome:
    """Figures of one simulated run, without its warm-up."""

    span_s: float
    entered: int
    left: int
    """Rows that reached a sink."""
    latencies_s: list[float]
    """Latency of each row that reached a sink, from the arrival of the row it was made from; sorted."""
    instances: dict[int, SeenInstance]
    waiting: int
    """Rows in queues at the end, and those that have come and were not read yet."""
    ages_s: list[tuple[float, float]]
    """(age, rows that it will become) of each row that waits or is worked on at the end; sorted."""

    def latency_s(self, part: float) -> tuple[float, bool]:
        """The latency that `part` (0 to 1) of the rows do not exceed, and whether it is that; if not, so many have not
        come out, and it is at least so long: those that wait are as late as they are at the end. Or rows that a policy
        never lets through would make it look quick. NaN where there are none."""
        total = len(self.latencies_s) + sum(weight for _, weight in self.ages_s)
        found, seen = math.nan, 0.0
        for late_s, weight in merge(((late_s, 1.0) for late_s in self.latencies_s), self.ages_s):
            if total and seen <= part * total:
                found = late_s
            seen += weight
        return found, len(self.latencies_s) > part * total

    def balance(self) -> float:
        """Coefficient of variation of the utilisations: 0 when all are equally loaded."""
        values = [seen.utilisation(self.span_s) for seen in self.instances.values()]
        mean = sum(values) / len(values)
        return math.sqrt(sum((v - mean) ** 2 for v in values) / len(values)) / mean if mean else 0.0


@dataclass(slots=True)
class _Way:
    """A way by which rows leave an instance."""

    targets: Sequence[int]
    """Copies of the instance that it leads to; none: out of the flow."""
    gives: float
    """Rows that take it per row taken."""
    next: Iterator[int]
    """Index of the copy that gets the next row: one after the other."""
    owed: float = 0.0
    """Fractions of rows that are promised and not given out yet."""


@dataclass(slots=True)
class _Instance:
    profile: Profile
    ways: Sequence[_Way]
    turn_s: float
    cold_s: float
    queue: deque[tuple[float, float]] = field(default_factory=deque)
    """(arrival of the row that it came of, time at which it was put here)"""
    running: bool = False
    ended: float = -math.inf
    """Its last turn."""
    began: float = 0.0
    """The turn under way, or the last one."""
    since: float = 0.0
    """Time of the last change of the queue, or of `running`."""
    seen: SeenInstance = field(default_factory=SeenInstance)


class Simulation:
    """One flow, one policy, one consumption, K workers."""

    def __init__(
        self,
        downstream: Mapping[int, Sequence[int]],
        profiles: Mapping[int, Profile],
        policy: Policy,
        consumption: Consumption,
        *,
        workers: int = 1,
        turn_s: Mapping[int, float] | None = None,
        cold_s: Mapping[int, float] | None = None,
        cost: Callable[[float], float] = constant,
        copies: Sequence[Sequence[int]] = (),
        gives: Mapping[tuple[int, int], float] | None = None,
        ends: Mapping[int, float] | None = None,
    ) -> None:
        """`turn_s`: what a turn costs beside its rows. `cold_s`: what it costs more where the instance has had none
        for `COLD_AFTER_S` (so much less as that time is shorter): its caches are cold. `cost`: mean cost of a row →
        its cost. `downstream` names every instance and has no cycle. `copies`: instances that are copies of one, so
        that a row goes to one of them (of those that the giving instance feeds); copies of a source share what enters
        it. `gives`: rows from one instance to another (to all its copies together) per row taken, where that is not
        the selectivity. `ends`: rows that reach a sink in the instance per row taken, where that is not one at the
        ends of the graph and none before."""
        turn_s, cold_s, gives, ends = turn_s or {}, cold_s or {}, gives or {}, ends or {}
        set_of = {k: number for number, alike in enumerate(copies) for k in alike}

        def sets(instances: Sequence[int]) -> list[list[int]]:
            found: dict[object, list[int]] = {}
            for k in instances:
                found.setdefault(set_of.get(k, ("single", k)), []).append(k)
            return list(found.values())

        def ways(k: int) -> Iterator[_Way]:
            for of in sets(downstream[k]):
                yield _Way(of, gives.get((k, of[0]), profiles[k].selectivity), cycle(of))
            if out := ends.get(k, 0.0 if downstream[k] else 1.0):
                yield _Way((), out, iter(()))

        self._policy, self._consumption = policy, consumption
        self._cost, self._free = cost, workers
        self._instances = {
            k: _Instance(profiles[k], list(ways(k)), turn_s.get(k, 0.0), cold_s.get(k, 0.0)) for k in downstream
        }
        fed = {j for targets in downstream.values() for j in targets}
        self._sources = list(map(cycle, sets([k for k in downstream if k not in fed])))
        self._events: list[tuple[float, int, int, list[tuple[float, float]] | None]] = []
        """(time, order, instance, rows of the turn that ends), or None for these where it is a read"""
        self._order = 0
        self._measured = False
        self._latencies: list[float] = []
        self._entered = 0
        for k in downstream:
            policy.add(k)
        policy.connect(downstream)
        policy.profile(profiles)

    def run(self, gap: Callable[[], float], span_s: float, warm_up_s: float = 0.0, pause_s: float = 0.0) -> Outcome:
        """Rows come to every source, `gap()` seconds after each other; measured for `span_s` after `warm_up_s`. After
        each read nothing is read for `pause_s`: what came meanwhile enters together, by the next."""
        coming = [(gap(), number) for number in range(len(self._sources))]
        heapify(coming)
        self._push(coming[0][0], READ, None)
        ends = warm_up_s + span_s
        self._measured = warm_up_s == 0.0
        while self._events and self._events[0][0] <= ends:
            now, _, k, turn = heappop(self._events)
            if not self._measured and now >= warm_up_s:
                self._begin(warm_up_s)
            if turn is None:
                self._read(coming, gap, now)
                self._push(max(now + pause_s, coming[0][0]), READ, None)
            else:
                self._end_turn(k, turn, now)
            self._dispatch(now)
        if not self._measured:  # nothing has happened since
            self._begin(warm_up_s)
        self._read(coming, gap, ends)  # or what came after the last read would be forgotten
        return self._outcome(ends, span_s)

    def _read(self, coming: list[tuple[float, int]], gap: Callable[[], float], now: float) -> None:
        """Rows that have come by now. `coming`: the next of each source and its number, a heap."""
        while (arrival := coming[0][0]) <= now:
            number = coming[0][1]
            self._entered += self._measured
            self._put(next(self._sources[number]), arrival, now)
            heapreplace(coming, (arrival + gap(), number))

    def _push(self, at: float, instance: int, turn: list[tuple[float, float]] | None) -> None:
        self._order += 1
        heappush(self._events, (at, self._order, instance, turn))

    def _begin(self, now: float) -> None:
        self._measured = True
        for instance in self._instances.values():
            instance.seen, instance.since = SeenInstance(), now

    def _put(self, k: int, origin: float, now: float) -> None:
        instance = self._instances[k]
        self._note(instance, now)
        instance.queue.append((origin, now))
        instance.seen.longest = max(instance.seen.longest, len(instance.queue))
        self._policy.rows_added(k, 1)

    def _note(self, instance: _Instance, now: float) -> None:
        """The queue changes now: what it was until now is added up."""
        passed, length = now - instance.since, len(instance.queue)
        instance.since = now
        instance.seen.area += passed * length
        if instance.running:
            instance.seen.busy_s += passed
        elif not length:
            instance.seen.empty_s += passed

    def _dispatch(self, now: float) -> None:
        while self._free and (k := self._policy.choose(now)) is not None:
            instance = self._instances[k]
            self._note(instance, now)
            count = min(self._consumption(len(instance.queue)), most_rows(instance.profile.cost_s))
            rows = [instance.queue.popleft() for _ in range(count)]
            instance.running, instance.began = True, now
            self._free -= 1
            self._policy.busy(k)
            self._policy.rows_taken(k, len(rows))
            computing_s = sum(self._cost(instance.profile.cost_s) for _ in rows)
            seen = instance.seen
            seen.rows += len(rows)
            seen.turns += 1
            seen.waited_s += sum(now - put for _, put in rows)
            seen.computing_s += computing_s
            beside_s = instance.turn_s + instance.cold_s * min(1.0, (now - instance.ended) / COLD_AFTER_S)
            self._push(now + beside_s + computing_s, k, rows)

    def _end_turn(self, k: int, rows: list[tuple[float, float]], now: float) -> None:
        instance = self._instances[k]
        self._note(instance, now)
        instance.running = False
        instance.ended = now
        self._free += 1
        self._policy.ran(k, now - instance.began)
        self._policy.free(k)
        for origin, _ in rows:
            for way in instance.ways:
                way.owed += way.gives
                while way.owed >= 1.0:
                    way.owed -= 1.0
                    if way.targets:
                        self._put(next(way.next), origin, now)
                    elif self._measured:
                        self._latencies.append(now - origin)

    def _outcome(self, ends: float, span_s: float) -> Outcome:
        for instance in self._instances.values():
            self._note(instance, ends)
        waiting = sum(len(i.queue) for i in self._instances.values())
        seen = {k: i.seen for k, i in self._instances.items()}
        late = sorted(self._latencies)
        return Outcome(span_s, self._entered, len(late), late, seen, waiting, sorted(self._ages(ends)))

    def _ages(self, ends: float) -> Iterator[tuple[float, float]]:
        """Yields the items of `Outcome.ages_s`, unsorted."""
        gives: dict[int, float] = {}

        def come_out(k: int) -> float:
            """Rows at sinks for each that `k` takes."""
            if k not in gives:
                gives[k] = sum(
                    way.gives * (sum(map(come_out, way.targets)) / len(way.targets) if way.targets else 1.0)
                    for way in self._instances[k].ways
                )
            return gives[k]

        turns = ((k, turn) for _, _, k, turn in self._events if turn)
        for k, rows in (*((k, i.queue) for k, i in self._instances.items()), *turns):
            yield from ((ends - origin, come_out(k)) for origin, _ in rows)
