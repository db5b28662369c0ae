"""This gateway's part of a flow that runs on several: what a start does with a plan that is prepared."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any, get_args

import pytest

from edgert.core.batch import Batch
from edgert.core.checkpoint.position import Position
from edgert.core.errors import EdgertError, MisfitError, StoreError
from edgert.flow.document import from_plain
from edgert.flow.physical import Fusion
from edgert.flow.plan import Location
from edgert.mqtt.packets.packets import Publish
from edgert.operators.registry import REGISTRY
from edgert.runtime.checkpoint.packing import unpack_queues
from edgert.runtime.checkpoint.progress import Progress
from edgert.runtime.flow_run import FlowRun
from edgert.runtime.instance.edges import Target
from edgert.store import plan_change
from gateway.flows.parts import Parts
from gateway.flows.plans import FLEET
from tests.gateway.flows.parts_here import AT, Links, parts_of
from tests.gateway.whole_gateway import Gateway, document
from tests.waiting import in_loop, until


@pytest.mark.parametrize("goes_on", ["commit", "abort"])
@in_loop
async def test_after_a_start_with_a_prepared_plan_batches_of_others_wait_for_the_word(
    goes_on: str, tmp_path: Path
) -> None:
    """The exports have what was on its way by the present plan: taken here, too, it would count twice."""
    first = Gateway(tmp_path / "db")
    await first.flows.deploy(document(), FLEET, AT, 1)
    parts, links = parts_of(first)
    await parts.obey("f", 2)
    await parts.stop("f")
    assert links.held == {"f"}
    exported = await parts.export("f", [], {})
    await parts.prepare(dict(document().document), AT, 2, [exported])
    first.crash()

    second = Gateway(tmp_path / "db")
    parts, links = parts_of(second)
    assert links.held == {"f"}
    with pytest.raises(EdgertError, match="is being changed"):
        second.flow_registry.plan_changes.check_free("f")
    await getattr(parts, goes_on)("f", 2)
    assert links.held == set()
    assert second.flows.runs["f"].plan.number == (2 if goes_on == "commit" else 1)
    second.feed(1, 1.0)
    assert await second.checkpoint()
    second.crash()


async def prepared(path: Path) -> tuple[Gateway, Parts, Links]:
    """A gateway whose flow has one message, stands still, and has its part of plan 2."""
    gateway = Gateway(path)
    await gateway.flows.deploy(document(), FLEET, AT, 1)
    parts, links = parts_of(gateway)
    gateway.feed(1, 1.0)
    await parts.obey("f", 2)
    await parts.stop("f")
    exported = await parts.export("f", [], {})
    await parts.prepare(dict(document().document), AT, 2, [exported])
    return gateway, parts, links


@in_loop
async def test_a_commit_that_fails_between_database_and_flow_is_finished_by_the_next_one_and_never_aborted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gateway, parts, links = await prepared(tmp_path / "db")

    def full(*_: Any) -> Any:
        raise MisfitError("its checkpoint is too large for a slot")

    with monkeypatch.context() as patch:
        patch.setattr(gateway.host, "successor", full)
        for _ in range(2):
            with pytest.raises(MisfitError, match="too large for a slot"):
                await parts.commit("f", 2)
    with pytest.raises(EdgertError, match="committed to plan 2: commit it again"):
        await parts.abort("f", 2)
    with pytest.raises(EdgertError, match="committed to plan 2: commit it again"):
        await parts.prepare(dict(document().document), AT, 3, [])
    assert parts.stopped["f"].patience is None, "it does not go on by itself"
    assert parts.status()["f"]["prepared_plan"] == 2
    assert links.held == {"f"}
    gateway.ingest.feed([Publish("x/a", b'{"time": 1700000002}', 1, False, False, 2)])  # waits with the flow
    await parts.commit("f", 2)
    assert (gateway.flows.runs["f"].plan.number, links.held) == (2, set())
    gateway.feed(3, 3.0)
    assert await gateway.flows.remove("f")
    assert gateway.shipped() == 3
    gateway.crash()


@in_loop
async def test_links_that_cannot_follow_a_commit_do_not_have_it_written_again(tmp_path: Path) -> None:
    """A second write would put the state of the first one in the place of all that was committed since."""
    gateway, parts, _ = await prepared(tmp_path / "db")
    gateway.flow_registry.retry_s = 0.0
    told: list[int] = []

    async def follow(_: object) -> None:
        told.append(0)
        if len(told) == 1:
            raise StoreError("the disk failed for a moment")

    gateway.flow_registry.on_change = follow
    await parts.commit("f", 2)
    gateway.feed(2, 2.0)
    assert await gateway.checkpoint()
    await parts.commit("f", 2)
    await until(lambda: len(told) == 2, "that the links are told again")
    gateway.crash()
    again = Gateway(tmp_path / "db")
    again.feed(3, 3.0)
    assert await again.flows.remove("f")
    assert again.shipped() == 3
    again.crash()


@in_loop
async def test_a_deployment_while_a_plan_is_prepared_waits_and_is_refused(tmp_path: Path) -> None:
    """Else two runs of one flow would share its messages."""
    gateway = Gateway(tmp_path / "db")
    parts, _ = parts_of(gateway)
    await parts.obey("f", 2)
    plans, go_on = gateway.flows.plans, threading.Event()
    made = plans.planned

    def slow(*given: Any) -> FlowRun:
        assert go_on.wait(60.0)
        return made(*given)

    plans.planned = slow  # type: ignore[assignment, method-assign]
    preparing = asyncio.create_task(parts.prepare(dict(document().document), AT, 2, []))
    await until(gateway.flow_registry.changing.locked, "the preparation")
    deploying = asyncio.create_task(gateway.flows.deploy(document(), "mqtt"))
    await asyncio.sleep(0)
    go_on.set()
    await preparing
    with pytest.raises(EdgertError, match="is being changed"):
        await deploying
    await parts.commit("f", 2)
    gateway.feed(1, 1.0)
    assert len(gateway.ingest.inbox.flows) == 1
    assert await gateway.flows.remove("f")
    assert gateway.shipped() == 1
    gateway.crash()


@pytest.mark.parametrize("to_first", ["valid", "valid apart", "apart", "apart minute", ""])
@in_loop
async def test_what_waits_in_front_of_a_chain_goes_where_its_first_operator_goes(to_first: str, tmp_path: Path) -> None:
    """The chain `valid+apart` may be torn apart by the next plan. Its queue once went where the operator is that is
    the first by name, and what waited in it was lost."""
    operators = {
        "in": {"type": "mqtt_source", "topic": "x/{source}"},
        "valid": {"type": "filter", "input": "in", "where": "n > 0"},
        "apart": {"type": "key_by", "input": "valid", "keys": ["source"]},
        "minute": {"type": "tumbling_window", "input": "apart", "size_s": 10, "aggregates": {"n": "sum(n)"}},
        "out": {"type": "ship", "input": "minute"},
    }
    flow = from_plain({"name": "f", "operators": operators}, REGISTRY)
    before = {operator: Location("g1" if operator == "in" else "g2", -1) for operator in operators}
    after = before | dict.fromkeys(to_first.split(), Location("g1", -1))
    gateways = {name: Gateway(tmp_path / name, name=name) for name in ("g1", "g2")}
    for gateway in gateways.values():
        await gateway.flows.deploy(flow, FLEET, before, 1)
    second, run = gateways["g2"], gateways["g2"].flows.runs["f"]
    second.pool.begin_hold(run.local)  # so that it waits
    valid = run.entrance("valid")
    assert valid is not None
    second.host.deliver(run, [(valid, 0, 0, Batch([{"time": 1.0, "source": "a", "n": 5}], 0.0, 1.0, 10))])

    parts = {name: parts_of(gateway)[0] for name, gateway in gateways.items()}
    exports = []
    for name, part in parts.items():
        await part.obey("f", 2)
        await part.stop("f")
        leaving = [operator for operator, at in before.items() if at.gateway == name != after[operator].gateway]
        exports.append(await part.export("f", leaving, {}))
    for part in parts.values():
        await part.prepare(dict(flow.document), after, 2, exports)
    waiting = {name: unpack_queues(part.prepared["f"].queue, 0.0) for name, part in parts.items()}
    rows = {name: sum(len(e.batch) for queue in found.values() for e in queue) for name, found in waiting.items()}
    assert rows == {"g1": 0, "g2": 0} | {after["valid"].gateway: 1}
    for gateway in gateways.values():
        gateway.crash()


@in_loop
async def test_what_fails_in_the_midst_of_a_chain_that_a_plan_joins_is_counted_and_sent_as_a_dead_letter(
    tmp_path: Path,
) -> None:
    """It was worked off when the plan was prepared, by a run whose drops and letters were thrown away."""
    operators = {
        "in": {"type": "mqtt_source", "topic": "x/{source}"},
        "a": {"type": "filter", "input": "in", "where": "n >= 0"},
        "b": {"type": "map", "input": "a", "set": {"u": "1 / n"}},
        "minute": {"type": "tumbling_window", "input": "b", "size_s": 10, "aggregates": {"n": "count()"}},
        "out": {"type": "ship", "input": "minute"},
    }
    on_error = {"action": "dead-letter", "topic": "bad/{operator}"}
    flow = from_plain({"name": "f", "on_error": on_error, "operators": operators}, REGISTRY)
    before = AT | {"b": AT["in"], "a": Location("g2", -1), "in": Location("g2", -1), "minute": Location("g2", -1)}
    after = before | {"a": AT["in"]}
    gateway = Gateway(tmp_path / "db")
    await gateway.flows.deploy(flow, FLEET, before, 1)
    run = gateway.flows.runs["f"]
    gateway.pool.begin_hold(run.local)
    rows = [{"time": 1.0, "source": "s", "n": n} for n in (0, 5, 0)]
    gateway.host.deliver(run, [(run.instances["b"], 0, 0, Batch(rows, 0.0, 1.0, 10))])
    parts, _ = parts_of(gateway)
    await parts.obey("f", 2)
    await parts.stop("f")
    await parts.prepare(dict(flow.document), after, 2, [await parts.export("f", [], {})])
    assert unpack_queues(parts.prepared["f"].queue, 0.0).keys() == {"b"}
    await parts.commit("f", 2)
    run = gateway.flows.runs["f"]
    chain = run.stages["a+b"]
    assert (dict(chain.logic.drops), chain.boundary.dead_letters) == ({"division by zero in b": 2}, 2)
    assert [(one.operator, [row["n"] for row in one.batch.rows]) for one in run.departures] == [("minute", [5])]
    gateway.crash()


@pytest.mark.parametrize("ours", get_args(Fusion))
@pytest.mark.parametrize("theirs", get_args(Fusion))
def test_a_batch_finds_its_operator_whatever_is_fused_at_the_other_end(ours: Fusion, theirs: Fusion) -> None:
    """Without fusion there is no marker, with which a chain may begin: batches for it were dropped."""
    operators = {
        "in": {"type": "mqtt_source", "topic": "x/{source}"},
        "apart": {"type": "key_by", "input": "in", "keys": ["source"]},
        "valid": {"type": "filter", "input": "apart", "where": "n > 0"},
        "minute": {"type": "tumbling_window", "input": "valid", "size_s": 10, "aggregates": {"n": "count()"}},
        "out": {"type": "ship", "input": "minute"},
    }
    flow = from_plain({"name": "f", "operators": operators}, REGISTRY)
    at = {operator: Location("g1" if operator == "in" else "g2", -1) for operator in operators}
    here, there = (
        FlowRun(flow, REGISTRY, 1, 1, Progress(Position()), fusion, gateway=name, assignment=at)
        for fusion, name in ((ours, "g1"), (theirs, "g2"))
    )
    ((target,),) = here.instances["in"].edges.outputs.values()
    assert isinstance(target, Target)
    assert target.instance.remote is not None
    target.instance.remote(target, Batch([{"time": 1.0, "source": "a", "n": 5}], 0.0, 1.0, 10))
    (gone,) = here.take_departures()
    entrance = there.entrance(gone.operator)
    assert entrance is not None
    assert there.takes(entrance, gone.source, gone.producer)
    assert there.on_board(there.plan.instances[entrance.name])


@in_loop
async def test_a_removed_flow_says_which_coordinator_it_obeys_and_a_later_one_gets_through(tmp_path: Path) -> None:
    """A coordinator that begins anew finds no part of the flow, and so no number to go beyond."""
    gateway = Gateway(tmp_path / "db")
    parts, _ = parts_of(gateway)
    await parts.obey("gone", 7)
    assert await parts.obey("gone", 3) == 7
    with pytest.raises(EdgertError, match="obeys a coordinator with fencing number 7, got 3"):
        async with parts.obeying("gone", 3):
            pass
    assert await parts.obey("gone", 9) == 9
    told = await asyncio.gather(parts.obey("gone", 12), parts.obey("gone", 11))
    assert [*told] == [12, 12], "of two at once the greater one stays"
    assert await parts.obey("gone", 0) == 12 == gateway.database.read(plan_change.fences)["gone"]


@in_loop
async def test_a_board_that_a_plan_names_for_a_key_only_keeps_its_part_across_a_restart_and_leaves_by_a_later_plan(
    tmp_path: Path,
) -> None:
    """A `key_by` runs where its neighbours do. Its board had no instance, and gave its part up; coordinators waited for
    that part from then on, so that the flow could be neither moved nor removed."""
    operators = {
        "in": {"type": "mqtt_source", "topic": "x/{source}"},
        "apart": {"type": "key_by", "input": "in", "keys": ["source"]},
        "minute": {"type": "tumbling_window", "input": "apart", "size_s": 10, "aggregates": {"n": "count()"}},
        "out": {"type": "ship", "input": "minute"},
    }
    flow = from_plain({"name": "f", "operators": operators}, REGISTRY)
    here, there = Location("g1", -1), Location("g2", -1)
    at = {"in": there, "apart": here, "minute": here, "out": here}
    gateway = Gateway(tmp_path / "db")
    await gateway.flows.deploy(flow, FLEET, at, 1)
    parts, _ = parts_of(gateway)

    async def change(plan: int, after: dict[str, Location]) -> None:
        await parts.obey("f", plan)
        await parts.stop("f")
        exports = [await parts.export("f", [o for o in after if at[o] == here != after[o]], {})]
        await parts.prepare(dict(flow.document), after, plan, exports)
        await parts.commit("f", plan)

    await change(2, at := dict.fromkeys(operators, there) | {"apart": here})
    assert (parts.status()["f"]["state"], parts.status()["f"]["plan"]) == ("running", 2)
    assert await gateway.checkpoint()
    gateway.crash()
    gateway = Gateway(tmp_path / "db")
    parts, _ = parts_of(gateway)
    assert (parts.status()["f"]["state"], parts.status()["f"]["plan"]) == ("running", 2)
    await change(3, dict.fromkeys(operators, there))
    assert parts.status() == {}
    gateway.crash()


@in_loop
async def test_a_source_does_not_leave_its_board(tmp_path: Path) -> None:
    """What came after the last checkpoint would be acknowledged there, and be nowhere."""
    gateway = Gateway(tmp_path / "db")
    here = dict.fromkeys(("in", "minute", "out"), Location("g1", -1))
    await gateway.flows.deploy(document(), FLEET, here, 1)
    parts, _ = parts_of(gateway)
    await parts.obey("f", 2)
    await parts.stop("f")
    exported = await parts.export("f", ["in", "minute", "out"], {})
    there = dict.fromkeys(here, Location("g2", -1))
    with pytest.raises(EdgertError, match=r"flow f: expected in on g1, got g2: a source stays"):
        await parts.prepare(dict(document().document), there, 2, [exported])
    await parts.prepare(dict(document().document), there | {"in": here["in"]}, 2, [exported])
    await parts.commit("f", 2)
    assert parts.status()["f"]["plan"] == 2
    gateway.crash()


@in_loop
async def test_a_document_of_its_own_does_not_take_the_place_of_a_boards_part_of_a_fleet_flow(tmp_path: Path) -> None:
    gateway = Gateway(tmp_path / "db")
    at = {"in": Location("g1", -1), "minute": Location("g2", -1), "out": Location("g2", -1)}
    await gateway.flows.deploy(document(), FLEET, at, 1)
    for wanted in (document(), document(description="another")):
        with pytest.raises(EdgertError, match="flow f belongs to the fleet, and this board runs a part of it"):
            await gateway.flows.deploy(wanted, "mqtt")
    assert list(gateway.flows.runs["f"].mine or ()) == ["in"]
    await gateway.flows.remove("f")
    assert await gateway.flows.deploy(document(), "mqtt")
    gateway.crash()


@in_loop
async def test_a_part_that_was_not_told_of_its_change_prepares_no_other_one(tmp_path: Path) -> None:
    """The flow went on without it: what it holds is old."""
    gateway, parts, _ = await prepared(tmp_path / "db")
    with pytest.raises(EdgertError, match="the plan of flow f is being changed"):
        await parts.prepare(dict(document().document), AT, 3, [])
    assert parts.status()["f"]["prepared_plan"] == 2
    await parts.commit("f", 2)
    gateway.crash()


@in_loop
async def test_a_part_that_runs_by_a_later_plan_was_told_of_the_one_before(tmp_path: Path) -> None:
    """One board was not: all are told once more."""
    gateway, parts, _ = await prepared(tmp_path / "db")
    await parts.commit("f", 2)
    assert await parts.commit("f", 1) == {"pause_s": 0.0, "rows_delayed": 0}
    with pytest.raises(EdgertError, match="expected a prepared plan 3, got None"):
        await parts.commit("f", 3)
    assert parts.status()["f"]["plan"] == 2
    gateway.crash()


@in_loop
async def test_a_commit_that_fails_after_the_switch_is_not_made_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its rows would count twice."""
    gateway, parts, links = await prepared(tmp_path / "db")

    async def fails() -> None:
        raise StoreError("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(gateway.flow_registry, "changed", fails)
        with pytest.raises(StoreError, match="the disk is full"):
            await parts.commit("f", 2)
    assert (gateway.flows.runs["f"].plan.number, links.held) == (2, set())
    run = gateway.flows.runs["f"]
    assert await parts.commit("f", 2) == {"pause_s": 0.0, "rows_delayed": 0}
    assert gateway.flows.runs["f"] is run
    assert parts.status()["f"]["state"] == "running"
    gateway.crash()
