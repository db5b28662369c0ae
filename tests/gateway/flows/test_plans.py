"""A running flow that is to go on by another plan: real database, pool and inbox, no broker."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from edgert.core.errors import EdgertError, StoreError
from edgert.flow.document import from_plain
from edgert.flow.physical import plan
from edgert.flow.plan import Location
from edgert.operators.registry import REGISTRY
from edgert.runtime.flow_run import FlowRun
from gateway.flows.plans import FLEET, moved
from tests.gateway.whole_gateway import Gateway, document
from tests.waiting import in_loop

AT = dict.fromkeys(("in", "minute", "out"), Location("g1", 0))
ELSEWHERE = Location("g1", 1)


@in_loop
async def test_a_flow_goes_on_by_another_plan_with_all_that_it_had(tmp_path: Path) -> None:
    gateway = Gateway(tmp_path / "db")
    await gateway.flows.deploy(document(), "mqtt", AT)
    gateway.feed(1, 1.0)
    made = await gateway.flows.plans.place("f", {"minute": ELSEWHERE})
    assert (made.number, made.assignment()["minute"]) == (1, ELSEWHERE)
    assert gateway.flow_registry.stored["f"].plan == 1
    gateway.feed(2, 2.0)
    assert await gateway.flows.remove("f")
    assert gateway.shipped() == 2
    gateway.crash()


@in_loop
async def test_a_plan_whose_commit_fails_leaves_the_flow_running_as_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gateway = Gateway(tmp_path / "db")
    await gateway.flows.deploy(document(), "mqtt", AT)
    gateway.feed(1, 1.0)

    def full(*_: Any) -> Any:
        raise StoreError("the disk is full")

    with monkeypatch.context() as change:
        change.setattr(gateway.database, "commit", full)
        with pytest.raises(StoreError, match="the disk is full"):
            await gateway.flows.plans.place("f", {"minute": ELSEWHERE})
    gateway.feed(2, 2.0)  # it stands still no longer
    assert gateway.flow_registry.stored["f"].plan == 0
    assert not gateway.flow_registry.busy.locked()
    assert await gateway.flows.remove("f")
    assert gateway.shipped() == 2
    gateway.crash()


@in_loop
async def test_a_plan_whose_results_the_outbox_does_not_take_is_not_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The outbox refuses a flow that keeps all of its results by its name; what it gave stays pending."""
    gateway = Gateway(tmp_path / "db")
    await gateway.flows.deploy(document(), "mqtt", AT)
    gateway.feed(1, 1.0)
    with monkeypatch.context() as change:
        change.setattr(gateway.database, "commit", lambda forms, pages, index: {"f"})
        with pytest.raises(StoreError, match="the outbox is full"):
            await gateway.flows.plans.place("f", {"minute": ELSEWHERE})
    assert gateway.flow_registry.stored["f"].plan == 0
    gateway.feed(2, 2.0)
    assert await gateway.flows.remove("f")
    assert gateway.shipped() == 2
    gateway.crash()


@in_loop
async def test_a_flow_that_fails_while_it_is_to_stand_still_gets_no_other_plan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gateway = Gateway(tmp_path / "db")
    await gateway.flows.deploy(document(), "mqtt", AT)

    loop = asyncio.get_running_loop()

    def fails(run: FlowRun, *_: Any) -> bool:  # on a thread
        loop.call_soon_threadsafe(gateway.flows.fail, run, "its slots died")
        return False

    monkeypatch.setattr(gateway.host.checkpoints, "stop_for_plan", fails)
    with pytest.raises(EdgertError, match="flow f was stopped meanwhile, see the log"):
        await gateway.flows.plans.place("f", {"minute": ELSEWHERE})
    assert (list(gateway.flows.failed), gateway.flow_registry.runs) == (["f"], {})
    gateway.crash()


