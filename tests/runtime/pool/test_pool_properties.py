"""What the pool keeps over random graphs, policies, consumptions and numbers of workers, on a virtual clock: rows are
delivered in order, queued or counted; queues stay within their budgets; who blocks stops nobody but those before it."""

from __future__ import annotations

import logging
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, cast

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from edgert.core.batch import Batch, RawBatch, Row
from edgert.core.clock import VirtualClock
from edgert.flow.options.on_error import OnError
from edgert.flow.plan import PhysicalInstance
from edgert.operators.base.logic import Emission, Logic, Now
from edgert.operators.fusion.region import Region, StageEdge
from edgert.runtime.instance.build import Stage
from edgert.runtime.instance.edges import Target
from edgert.runtime.instance.inner_queue import InnerQueue
from edgert.runtime.instance.instance import Instance
from edgert.runtime.instance.queue import Overload
from edgert.runtime.instance.report import drops_of
from edgert.runtime.instance.source_queue import SourceQueue
from edgert.runtime.pool.pool import Pool
from edgert.runtime.pool.thread_roles import FAST_TURNS
from edgert.scheduling.consumption import CONSUMPTIONS
from edgert.scheduling.policies import POLICIES
from tests.examples import examples
from tests.runtime.pool.virtual import VirtualWorkers, could_run

ROW_BYTES = 10
MOST_ROWS = 9


@pytest.fixture(autouse=True, scope="module")
def quiet() -> Iterator[None]:
    """Rows fail here by the thousand."""
    instance_log = logging.getLogger("edgert.runtime.instance.instance")
    before, instance_log.disabled = instance_log.disabled, True
    yield
    instance_log.disabled = before


class Relay(Logic):
    """Gives each row on `copies` times. It raises on rows in `bad` as often as that says."""

    __module__ = "edgert.tests"  # as ours it says itself what its batches take
    waits = False  # or a lent thread would leave it to the workers

    def __init__(self, copies: int, bad: dict[int, int]) -> None:
        super().__init__()
        self.copies, self.bad = copies, Counter(bad)
        self.seen: list[tuple[int, int]] = []

    def process(self, batch: Any, source: int, now: Now) -> Sequence[Emission]:
        raw = isinstance(batch, RawBatch)
        came: list[Row] = batch.rows if not raw else [{"time": 0.0, "source": "", "n": int(n)} for n in batch.payloads]
        for row in came:
            if self.bad[row["n"]] > 0:
                if len(came) == 1:
                    self.bad[row["n"]] -= 1
                raise ValueError(row["n"])
        self.seen += [(source, row["n"]) for row in came]
        rows = [row for row in came for _ in range(self.copies)]
        return (Emission(0, Batch(rows, batch.arrival, size=ROW_BYTES * len(rows))),) if rows else ()

    def given(self) -> list[int]:
        return [n for _, n in self.seen for _ in range(self.copies)]


def relays(instance: Instance) -> Sequence[Relay]:
    """The only one; or those of a region: each after the first takes what the first gives, the last but one gives to
    what is behind the region, and of three the last gives to nobody."""
    return cast(Sequence[Relay], instance.region.stages if instance.region else (instance.logic,))


def giver(instance: Instance) -> Relay:
    """Whose rows leave the instance."""
    return relays(instance)[:2][-1]


def edges(before: Instance, instance: Instance) -> list[Target[Instance]]:
    """Those from one to the other."""
    return [t for t in before.edges.outputs.get(0, ()) if isinstance(t, Target) and t.instance is instance]


