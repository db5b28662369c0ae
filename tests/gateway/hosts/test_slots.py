"""Random walks of a daemon and its slots through input, turns, checkpoints, failed commits and deaths: what is shipped
is what one process ships. Real links and real slots, in this process and stepped by hand on a virtual clock; a slot
dies by losing its memory and its links."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from edgert.core.batch import RawBatch
from edgert.core.checkpoint.position import Position
from edgert.core.errors import MisfitError
from edgert.flow.document import from_plain
from edgert.links import frames
from edgert.operators.registry import REGISTRY
from edgert.runtime.checkpoint.packing import pack_state
from edgert.runtime.checkpoint.progress import Progress
from edgert.runtime.flow_run import FlowRun
from gateway.hosts.slot_process import QUIET_S
from gateway.hosts.slotted_flow import KEPT_BYTES
from tests.gateway.slots_walk import JOINED, MESSAGES, SPLIT, Walk, truth
from tests.runtime.worlds import CHAINED
from tests.waiting import in_loop


@pytest.mark.parametrize("seed", range(30))
def test_walks_through_deaths_and_failed_commits_ship_everything_once(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw = random.Random(seed)
    hasty = draw.random() < 0.3
    if draw.random() < 0.3:  # queues are over their budgets all the time, and little may be under way
        monkeypatch.setattr("edgert.runtime.instance.build.QUEUE_BYTES", 600)
        monkeypatch.setattr("edgert.runtime.slot.credit.UNDER_WAY_BYTES", 800)
    in_loop(walk_through)(draw, hasty)


async def walk_through(draw: random.Random, hasty: bool) -> None:
    walk = Walk(draw, draw.choice([CHAINED, JOINED, SPLIT]), draw.choice(["even", "locality"]), draw.choice([1, 2, 3]))
    walk.slots.deaths.most_deaths = 1_000
    if hasty:  # the daemon waits too short for some answers, which then come late
        walk.slots.checkpoints.hold_s, walk.slots.checkpoints.answer_s = 0.001, 0.0
    walk.slots.begin(walk.run)
    for process in walk.processes:
        process.start()
    while walk.fed < MESSAGES:
        kind = draw.random()
        if kind < 0.4:
            walk.feed()
        elif kind < 0.93:
            walk.work()
        elif kind < 0.95:
            await walk.checkpoint()
        elif kind < 0.96:
            await walk.place()
        elif kind < 0.97:
            await walk.spill()
        else:
            walk.die()
        await asyncio.sleep(0)  # what was lost is brought back
    hosted = walk.slots.hosted[walk.run]
    shipped = await walk.finish()
    assert shipped == truth(walk.fed)
    assert not hosted.drops
    for process in walk.processes:
        assert process.slot is not None
        for _ in range(100):
            process.link.flush()
            process.step()
        assert not process.slot.runs, "a slot keeps nothing of a flow that has ended"
        process.stop_now()


def test_a_flow_that_was_given_up_while_its_input_was_written_disturbs_no_commit() -> None:
    """What is raised after the commit would have the other flows' results written again."""
    walk = Walk(random.Random(1), CHAINED, "locality", 1)
    assert walk.slots.checkpoints.spill(walk.run, walk.feeding) == (Position(), {})
    walk.slots.checkpoints.spilled(walk.run)


@in_loop
async def test_input_without_acknowledgement_is_kept_up_to_a_bound_and_counted_beyond() -> None:
    walk = Walk(random.Random(1), CHAINED, "locality", 1)
    walk.slots.begin(walk.run)
    (process,) = walk.processes
    process.start()
    source = walk.run.stages["in"].instance
    size = KEPT_BYTES // 8
    for number in range(20):
        walk.slots.put([(source, 0, RawBatch(["x/a"], [b"{}"], 0.0, 1_000.0, size, owed=number == 0))])
    hosted = walk.slots.hosted[walk.run]
    assert hosted.kept_bytes <= KEPT_BYTES
    kept = [fed for fed in hosted.fed if fed.batch is not None]
    assert kept[0].batch is not None
    assert kept[0].batch.owed, "what an acknowledgement is owed for is always kept"
    assert len(kept) < 20
    process.die()
    await asyncio.sleep(0)
    assert hosted.drops == {(source, "lost with a slot"): 20 - len(kept)}
    assert walk.slots.figures.report(walk.run, "in").drops["lost with a slot"] == 20 - len(kept)