@pytest.mark.parametrize("verb", ["stop_for_plan", "halt"])
@in_loop
async def test_a_flow_goes_on_when_the_change_is_cancelled_while_it_comes_to_stand_still(
    verb: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gateway = Gateway(tmp_path / "db")
    await gateway.flows.deploy(document(), "mqtt", AT)
    stop, stands, told = getattr(gateway.host.checkpoints, verb), asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    def slowly(*given: Any) -> bool:  # on a thread
        done = bool(stop(*given))
        loop.call_soon_threadsafe(stands.set)
        assert told.wait(60.0)
        return done

    with monkeypatch.context() as change:
        change.setattr(gateway.host.checkpoints, verb, slowly)
        plans = gateway.flows.plans
        work = plans.place("f", {"minute": ELSEWHERE}) if verb == "stop_for_plan" else gateway.flows.remove("f")
        changing = asyncio.ensure_future(work)
        await stands.wait()
        changing.cancel()
        await asyncio.sleep(0)
        told.set()
        with pytest.raises(asyncio.CancelledError):
            await changing
    gateway.feed(1, 1.0)  # fails where the flow stands still
    assert await gateway.flows.remove("f")
    assert gateway.shipped() == 1
    gateway.crash()


@in_loop
async def test_a_flow_that_comes_to_no_batch_boundary_is_refused_with_all_that_may_be_the_cause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gateway = Gateway(tmp_path / "db")
    gateway.flows.retirement.hold_s = 0.0
    await gateway.flows.deploy(document(), "mqtt", AT)
    monkeypatch.setattr(gateway.host.checkpoints, "stop_for_plan", lambda *_: False)
    with pytest.raises(EdgertError, match="or a slot of it hangs, or a slot of it is starting again; try again"):
        await gateway.flows.plans.place("f", {"minute": ELSEWHERE})
    gateway.crash()


@pytest.mark.parametrize("reverse", [False, True])
def test_a_move_of_a_copy_counts_more_than_that_of_its_operator_in_any_order(reverse: bool) -> None:
    operators = {
        "in": {"type": "mqtt_source", "topic": "x/{source}"},
        "by": {"type": "key_by", "input": "in", "keys": ["source"]},
        "n": {"type": "tumbling_window", "input": "by", "size_s": 10, "aggregates": {"n": "count()"}, "instances": 3},
        "out": {"type": "ship", "input": "n"},
    }
    flow = from_plain({"name": "f", "operators": operators}, REGISTRY)
    at = {operator: Location("g1", 2) for operator in ("in", "by", "n#1", "n#2", "n#3", "out")}
    made = plan(flow, REGISTRY, "none", assignment=at)
    moves = {"n": ELSEWHERE, "n#2": Location("g1", 0)}
    found = moved(made, dict(sorted(moves.items(), reverse=reverse)), ())
    assert {name: location.slot for name, location in found.items() if name.startswith("n")} == {
        "n#1": 1, "n#2": 0, "n#3": 1
    }  # fmt: skip


@in_loop
async def test_a_scheduler_places_the_version_that_runs_when_its_turn_comes(tmp_path: Path) -> None:
    gateway = Gateway(tmp_path / "db")
    await gateway.flows.deploy(document(), "mqtt", AT)
    async with gateway.flow_registry.changing:
        slots: list[int] = []
        placing = asyncio.ensure_future(gateway.flows.plans.place_by("f", "even", lambda: slots))
        await asyncio.sleep(0)
        slots += [1]
    made = await placing
    assert {location.slot for location in made.assignment().values()} == {1}, "as the slots were then"
    gateway.crash()


@in_loop
async def test_a_flow_of_the_fleet_is_not_placed_by_one_board_alone(tmp_path: Path) -> None:
    """Its boards have one plan number in common."""
    gateway = Gateway(tmp_path / "db")
    await gateway.flows.deploy(document(), FLEET, AT, 7)
    with pytest.raises(EdgertError, match=r"flow f belongs to the fleet.*edgert fleet move"):
        await gateway.flows.plans.place("f", {"minute": ELSEWHERE})
    assert gateway.flow_registry.stored["f"].plan == 7
    gateway.crash()


@pytest.mark.parametrize("name", ["minute#x", "minute#²", "minute#", "#1", "minute#1#2", "other"])
@in_loop
async def test_a_name_that_is_no_operator_is_refused_by_name(name: str, tmp_path: Path) -> None:
    gateway = Gateway(tmp_path / "db")
    await gateway.flows.deploy(document(), "mqtt", AT)
    with pytest.raises(EdgertError) as raised:
        await gateway.flows.plans.place("f", {name: ELSEWHERE})
    assert "expected an operator of flow f, one of in, minute, out" in str(raised.value)
    assert f"got '{name}'" in str(raised.value)
    gateway.crash()


@in_loop
async def test_weights_go_with_the_flow_that_they_were_for(tmp_path: Path) -> None:
    gateway = Gateway(tmp_path / "db")
    await gateway.flows.deploy(document(), "mqtt", AT)
    gateway.host.weigh("f", {"minute": 2.0})
    assert await gateway.flows.remove("f")
    await gateway.flows.deploy(document(), "mqtt", AT)
    assert gateway.host.weights.of(gateway.flows.runs["f"]) == {}
    gateway.crash()