class World:
    """A random graph with its pool, and what has been put into it."""

    def __init__(self, seed: int, workers: int, policy: str, overload: Overload) -> None:
        """`workers`: on a virtual clock."""
        draw = self.draw = random.Random(seed)
        self.clock = VirtualClock()
        consumption = CONSUMPTIONS[draw.choice(sorted(CONSUMPTIONS))](draw.choice([1, 4, 20]))
        self.pool = Pool(self.clock, policy=POLICIES[policy](draw.random), consumption=consumption)
        self.instances: list[Instance] = []
        self.cost_s: dict[str, float] = {}
        self.blocked: set[str] = set()
        for number in range(draw.randint(2, 8)):
            self._add(number, overload)
        self.sources = [i for i in self.instances if not self.feeders(i)]
        for source in self.sources:
            source.queue = SourceQueue(source.queue.budget_bytes, overload)
        for instance in self.instances:
            instance.queue.overload = overload
            behind = list(instance.edges.reaches())
            if len(behind) > 1 or len(relays(instance)) > 2:
                for fed in behind:
                    fed.edges.beside = True
        self.pool.add(self.instances)
        self.put: dict[str, list[int]] = {i.name: [] for i in self.sources}
        self.workers = VirtualWorkers(self.pool, self.clock, workers, self._cost)
        self.workers.after_each = self.check

    def _add(self, number: int, overload: Overload) -> None:
        draw = self.draw
        parts = [self._relay() for _ in range(draw.choice([1, 1, 2, 3]))]
        edges = [StageEdge(0, 0, part, 0) for part in range(1, len(parts))]
        feeders = [before for before in self.instances if draw.random() < 0.35]
        logic = Region(parts, edges, [(1, 0)], len(feeders)) if len(parts) > 1 else parts[0]
        made = Instance(f"i{number}", (f"i{number}",), "stateless", logic, InnerQueue(draw.choice([40, 100, 1_000])))
        if draw.random() < 0.3:
            made.schedule.fast_turns = FAST_TURNS
        for boundary in made.boundaries:
            boundary.policy = OnError(draw.choice(["retry", "drop"]), None, 3, 0.05)
        self.cost_s[made.name] = draw.choice([0.0, 0.001, 0.004])
        for at, before in enumerate(feeders):
            before.edges.outputs.setdefault(0, []).append(Target(made, at))
        self.instances.append(made)

    def _relay(self) -> Relay:
        draw = self.draw
        bad = {n: draw.choice([1, 2, 9]) for n in range(300) if draw.random() < 0.03} if draw.random() < 0.4 else {}
        return Relay(draw.choice([0, 1, 1, 1, 2]), bad)

    def feeders(self, instance: Instance) -> list[Instance]:
        return [before for before in self.instances for _ in edges(before, instance)]

    def _cost(self, instance: Instance, rows: int) -> float:
        if instance.name in self.blocked:
            self.blocked.discard(instance.name)
            return self.draw.choice([3.0, 30.0])
        return 0.0005 + rows * self.cost_s[instance.name]

    def arrive(self, source: Instance, rows: int) -> None:
        numbers = range(len(self.put[source.name]), len(self.put[source.name]) + rows)
        self.put[source.name] += numbers
        batch = RawBatch([""] * rows, [str(n).encode() for n in numbers], 0.0, 0.0, ROW_BYTES * rows)
        lends = self.draw.random() < 0.4
        self.pool.put([(source, 0, batch)], wake=not lends)
        if lends:
            self.pool.lend(1e-9)

    def hold_or_release(self, instance: Instance) -> None:
        if instance.schedule.number in self.pool.backpressure.held:
            self.pool.release([instance])
        else:
            self.pool.hold([instance], 0.0)

    def hold_for_a_while(self, instance: Instance) -> None:
        """Now and then, while its turn is under way."""
        if self.draw.random() < 0.02:
            self.pool.begin_hold([instance])
            self.workers.at(self.clock.monotonic() + 0.02, lambda: self.pool.release([instance]))

    def check(self) -> None:
        """After each event: nobody idles who could work, and no queue is far over its budget."""
        if self.workers.free:
            assert not [i.name for i in could_run(self.pool, self.instances)]
        for instance in self.instances:
            given = [self.workers.given[before.name] for before in self.feeders(instance)]
            back = 0
            if any(
                boundary.retries for boundary in instance.boundaries
            ):  # a region may hold what has become more in it already
                back = self.workers.taken[instance.name] * (1 if len(instance.boundaries) == 1 else 6)
            room = instance.queue.budget_bytes if given else max(instance.queue.budget_bytes, ROW_BYTES * MOST_ROWS)
            assert instance.queue.size <= room + sum(given) + back, instance.name

    def settle(self) -> None:
        """Everything held is let go; what waits is worked off."""
        self.workers.at(100.0, lambda: self.pool.release(self.instances))
        self.workers.run()

    def check_ledger(self) -> None:
        """Every row that came is seen, or counted as the status shows it; and in the order in which it came."""
        for instance in self.instances:
            assert not instance.queue.rows, f"{instance.name} waits for ever"
            parts = relays(instance)
            came = {edges(before, instance)[0].source: giver(before).given() for before in self.feeders(instance)}
            if instance in self.sources:
                came[0] = self.put[instance.name]
            check_part(instance, 0, came)
            for part in range(1, len(parts)):
                check_part(instance, part, {0: parts[0].given()})


def check_part(instance: Instance, part: int, came: dict[int, list[int]]) -> None:
    name, relay = f"{instance.name}.{part}", relays(instance)[part]
    drops = drops_of(Stage(cast(PhysicalInstance, None), instance, relay, part))
    seen = {by: [n for s, n in relay.seen if s == by] for by in came}
    lost = sum(len(came[by]) - len(seen[by]) for by in came)
    assert lost == sum(drops.values()), name
    for by, numbers in came.items():
        assert is_subsequence(seen[by], numbers), f"{name}: rows of one key overtook each other"


def is_subsequence(part: Sequence[int], whole: Sequence[int]) -> bool:
    rest = iter(whole)
    return all(n in rest for n in part)


@settings(max_examples=examples(50, 150), deadline=None)
@given(
    st.integers(0, 2**32 - 1),
    st.integers(1, 4),
    st.sampled_from(sorted(POLICIES)),
    st.sampled_from(["shed-oldest", "shed-newest", "sample"]),
)
@example(583201, 2, "congestion-aware-published", "sample")  # a region sheds while its last part tries rows again
def test_rows_are_delivered_in_order_queued_or_counted_within_the_budgets(
    seed: int, workers: int, policy: str, overload: Overload
) -> None:
    overload_with_faults(World(seed, workers, policy, overload))


