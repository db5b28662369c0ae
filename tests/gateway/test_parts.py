"""This gateway's part of a flow that runs on several: what a start does with a plan that is prepared."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from edgert.core.errors import EdgertError
from edgert.flow.plan import Location
from edgert.store.database import Database
from gateway.flows.parts import Parts
from gateway.flows.plans import FLEET
from gateway.registry.registry import FlowRegistry
from tests.gateway import test_flows
from tests.gateway.test_flows import Gateway, document
from tests.waiting import in_loop

AT = dict.fromkeys(("in", "minute", "out"), Location("g1", -1))


class Links:
    """Notes which flows are held."""

    def __init__(self) -> None:
        self.held: set[str] = set()

    def hold(self, flow: str) -> None:
        self.held.add(flow)

    def release(self, flow: str) -> None:
        self.held.discard(flow)


def parts_of(gateway: Gateway) -> tuple[Parts, Links]:
    """As the daemon begins with them."""
    parts, links = Parts("g1", gateway.flows, gateway.host, gateway.database, gateway.store, gateway.clock), Links()
    parts.links = links  # type: ignore[assignment]
    parts.load()
    for run in gateway.flows.runs.values():
        if parts.stands(run.flow.name):
            parts.loaded(run)
    return parts, links


def standing(database: Database, *given: Any) -> FlowRegistry:
    """A registry that lets no flow run whose next plan is prepared, as the daemon's."""
    registry = FlowRegistry(database, *given)
    registry.stands = lambda flow: flow in database.prepared()
    return registry


@pytest.mark.parametrize("goes_on", ["commit", "abort"])
@in_loop
async def test_after_a_start_with_a_prepared_plan_batches_of_others_wait_for_the_word(
    goes_on: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The exports have what was on its way by the present plan: taken here, too, it would count twice."""
    first = Gateway(tmp_path / "db")
    await first.flows.deploy(document(), FLEET, AT, 1)
    parts, links = parts_of(first)
    await parts.fence("f", 2)
    await parts.stop("f")
    assert links.held == {"f"}
    exported = await parts.export("f", [], {})
    await parts.prepare(dict(document().document), AT, 2, [exported])
    first.crash()

    monkeypatch.setattr(test_flows, "FlowRegistry", standing)
    second = Gateway(tmp_path / "db")
    parts, links = parts_of(second)
    assert links.held == {"f"}
    with pytest.raises(EdgertError, match="is being changed"):
        parts.check_free("f")
    await getattr(parts, goes_on)("f", 2)
    assert links.held == set()
    assert second.flows.runs["f"].plan.number == (2 if goes_on == "commit" else 1)
    second.feed(1, 1.0)
    assert await second.checkpoint()
    second.crash()
