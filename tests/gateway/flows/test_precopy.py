"""State that is sent ahead of a change of plan, and what becomes of it where it is of no use."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from edgert.core.errors import EdgertError
from edgert.flow.plan import Location
from edgert.mqtt.packets.packets import Publish
from edgert.runtime.flow_run import FlowRun
from edgert.store.outbox import link_outbox
from gateway.flows.parts import Parts
from gateway.flows.plans import FLEET
from gateway.flows.precopy import KEPT_S, behind
from tests.gateway.flows.moving import Outcome as Run
from tests.gateway.flows.moving import World, until_empty
from tests.gateway.flows.parts_here import AT, parts_of
from tests.gateway.whole_gateway import Gateway, document
from tests.lab.faults import APART, FLOW, KEYED
from tests.waiting import in_loop, until

DOCUMENT = dict(document().document)
OTHER: Mapping[str, Any] = {"token": "t", "states": []}
"""The copy of another board, which has nothing for this one."""


def export(since: str = "t") -> dict[str, Any]:
    return {"gateway": "g2", "since": since, "states": [], "queue": b"", "pending": b""}


def merged(gateway: Gateway) -> None:
    gateway.checkpointer.compact(gateway.flows.runs["f"])


async def ahead_of_plan_2(path: Path, kept_s: float = KEPT_S) -> tuple[Gateway, Parts]:
    """A gateway with its part of plan 2 made ahead, with one message in it; two more came since."""
    gateway = Gateway(path)
    await gateway.flows.deploy(document(), FLEET, AT, 1)
    parts, _ = parts_of(gateway)
    parts.precopy.kept_s = kept_s
    gateway.feed(1, 1.0)
    assert await gateway.checkpoint()
    await parts.obey("f", 2)
    await parts.ahead(DOCUMENT, AT, 2, {"g2": OTHER})
    gateway.feed(2, 2.0)
    assert await gateway.checkpoint()
    gateway.feed(3, 3.0)
    return gateway, parts


@pytest.mark.parametrize("crash", [False, True], ids=["goes on", "starts again"])
@pytest.mark.parametrize("meanwhile", [lambda _: None, merged], ids=["as it was", "merged"])
@in_loop
async def test_the_next_plan_has_what_was_sent_ahead_and_what_came_since(
    crash: bool, meanwhile: Callable[[Gateway], None], tmp_path: Path
) -> None:
    gateway, parts = await ahead_of_plan_2(tmp_path / "db")
    await parts.stop("f")
    meanwhile(gateway)
    await parts.prepare(DOCUMENT, AT, 2, [export()])
    pieces = len(parts.prepared["f"].states)
    assert pieces == (1 if meanwhile is merged else 3), "the base and two deltas, or all of it anew"
    if crash:
        gateway.crash()
        gateway = Gateway(tmp_path / "db")
        parts, _ = parts_of(gateway)
    await parts.commit("f", 2)
    gateway.feed(4, 4.0)
    assert await gateway.checkpoint()
    merged(gateway)  # what is stored of the next plan can be merged
    gateway.crash()
    again = Gateway(tmp_path / "db")
    assert again.flows.runs["f"].plan.number == 2
    assert await again.flows.remove("f")
    assert again.shipped() == 4
    again.crash()


@pytest.mark.parametrize("why", ["another plan", "another token", "another assignment", "forgotten"])
@in_loop
async def test_changes_without_what_they_change_are_refused_and_the_flow_goes_on(why: str, tmp_path: Path) -> None:
    gateway, parts = await ahead_of_plan_2(tmp_path / "db")
    await parts.stop("f")
    plan, token = 3 if why == "another plan" else 2, "u" if why == "another token" else "t"
    assignment = {**AT, "out": Location("g2", -1)} if why == "another assignment" else AT
    if why == "forgotten":
        parts.precopy.forget("f")
    with pytest.raises(EdgertError, match=f"that g2 sent ahead for plan {plan}, which is not here any more; try again"):
        await parts.prepare(DOCUMENT, assignment, plan, [export(token)])
    await parts.abort("f", plan)
    gateway.feed(4, 4.0)
    assert await gateway.flows.remove("f")
    assert gateway.shipped() == 4
    gateway.crash()


@in_loop
async def test_whole_exports_are_taken_whatever_was_sent_ahead(tmp_path: Path) -> None:
    gateway, parts = await ahead_of_plan_2(tmp_path / "db")
    await parts.stop("f")
    await parts.prepare(DOCUMENT, AT, 2, [export("")])
    assert len(parts.prepared["f"].states) == 1
    await parts.commit("f", 2)
    assert await gateway.flows.remove("f")
    assert gateway.shipped() == 3
    gateway.crash()


@in_loop
async def test_state_of_another_version_is_not_taken_ahead(tmp_path: Path) -> None:
    gateway, parts = await ahead_of_plan_2(tmp_path / "db")
    other = dict(document(description="another").document)
    with pytest.raises(EdgertError, match="of another version here"):
        await parts.ahead(other, AT, 2, {"g2": OTHER})
    gateway.crash()


@in_loop
async def test_what_no_coordinator_comes_back_for_is_forgotten(tmp_path: Path) -> None:
    gateway, parts = await ahead_of_plan_2(tmp_path / "db", kept_s=0.0)
    await parts.copy("f", ["minute"], 1_000)
    await until(lambda: not parts.precopy.parts and not parts.precopy.copied, "that it is forgotten")
    gateway.crash()


@pytest.mark.parametrize("merges", [False, True])
@in_loop
async def test_only_what_changed_travels_in_the_pause_unless_the_state_is_merged_meanwhile(
    merges: bool, tmp_path: Path
) -> None:
    world = World(1, tmp_path, Run(1, 400))
    await world.start()
    ask = world.ask

    async def merging(name: str, verb: str, args: Mapping[str, Any]) -> Any:
        answer = await ask(name, verb, args)
        if verb == "part.ahead" and merges:
            await world.boards["g2"].merge(FLOW)
        return answer

    try:
        await world.give(range(400))
        await until_empty(lambda: world.broker.open, "messages without an acknowledgement")
        await until_empty(
            lambda: [w for b in world.boards.values() for w in b.database.read(link_outbox.sizes)], "rows on the way"
        )
        world.ask = merging  # type: ignore[method-assign]
        await world.move({**APART, **dict.fromkeys(KEYED, "g3")}, "none")
        assert world.last is not None
        ahead, paused = world.last.ahead_bytes, world.last.paused_bytes
        assert (paused > ahead / 2) == merges, (ahead, paused)
        await world.give(range(400))
        await world.end()
        world.compare()
    finally:
        await world.stop()
    assert world.outcome.good, world.outcome


def test_stored_state_is_behind_an_earlier_copy_only_while_that_stands() -> None:
    assert behind([b"a", b"b", b"c"], [b"a", b"b"]) == [b"c"]
    assert behind([b"a"], [b"a"]) == []
    assert behind([b"ab"], [b"a", b"b"]) is None
    assert behind([], [b"a"]) is None
    assert behind([b"a"], []) == [b"a"]


@in_loop
async def test_the_pause_begins_before_the_checkpoint_of_the_stop_and_rows_that_came_in_it_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gateway, parts = await ahead_of_plan_2(tmp_path / "db")
    write, written_at = gateway.checkpointer.write_stopped, list[float]()

    async def noting(run: FlowRun) -> None:
        written_at.append(time.monotonic())
        await write(run)

    monkeypatch.setattr(gateway.checkpointer, "write_stopped", noting)
    asked_at = time.monotonic()
    await parts.stop("f")
    assert asked_at <= parts.stopped["f"].began <= written_at[0]
    for packet_id in (4, 5):
        gateway.ingest.feed([Publish("x/a", b'{"time": 1700000004}', 1, False, False, packet_id)])
    await parts.prepare(DOCUMENT, AT, 2, [export()])
    told = await parts.commit("f", 2)
    assert told["rows_delayed"] == 2
    assert 0.0 < told["pause_s"] <= time.monotonic() - asked_at
    assert await parts.commit("f", 2) == {"pause_s": 0.0, "rows_delayed": 0}, "told twice"
    gateway.crash()


@in_loop
async def test_state_that_is_more_than_a_coordinator_takes_is_not_copied_but_its_size_is_told(tmp_path: Path) -> None:
    gateway, parts = await ahead_of_plan_2(tmp_path / "db")
    whole = await parts.copy("f", ["minute"], 1_000)
    size = sum(map(len, whole["states"]))
    assert whole["bytes"] == size > 0
    more = await parts.copy("f", ["minute"], size - 1)
    assert more["states"] == []
    assert more["bytes"] >= size
    gateway.crash()
