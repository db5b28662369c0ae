"""A flow that comes to no batch boundary holds up no other flow's acknowledgements, and loses nothing of its input."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from edgert.core.results.results import GapBatch
from edgert.core.settings.gateway import Pool
from gateway.checkpoint.input_spill import PATIENCE_S, TRIED_S
from gateway.control.commands import Commands
from gateway.flows import retire
from tests.gateway.checkpoint.blocking import Blocking, counted
from tests.gateway.whole_gateway import Gateway, document
from tests.gateway.worlds import results, rot
from tests.waiting import in_loop, until


@in_loop
async def test_its_input_goes_to_the_database_and_is_acknowledged(tmp_path: Path) -> None:
    world = Blocking(tmp_path / "db")
    await world.deploy()
    await world.block()
    assert await world.checkpoint() == [], "it may still come to an end"
    assert await world.checkpoint(PATIENCE_S) == [(1, 1), (2, 1)]
    world.feed(3)
    assert await world.checkpoint() == [(3, 1)]
    assert world.gateway.checkpointer.input_spill.messages(world.gateway.flows.runs["f"]) == 3
    world.feed(4)
    world.die()
    assert await counted(tmp_path / "db", 4) == {"f": 4, "other": 4}


@in_loop
async def test_a_checkpoint_that_is_asked_for_names_the_flow_that_came_to_none(tmp_path: Path) -> None:
    world = Blocking(tmp_path / "db")
    await world.deploy()
    nothing: Any = None
    commands = Commands(
        "g1", Pool(), world.gateway.flows, world.gateway.host, nothing, nothing, None, nothing, world.gateway.clock
    )
    answer = await commands.checkpoint({})
    assert (answer["committed"], answer["not_committed"]) == (True, [])
    await world.block()
    answer = await commands.checkpoint({})
    assert (answer["committed"], answer["not_committed"]) == (False, ["f"])
    world.die()


@in_loop
async def test_what_was_not_acknowledged_in_time_is_recognized(tmp_path: Path) -> None:
    """The PUBACKs of what was spilled got lost."""
    world = Blocking(tmp_path / "db")
    await world.deploy()
    await world.block()
    await world.checkpoint()
    await world.checkpoint(PATIENCE_S)
    world.die()
    assert await counted(tmp_path / "db", 1, 2) == {"f": 2, "other": 2}
    assert await counted(tmp_path / "db") == {"f": 0, "other": 0}


@in_loop
async def test_its_next_checkpoint_covers_what_was_spilled(tmp_path: Path) -> None:
    world = Blocking(tmp_path / "db")
    await world.deploy()
    await world.block()
    await world.checkpoint()
    await world.checkpoint(PATIENCE_S)
    database = world.gateway.database
    assert database.spilled("f") is not None
    await world.go_on()
    world.feed(3)
    await world.go_on()
    await world.checkpoint()
    assert database.spilled("f") is not None, "it is not tried yet"
    assert await world.checkpoint(TRIED_S) == []
    assert database.spilled("f") is None
    assert not world.gateway.checkpointer.input_spill.is_stuck(world.gateway.flows.runs["f"])
    world.die()
    assert await counted(tmp_path / "db") == {"f": 3, "other": 3}


@in_loop
async def test_it_is_tried_seldom(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each try may take two seconds, in which no other flow has a checkpoint."""
    world = Blocking(tmp_path / "db")
    await world.deploy()
    await world.block()
    tries: list[str] = []
    capture = world.gateway.host.checkpoints.capture

    def count(run: Any, feeding: Any) -> bool:
        tries.append(run.flow.name)
        return capture(run, feeding)

    monkeypatch.setattr(world.gateway.host.checkpoints, "capture", count)
    for _ in range(60):
        await world.checkpoint(1.0)
    assert tries.count("other") == 60
    assert tries.count("f") <= PATIENCE_S + 1 + 60 / TRIED_S
    world.die()


@in_loop
async def test_nobody_waits_for_a_turn_that_is_long_under_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = Blocking(tmp_path / "db")
    await world.deploy()
    await world.block()
    held: list[object] = []
    hold = world.gateway.pool.hold

    def note(instances: Any, timeout_s: float) -> bool:
        held.append(instances)
        return hold(instances, timeout_s)

    monkeypatch.setattr(world.gateway.pool, "hold", note)
    f, other = (world.gateway.flows.runs[name] for name in ("f", "other"))
    await world.checkpoint()
    assert held == [f.all, other.all]
    await world.checkpoint(PATIENCE_S)
    await world.checkpoint(TRIED_S)
    assert held[2:] == [other.all, other.all]
    world.die()