def test_a_slot_that_does_not_read_is_fed_only_what_is_owed() -> None:
    walk = Walk(random.Random(1), CHAINED, "locality", 1)
    walk.slots.begin(walk.run)
    source = walk.run.stages["in"].instance
    payload = b"x" * 1_000_000
    for _ in range(20):
        walk.slots.put([(source, 0, RawBatch(["x/a"], [payload], 0.0, 1_000.0, 1_000_100))])
    hosted = walk.slots.hosted[walk.run]
    assert 5 < hosted.drops[source, "a slot does not keep up"] < 15
    before = walk.processes[0].link.backlog_bytes
    walk.slots.put([(source, 0, RawBatch(["x/a"], [payload], 0.0, 1_000.0, 1_000_100, owed=True))])
    assert walk.processes[0].link.backlog_bytes > before


def test_what_a_slot_does_not_take_is_counted_at_the_source_that_it_was_for() -> None:
    operators = {
        "quiet": {"type": "mqtt_source", "topic": "a/{source}"},
        "there": {"type": "publish", "input": "quiet", "topic": "out/{source}"},
        "loud": {"type": "mqtt_source", "topic": "b/{source}", "slot": 1},
        "here": {"type": "publish", "input": "loud", "topic": "out/{source}", "slot": 1},
    }
    walk = Walk(random.Random(1), {"name": "f", "operators": operators}, "locality", 2, "full")
    walk.slots.begin(walk.run)
    batch = RawBatch(["b/a"], [b"x" * 1_000_000], 0.0, 1_000.0, 1_000_100)
    walk.slots.put([(walk.run.stages["loud"].instance, 0, batch)] * 20)
    drops = {name: walk.slots.figures.report(walk.run, name).drops for name in walk.run.stages}
    assert drops.pop("loud").keys() == {"a slot does not keep up"}
    assert not any(drops.values())


