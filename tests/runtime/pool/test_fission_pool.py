"""A flow in copies under a pool, on a virtual clock: whatever the policy, the consumption and the number of workers, it
says what one copy says, in the same order for each key."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence

from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from edgert.core.batch import RawBatch
from edgert.core.clock import VirtualClock
from edgert.flow.physical import Fusion
from edgert.operators.base.logic import PlainMessage
from edgert.runtime.instance.instance import Instance
from edgert.runtime.pool.pool import Pool
from edgert.runtime.pool.thread_roles import FAST_TURNS
from edgert.scheduling.consumption import CONSUMPTIONS
from edgert.scheduling.policies import POLICIES
from tests.examples import examples
from tests.named import named
from tests.runtime.fission_world import DEVICES, MESSAGES, WALL, Way, by_device, documents, keeps_order, totals
from tests.runtime.pool.virtual import VirtualWorkers


class Pooled:
    """The copies of a flow, and their pool."""

    def __init__(self, way: Way, seed: int, policy: str, workers: int) -> None:
        draw = self.draw = random.Random(seed)
        self.way, self.clock = way, VirtualClock(wall=WALL)
        consumption = CONSUMPTIONS[draw.choice(sorted(CONSUMPTIONS))](draw.choice([1, 4, 20]))
        self.pool = Pool(self.clock, policy=POLICIES[policy](draw.random), consumption=consumption, send=self._sent)
        self.pool.add(way.run.all)
        for instance in way.run.all:
            if draw.random() < 0.5:
                instance.schedule.fast_turns = FAST_TURNS  # a lent thread may take it
        self.workers = VirtualWorkers(self.pool, self.clock, workers, self._cost)

    def _sent(self, instance: Instance, messages: Sequence[PlainMessage]) -> None:
        self.way.sent += named(messages)

    def _cost(self, instance: Instance, rows: int) -> float:
        return self.draw.choice([0.0, 0.0001, 0.001, 0.02])

    def feed(self, messages: Sequence[tuple[str, bytes]], moment: float) -> None:
        """At `moment`, when some of what came before may still wait; without messages a tick."""
        self.go_on(moment)
        batch = RawBatch([t for t, _ in messages], [p for _, p in messages], moment, WALL + moment, 100 * len(messages))
        entries: list[tuple[Instance, int, RawBatch]] = []
        for reader, (_, copies) in zip(self.way.readers, self.way.run.sources(), strict=True):
            parts = reader.divide(batch) if messages and reader.copies else [(copy, batch) for copy in copies]
            entries += [(instance, 0, part) for instance, part in parts]
        lends = self.draw.random() < 0.4
        self.pool.put(entries, wake=not lends)
        if lends:
            self.pool.lend(1e-9)
        if self.draw.random() < 0.2:
            held = [self.draw.choice(self.way.run.all)]
            self.pool.begin_hold(held)
            self.workers.at(moment + 0.05, lambda: self.pool.release(held))
        self.workers.dispatch()

    def go_on(self, moment: float) -> None:
        self.workers.run(moment)
        self.clock.advance(max(0.0, moment - self.clock.monotonic()))


# Shrinking is slow.
@settings(max_examples=examples(40, 100), deadline=None, phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(
    documents(),
    MESSAGES,
    st.integers(0, 2**32),
    st.sampled_from(sorted(POLICIES)),
    st.integers(1, 4),
    st.sampled_from(["full", "chains", "none"]),
)
def test_copies_under_any_pool_say_what_one_says(
    plain: dict[str, object],
    stream: list[list[tuple[str, str, int]]],
    seed: int,
    policy: str,
    workers: int,
    fusion: Fusion,
) -> None:
    one = Way(plain, random.Random(seed), fusion, fission=False)
    many = Way(plain, random.Random(seed), fusion)
    pooled = Pooled(many, seed, policy, workers)
    for number, messages in enumerate(stream):
        moment = 0.03 * number
        payloads = [
            (f"{room}/{source}/t", json.dumps({"time": WALL + moment + 1e-4 * k, "v": v}).encode())
            for k, (source, room, v) in enumerate(messages)
        ]
        one.feed(payloads, moment)
        one.work(moment)
        pooled.feed(payloads, moment)
    pooled.go_on(50.0)
    assert not any(instance.queue.rows for instance in many.run.all)
    last = [(f"{room}/{source}/t", json.dumps({"time": WALL + 50.0, "v": 1}).encode()) for room, source in DEVICES]
    one.feed(last, 60.0)
    one.work(60.0)
    pooled.feed(last, 60.0)
    for moment in (61.0, 62.0, 200.0, 201.0, 202.0):  # from 200 on all devices are silent, and event time goes on
        one.tick(moment)
        one.work(moment)
        pooled.feed([], moment)
    pooled.go_on(210.0)
    assert many.watermarks() == one.watermarks()
    assert pooled.pool.hold(many.run.all, 0.0)
    assert totals(many.end()) == totals(one.end())
    if keeps_order(plain):
        assert many.published() == one.published()
        assert many.drops == one.drops
    elif plain["operators"].get("follow", {}).get("type") != "count_window":  # type: ignore[attr-defined]
        assert by_device(many.sent) == by_device(one.sent)
        assert many.drops == one.drops