def overload_with_faults(world: World) -> None:
    """At about three times what the pool bears, or a third, with operators that block, are held, and raise."""
    draw, events = world.draw, world.workers
    events.meanwhile = world.hold_for_a_while
    span_s = draw.choice([0.5, 5.0, 50.0])
    for _ in range(150):
        at, source = draw.uniform(0.0, span_s), draw.choice(world.sources)
        events.at(at, lambda s=source: world.arrive(s, draw.randint(1, MOST_ROWS)))  # type: ignore[misc]
    for _ in range(draw.randint(0, 12)):
        at, one = draw.uniform(0.0, 1.0), draw.choice(world.instances)
        events.at(at, lambda i=one: world.hold_or_release(i))  # type: ignore[misc]
    for _ in range(draw.randint(0, 3)):
        at, one = draw.uniform(0.0, 0.3), draw.choice(world.instances)
        events.at(at, lambda i=one: world.blocked.add(i.name))  # type: ignore[misc]
    for second in range(60):
        events.at(second, world.pool.profile)
    world.settle()
    world.check_ledger()


@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_in_it_lent_threads_take_rows_at_once_and_go_on_and_inner_queues_shed(
    policy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the test above is to find faults in does run there."""
    said: Counter[str] = Counter()

    def noted(name: str) -> None:
        real = getattr(Pool, name)

        def note(pool: Pool, *arguments: Any) -> Any:
            answer = real(pool, *arguments)
            said[name] += bool(answer)
            return answer

        monkeypatch.setattr(Pool, name, note)

    noted("_begin")
    noted("_runs_again")
    worlds = [World(seed, 1 + seed % 4, policy, "shed-oldest") for seed in range(12)]
    for world in worlds:
        overload_with_faults(world)
    assert said["_begin"] > 5
    assert said["_runs_again"] > 5
    assert any(one.delivery.shed for world in worlds for one in world.instances if isinstance(one.queue, InnerQueue)), (
        "one that blocked for long"
    )


@pytest.mark.parametrize("policy", sorted(POLICIES))
@pytest.mark.parametrize("overload", ["shed-oldest", "shed-newest", "sample"])
def test_at_three_times_the_rate_that_is_borne_the_source_sheds_two_rows_of_three(
    policy: str, overload: Overload
) -> None:
    """A chain whose last operator bears 100 rows/s; 300 come for ten seconds."""
    world = World(0, 2, policy, overload)
    chain = [
        Instance(
            f"c{n}",
            (f"c{n}",),
            "stateless",
            Relay(1, {}),
            InnerQueue(200, overload) if n else SourceQueue(200, overload),
        )
        for n in range(4)
    ]
    for before, after in pairwise(chain):
        before.edges.outputs[0] = [Target(after, 0)]
    world.pool.add(chain)
    world.instances, world.sources, world.put = chain, chain[:1], {"c0": []}
    world.workers.cost_s = lambda instance, rows: 0.01 * rows if instance is chain[-1] else 0.0
    for n in range(3_000):
        world.workers.at(n / 300, lambda: world.arrive(chain[0], 1))
    world.settle()
    world.check_ledger()
    assert [one.delivery.shed for one in chain[1:]] == [0, 0, 0]
    assert len(giver(chain[-1]).seen) == pytest.approx(1_000, abs=4 * 20 + 3 * 20)


@settings(max_examples=examples(30, 60), deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from(sorted(POLICIES)))
def test_an_operator_that_blocks_for_ever_stops_no_other_flow(seed: int, policy: str) -> None:
    """Two flows, two workers; one operator of the first never returns. The other flow goes on all the same, and of the
    first what does not lead there (`World.check`); what does fills its queues, and its source sheds."""
    world = World(seed, 2, policy, "shed-oldest")
    blocking = world.draw.choice(world.instances)
    last = Instance("last", ("last",), "stateless", Relay(1, {}), InnerQueue(200))
    other = Instance("other", ("other",), "stateless", Relay(1, {}), SourceQueue(200, "shed-newest"))
    other.edges.outputs[0] = [Target(last, 0)]
    world.pool.add([other, last])
    world.workers.cost_s = lambda instance, rows: 1e6 if instance is blocking else 0.0001 * rows
    events = world.workers
    for step in range(200):
        for source in world.sources:
            events.at(step * 0.01, lambda s=source: world.arrive(s, 3))  # type: ignore[misc]
        batch = Batch([{"time": 0.0, "source": "a", "n": step}], 0.0, size=ROW_BYTES)
        events.at(step * 0.01, lambda b=batch: world.pool.put([(other, 0, b)]))  # type: ignore[misc]
    events.run(until=100.0)
    assert [n for _, n in giver(last).seen] == list(range(200))
    assert not other.delivery.shed