def test_a_checkpoint_that_is_too_large_for_a_slot_keeps_its_own_flow_from_starting_and_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else the slot would take the frame for a damaged stream, and die, each time that it comes."""
    walk = Walk(random.Random(1), CHAINED, "locality", 1)
    (process,) = walk.processes
    before = process.link.backlog_bytes
    monkeypatch.setattr(frames, "MAX_FRAME", 10_000)
    with pytest.raises(MisfitError, match="its checkpoint is too large for a slot: expected at most 10000 bytes"):
        walk.slots.begin(walk.run, [pack_state({"in": random.Random(1).randbytes(10_000)})])
    assert walk.slots.figures.slots()[0]["instances"] == 0
    assert process.link.backlog_bytes == before


def test_a_plan_that_a_slot_cannot_be_told_of_leaves_the_flow_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    walk = Walk(random.Random(1), CHAINED, "locality", 2)
    walk.slots.begin(walk.run)
    new = FlowRun(walk.run.flow, REGISTRY, 1, 1, walk.run.progress, walk.run.fusion)
    monkeypatch.setattr(frames, "MAX_FRAME", 10_000)
    with pytest.raises(MisfitError, match="its checkpoint is too large for a slot"):
        walk.slots.successor(walk.run, new, [pack_state({"in": random.Random(1).randbytes(10_000)})], b"")
    assert list(walk.slots.hosted) == [walk.run]
    assert walk.slots.figures.where(walk.run)


def test_models_go_with_a_flow_to_its_next_plan() -> None:
    walk = Walk(random.Random(1), CHAINED, "locality", 2)
    walk.slots.begin(walk.run)
    walk.slots.offer_model(walk.run, "more", {"version": 3})
    new = FlowRun(walk.run.flow, REGISTRY, 1, 1, walk.run.progress, walk.run.fusion)
    successor = walk.slots.successor(walk.run, new, [], b"")
    walk.slots.offer_model(walk.run, "more", {"version": 4})  # while the flow stands still
    sent: list[bytes] = []
    walk.slots.orders.to_all = lambda hosted, data: sent.append(data)  # type: ignore[method-assign]
    successor()
    number = walk.slots.hosted[new].number
    assert sent[-1] == frames.frame(frames.MODEL, number, "more", {"version": 4})
    assert list(walk.slots.hosted) == [new]


def test_deaths_and_input_that_was_not_kept_go_with_a_flow_to_its_next_plan(caplog: pytest.LogCaptureFixture) -> None:
    """Else another plan would forget that a flow kills its slots, and lose input without a word."""
    walk = Walk(random.Random(1), CHAINED, "locality", 2)
    walk.slots.begin(walk.run)
    source = walk.run.stages["in"].instance
    for _ in range(20):
        walk.slots.put([(source, 0, RawBatch(["x/a"], [b"{}"], 0.0, 1_000.0, KEPT_BYTES // 8))])
    before = walk.slots.hosted[walk.run]
    kept = sum(fed.batch is not None for fed in before.fed)
    before.deaths = 2
    new = FlowRun(walk.run.flow, REGISTRY, 1, 1, walk.run.progress, walk.run.fusion)
    walk.slots.successor(walk.run, new, [], b"")()
    after = walk.slots.hosted[new]
    assert 0 < kept < 20
    assert after.drops == {(new.stages["in"].instance, "change of plan, QoS 0"): 20 - kept}, "no slot has died"
    assert f"flow f: {20 - kept} messages of QoS 0 are lost" in caplog.text
    assert sum(fed.batch is not None for fed in after.fed) == kept
    assert after.deaths == 2


def test_instances_go_where_the_document_or_else_the_placement_says(caplog: pytest.LogCaptureFixture) -> None:
    def where(document: dict[str, Any], placement: str, slots: int) -> dict[str, int]:
        walk = Walk(random.Random(1), document, placement, slots, "none")
        walk.slots.begin(walk.run)
        return dict(zip(walk.run.plan.instances, walk.slots.hosted[walk.run].where, strict=True))

    assert set(where(CHAINED, "locality", 2).values()) == {0}
    assert list(where(CHAINED, "even", 2).values()) == [0, 1, 0, 1, 0]
    assert where(SPLIT, "locality", 2)["in#1"] != where(SPLIT, "locality", 2)["in#2"]
    by_hand = {"name": "f", "operators": CHAINED["operators"] | {"more": {**CHAINED["operators"]["more"], "slot": 1}}}
    assert where(by_hand, "locality", 2) == dict.fromkeys(where(by_hand, "locality", 2), 0) | {"more": 1}
    assert not caplog.messages
    assert set(where(by_hand, "locality", 1).values()) == {0}, "a slot that is not there"
    (message,) = caplog.messages
    assert "flow f: operator more is to run in slot 1, and there are only 1" in message


def test_the_next_flow_goes_to_the_emptier_slot() -> None:
    walk = Walk(random.Random(1), CHAINED, "locality", 2, "full")
    walk.slots.begin(walk.run)
    other = FlowRun(from_plain(CHAINED | {"name": "g"}, REGISTRY), REGISTRY, 1, 1, Progress(Position()), "full")
    walk.slots.begin(other)
    assert walk.slots.hosted[walk.run].slots != walk.slots.hosted[other].slots


@in_loop
async def test_a_halt_that_came_to_nothing_takes_nothing_from_what_may_have_to_be_fed_again() -> None:
    """A commit of what was captured before it covers what was fed until then, and no more."""
    walk = Walk(random.Random(7), CHAINED, "locality", 1, "full")
    walk.slots.begin(walk.run)
    (process,) = walk.processes
    process.start()
    walk.draw = random.Random(2)
    walk.feed()
    assert await walk.while_it_waits(lambda: walk.slots.checkpoints.capture(walk.run, walk.feeding))
    hosted = walk.slots.hosted[walk.run]
    since = len(hosted.since_mark())
    for _ in range(3):
        walk.feed()
    assert not walk.slots.checkpoints.halt(walk.run, walk.feeding, -1.0)
    form = walk.run.form()
    assert form is not None
    walk.run.committed(form)
    walk.slots.checkpoints.committed(walk.run)
    assert len(hosted.fed) == since + 3


@in_loop
async def test_a_slot_that_does_not_report_is_not_waited_for() -> None:
    """Checkpoints are made one after the other: each would hold up those of the flows in other slots by seconds."""
    walk = Walk(random.Random(1), CHAINED, "even", 2, "none")
    walk.slots.begin(walk.run)
    for process in walk.processes:
        process.start()
    walk.processes[1].silent_s = QUIET_S + 1.0
    sent: list[bytes] = []
    walk.slots.orders.to_all = lambda hosted, data: sent.append(data)  # type: ignore[method-assign]
    assert not walk.slots.checkpoints.capture(walk.run, walk.feeding)
    assert not walk.slots.checkpoints.halt(walk.run, walk.feeding, 60.0)
    assert sent == []
