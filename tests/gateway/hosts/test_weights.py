"""Weights of operators: they reach the pools of this process and of slots, and stay until the flow is removed."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator

import pytest

from edgert.core.checkpoint.position import Position
from edgert.core.clock import VirtualClock
from edgert.core.errors import EdgertError
from edgert.flow.document import from_plain
from edgert.operators.registry import REGISTRY
from edgert.runtime.checkpoint.progress import Progress
from edgert.runtime.flow_run import FlowRun
from edgert.runtime.pool.pool import Pool
from edgert.scheduling.candidates import Candidates
from gateway.hosts.in_process import InProcess
from gateway.hosts.weights import Weights
from tests.gateway.slots_walk import SPLIT, Walk
from tests.runtime.worlds import CHAINED
from tests.slots_here import InThisProcess
from tests.waiting import in_loop


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    yield
    InThisProcess.close_all()


def a_run(fusion: str = "none", name: str = "f") -> FlowRun:
    flow = from_plain({**CHAINED, "name": name}, REGISTRY)
    return FlowRun(flow, REGISTRY, 1, 1, Progress(Position()), fusion)  # type: ignore[arg-type]


def in_pool(pool: Pool, run: FlowRun) -> dict[str, float]:
    """Weights that the pool's policy has of a flow's instances; without those of 1."""
    policy = pool.policy
    assert isinstance(policy, Candidates)
    weights = policy._shares.weights if policy._shares else {}
    return {i.name: weights[i.schedule.number] for i in run.all if weights.get(i.schedule.number, 1.0) != 1.0}


def test_a_weight_stays_with_an_operator_through_versions_and_plans() -> None:
    host = InProcess(Pool(VirtualClock()), VirtualClock())
    first, other = a_run(), a_run(name="g")
    host.begin(first)
    host.begin(other)
    host.weigh("f", {"in": 3.0, "out": 0.5})
    assert in_pool(host.pool, first) == {"in": 3.0, "out": 0.5}
    assert in_pool(host.pool, other) == {}
    second = a_run()
    host.begin(second)
    host.weigh("f", {"in": 4})
    assert in_pool(host.pool, first) == in_pool(host.pool, second) == {"in": 4.0, "out": 0.5}, "while both run"
    host.remove(first)
    third = a_run()
    host.successor(second, third, (), b"")()
    assert in_pool(host.pool, third) == {"in": 4.0, "out": 0.5}
    host.weigh("f", {"in": 1.0, "out": 1.0})
    assert in_pool(host.pool, third) == {}
    host.weigh("f", {"in": 2.0})
    host.weights.forget("f")
    host.remove(third)
    fourth = a_run()
    host.begin(fourth)
    assert in_pool(host.pool, fourth) == {}, "deployed again, it is another flow"


def test_a_fused_instance_has_the_greatest_weight_of_its_operators() -> None:
    run = a_run("full")
    weights = Weights()
    operators = run.all[0].operators
    assert len(operators) > 2
    assert weights.put_untrusted("f", {operators[0]: 0.5}, [run]) == [run]
    assert weights.of(run) == {run.all[0].name: 0.5}
    weights.put_untrusted("f", {operators[1]: 0.25, operators[2]: 0.75}, [run])
    assert weights.of(run) == {run.all[0].name: 0.75}


def test_what_is_wrong_is_refused_with_all_that_is_and_changes_nothing() -> None:
    run = a_run()
    weights = Weights()
    with pytest.raises(EdgertError, match=r"^expected a running flow, one of f, got 'x'$"):
        weights.put_untrusted("x", {"in": 2.0}, [run])
    with pytest.raises(EdgertError) as refused:
        weights.put_untrusted("f", {"in": 2.0, "nobody": 1.0, "out": "much"}, [run])
    assert "operator: expected one of " in str(refused.value)
    assert "got 'nobody'" in str(refused.value)
    assert "weight of 'out': expected a weight from 0.001 to 1000, got 'much'" in str(refused.value)
    assert weights.of(run) == {}


@in_loop
async def test_weights_reach_the_slots_and_come_back_after_a_death() -> None:
    walk = Walk(random.Random(4), SPLIT, "even", 2, "none")
    walk.slots.begin(walk.run)
    for process in walk.processes:
        process.start()
    walk.slots.weigh("f", {"in": 5.0, "minute#1": 2.0})

    def weights() -> dict[str, float]:
        found: dict[str, float] = {}
        for process in walk.processes:
            process.step()
            assert process.slot is not None
            for run in process.slot.runs.values():
                found |= {n: w for n, w in in_pool(process.slot.pool, run.flow_run).items() if n in run.mine}
        return found

    copies = {name for name in walk.run.instances if name.partition("#")[0] == "in"}
    assert len(copies) == 2
    wanted = dict.fromkeys(copies, 5.0) | {"minute#1": 2.0}
    assert walk.slots.weights.of(walk.run) == wanted
    for _ in range(20):
        if weights() == wanted:
            break
    assert weights() == wanted
    walk.processes[0].die()
    await asyncio.sleep(0)
    walk.processes[0].start()
    for _ in range(50):
        for process in walk.processes:
            process.listen()
        await asyncio.sleep(0)
        weights()
    assert weights() == wanted