@in_loop
async def test_a_flow_whose_state_cannot_be_taken_is_stuck(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = Blocking(tmp_path / "db")
    await world.deploy()
    logic = world.gateway.flows.runs["f"].stages["minute"].logic

    def raises() -> None:
        raise RuntimeError("no state")

    monkeypatch.setattr(logic, "delta", raises)
    world.feed(1)
    await world.go_on()
    assert await world.checkpoint() == []
    assert await world.checkpoint(PATIENCE_S) == [(1, 1)]
    world.die()
    assert await counted(tmp_path / "db", 1) == {"f": 1, "other": 1}


@in_loop
async def test_what_has_no_room_is_counted_if_it_comes_to_a_start(tmp_path: Path) -> None:
    world = Blocking(tmp_path / "db")
    world.gateway.database.spill_quota_bytes = 400
    await world.deploy()
    await world.block()
    await world.checkpoint()
    await world.checkpoint(PATIENCE_S)
    for number in range(3, 8):
        world.feed(number)
        assert await world.checkpoint() == [(number, 1)]
    world.die()
    gateway = Gateway(tmp_path / "db")
    assert gateway.checkpointer.drops.lost_input == {"f": 4}
    assert gateway.flows.gaps == {}, "nothing of what it wrote is damaged"
    (gap,) = [b for b in results(gateway.database) if isinstance(b, GapBatch)]
    assert "4 messages of its input had no room" in gap.text
    gateway.crash()
    assert await counted(tmp_path / "db") == {"f": 3, "other": 7}


@in_loop
async def test_damaged_input_is_a_gap(tmp_path: Path) -> None:
    world = Blocking(tmp_path / "db")
    await world.deploy()
    await world.block()
    await world.checkpoint()
    await world.checkpoint(PATIENCE_S)
    world.die()
    rot(tmp_path / "db", "spill")
    gateway = Gateway(tmp_path / "db")
    gateway.crash()
    assert "waited in its queues" in gateway.flows.gaps["f"]
    assert await counted(tmp_path / "db", 1, 2) == {"f": 0, "other": 2}


@in_loop
async def test_a_capture_from_before_the_spill_does_not_take_it_away(tmp_path: Path) -> None:
    """It is pending, and could not be packed for a while."""
    world = Blocking(tmp_path / "db")
    await world.deploy()
    run = world.gateway.flows.runs["f"]
    form = run.form

    def no_memory(_drops: Any = ()) -> Any:
        raise MemoryError

    world.feed(1)
    await world.go_on()
    run.form = no_memory  # type: ignore[method-assign, assignment]
    await world.checkpoint()
    world.feed(2)
    world.feed(3)
    await world.go_on()
    assert await world.checkpoint(PATIENCE_S) == [(1, 1), (2, 1), (3, 1)]
    run.form = form  # type: ignore[method-assign]
    await world.checkpoint(TRIED_S)
    assert world.gateway.database.spilled("f") is None
    world.die()
    assert await counted(tmp_path / "db") == {"f": 3, "other": 3}


@in_loop
async def test_of_several_that_are_stuck_one_is_tried_at_a_time(tmp_path: Path) -> None:
    gateway = Gateway(tmp_path / "db")
    names = ("f", "g", "h")
    for name in names:
        await gateway.flows.deploy(document(name), "mqtt")
    spill, runs = gateway.checkpointer.input_spill, [gateway.flows.runs[name] for name in names]
    spill.begin(runs)
    assert [spill.may_try(run) for run in runs] == [True] * 3
    for run in runs:
        spill.failed(run)
    gateway.clock.advance(PATIENCE_S)
    tried = []
    for _ in runs:
        spill.begin(runs)
        tried += [number for number, run in enumerate(runs) if spill.may_try(run)]
        spill.failed(runs[tried[-1]])
    assert tried == [0, 1, 2]
    gateway.crash()


@in_loop
async def test_one_that_is_tried_for_long_is_tried_less_often(tmp_path: Path) -> None:
    gateway = Gateway(tmp_path / "db")
    await gateway.flows.deploy(document(), "mqtt")
    spill, run = gateway.checkpointer.input_spill, gateway.flows.runs["f"]
    tries = 0
    for _ in range(24 * 3600):
        spill.begin([run])
        if spill.may_try(run):
            tries += 1
            spill.failed(run)
        gateway.clock.advance(1.0)
    assert 100 < tries < 200
    gateway.crash()


@pytest.mark.parametrize("replaced", [True, False])
@in_loop
async def test_it_can_be_replaced_and_removed_and_what_is_lost_is_said(replaced: bool, tmp_path: Path) -> None:
    world = Blocking(tmp_path / "db")
    gateway = world.gateway
    gateway.flows.retirement.hold_s, gateway.flows.retirement.hold_turn_s = 0.0, 0.05
    await world.deploy()
    world.feed(9)
    await world.go_on()
    await world.checkpoint()
    await world.block()
    await world.checkpoint()
    await world.checkpoint(PATIENCE_S)
    if replaced:
        assert await gateway.flows.deploy(document("f", description="new"), "mqtt") == 2
    else:
        assert await gateway.flows.remove("f")
    (gap,) = [b for b in results(gateway.database) if isinstance(b, GapBatch)]
    assert (gap.reason, "was stuck when it was replaced or removed" in gap.text) == ("input missed", True)
    world.feed(3)
    assert await world.checkpoint() == [(3, 1)]
    world.free.set()

    def left() -> bool:
        gateway.host.tick(gateway.flows.runs.values())
        return not gateway.host.leaving

    await until(left, "the flow to leave when its turn has ended")
    before = gateway.shipped()
    assert await gateway.flows.remove("f") is replaced
    assert gateway.shipped() - before == (1 if replaced else 0)
    gateway.crash()


@in_loop
async def test_checkpoints_of_others_are_made_while_it_is_waited_for(tmp_path: Path) -> None:
    world = Blocking(tmp_path / "db")
    retirement = world.gateway.flows.retirement
    retirement.hold_turn_s = retirement.between_s = 0.05
    await world.deploy()
    await world.block()
    await world.checkpoint()
    await world.checkpoint(PATIENCE_S)
    removing = asyncio.create_task(world.gateway.flows.remove("f"))
    await asyncio.sleep(0.01)
    world.feed(3)
    assert await world.checkpoint() == [(3, 1)]
    assert not removing.done()
    await world.go_on()
    assert await removing
    world.die()


@in_loop
async def test_one_that_goes_on_again_is_not_left_to_itself_however_long_it_was_stuck(tmp_path: Path) -> None:
    world = Blocking(tmp_path / "db")
    await world.deploy()
    await world.block()
    await world.checkpoint()
    await world.checkpoint(PATIENCE_S)
    world.gateway.clock.advance(10 * retire.HOLD_S)
    await world.go_on()
    assert await world.gateway.flows.remove("f")
    assert not [b for b in results(world.gateway.database) if isinstance(b, GapBatch)]
    assert world.gateway.shipped() == 2
    world.die()


@in_loop
async def test_what_a_slot_that_is_away_would_need_again_is_not_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = Blocking(tmp_path / "db")
    await world.deploy()
    await world.block()
    host, run = world.gateway.host, world.gateway.flows.runs["f"]
    with monkeypatch.context() as away:
        away.setattr(host.checkpoints, "is_up", lambda run: run.flow.name != "f")
        world.gateway.database.spill_quota_bytes = 400
        assert await world.checkpoint() == [(1, 1), (2, 1)], "at once: there is nothing to wait for"
        world.feed(3)
        world.feed(4)
        assert await world.checkpoint(PATIENCE_S) == [], "no room"
        assert world.gateway.checkpointer.input_spill.is_stuck(run)
    assert not world.gateway.checkpointer.input_spill.is_stuck(run), (
        "it is there again, and has its time to come to an end"
    )
    assert await world.checkpoint() == []
    spilled = world.gateway.database.spilled("f")
    assert spilled is not None
    assert spilled.lost == 0
    world.die()
    assert await counted(tmp_path / "db", 3, 4) == {"f": 4, "other": 4}


@in_loop
async def test_a_checkpoint_under_way_takes_no_more_flows_when_the_gateway_ends(tmp_path: Path) -> None:
    world = Blocking(tmp_path / "db")
    await world.deploy()
    world.feed(1)
    await world.go_on()
    gateway, taken = world.gateway, []
    capture = gateway.host.checkpoints.capture

    def once(run: Any, feeding: Any) -> bool:
        taken.append(run.flow.name)
        gateway.checkpointer.hurries = True
        return capture(run, feeding)

    gateway.host.checkpoints.capture = once  # type: ignore[method-assign]
    assert await gateway.checkpoint()
    assert taken == ["f"]
    assert [run.progress.committed.index for run in gateway.flows.runs.values()] == [1, 0]
    gateway.crash()


@in_loop
async def test_at_the_end_its_turn_is_waited_for_once_and_it_has_no_last_checkpoint(tmp_path: Path) -> None:
    world = Blocking(tmp_path / "db")
    world.gateway.host.checkpoints.turn_s = 1.5
    await world.deploy()
    await world.block()
    gateway = world.gateway
    runs = list(gateway.flows.runs.values())
    assert [run.flow.name for run in gateway.host.checkpoints.quiesce(runs, gateway.checkpointer.feeding, 1.6)] == [
        "other"
    ]
    await gateway.host.stop()  # the operator is not free before that
    world.free.set()  # too late
    gateway.pool.hold(runs[0].all, 60.0)
    gateway.pool.release(runs[0].all)
    assert await gateway.checkpoint()
    assert [run.progress.committed.index for run in runs] == [0, 2]
    world.die()
