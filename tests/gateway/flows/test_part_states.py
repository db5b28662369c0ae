"""A gateway makes of each state and event what the table of states says (`edgert.flow.part_states`)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from edgert.core.errors import EdgertError, MisfitError
from edgert.flow.part_states import TABLE, PartEvent, PartState, Refusal
from edgert.flow.plan import Location
from gateway.flows.parts import Parts
from gateway.flows.plans import FLEET
from tests.gateway.flows.parts_here import GUEST, parts_of
from tests.gateway.whole_gateway import Gateway, document
from tests.waiting import in_loop

ELSEWHERE = dict.fromkeys(GUEST, Location("g2", -1))


async def prepare(parts: Parts, plan: int, leaves: bool = False) -> None:
    await parts.prepare(dict(document().document), ELSEWHERE if leaves else GUEST, plan, [])


async def begin(gateway: Gateway, parts: Parts, state: PartState, leaves: bool, patch: pytest.MonkeyPatch) -> None:
    """Brings the part into a state."""
    if state not in (PartState.GONE, PartState.JOINING):
        await gateway.flows.deploy(document(), FLEET, GUEST, 1)
    await parts.obey("f", 2)
    if state is PartState.SUSPENDED:
        await parts.suspend("f")
    if state in (PartState.STOPPED, PartState.PREPARED, PartState.COMMITTED):
        await parts.stop("f")
    if state in (PartState.JOINING, PartState.PREPARED, PartState.COMMITTED):
        await prepare(parts, 2, leaves)
    if state is PartState.COMMITTED:

        async def fails(*_: Any) -> None:
            raise MisfitError("its checkpoint is too large for a slot")

        with patch.context() as once:
            once.setattr(gateway.flows.plans, "go_on_by", fails)
            with pytest.raises(MisfitError):
                await parts.commit("f", 2)
    assert gateway.flow_registry.plan_changes.state("f") is state


async def happen(parts: Parts, event: PartEvent) -> None:
    if event is PartEvent.CHANGE:
        parts._changes.check_free("f")
    elif event is PartEvent.PATIENCE_ENDS:
        parts.stopped._impatient("f")
    elif event in (PartEvent.PREPARE, PartEvent.PREPARE_OTHER):
        await prepare(parts, 2 if event is PartEvent.PREPARE else 3)
    elif event in (PartEvent.ABORT, PartEvent.ABORT_OTHER):
        await parts.abort("f", 2 if event is PartEvent.ABORT else 0)
    elif event in (PartEvent.COMMIT_PAST, PartEvent.COMMIT_OTHER):
        await parts.commit("f", 1 if event is PartEvent.COMMIT_PAST else 3)
    elif event in (PartEvent.COMMIT, PartEvent.STAYS, PartEvent.LEAVES):
        await parts.commit("f", 2)
    else:
        await getattr(parts, event)("f")  # stop, suspend, resume


@pytest.mark.parametrize(("state", "event"), TABLE)
@in_loop
async def test_the_state_after_an_event_is_that_of_the_table(
    state: PartState, event: PartEvent, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gateway, wanted = Gateway(tmp_path / "db"), TABLE[state, event]
    parts, _ = parts_of(gateway)
    await begin(gateway, parts, state, event is PartEvent.LEAVES, monkeypatch)
    if event in (PartEvent.START, PartEvent.START_AS_GUEST):
        if event is PartEvent.START_AS_GUEST:
            await parts.stopped.let_guests_wait()
        gateway.crash()
        gateway = Gateway(tmp_path / "db")
        parts_of(gateway)
    elif isinstance(wanted, Refusal):
        begins = wanted.partition("{")[0]
        with pytest.raises(EdgertError, match=f"^{begins}"):
            await happen(parts, event)
        wanted = state
    else:
        await happen(parts, event)
    if event is PartEvent.COMMIT:  # without a failure the part does not stay committed
        wanted = TABLE[PartState.COMMITTED, PartEvent.STAYS]
    assert gateway.flow_registry.plan_changes.state("f") is wanted
    gateway.crash()
