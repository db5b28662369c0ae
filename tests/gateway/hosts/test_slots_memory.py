"""What an operator needs in memory it needs once: in the slot in which it runs."""

from __future__ import annotations

import gc
import random
import weakref
from types import MappingProxyType
from typing import Any

import pytest

from edgert.core.checkpoint.position import Position
from edgert.core.clock import VirtualClock
from edgert.flow.document import from_plain
from edgert.flow.plan import DAEMON
from edgert.flow.spec import OperatorSpec
from edgert.operators.base.logic import Logic, Message
from edgert.operators.registry import REGISTRY
from edgert.runtime.checkpoint.progress import Progress
from edgert.runtime.flow_run import FlowRun
from edgert.runtime.pool.pool import Pool
from edgert.runtime.slot.run import SlotRun
from tests.gateway.slots_walk import SPLIT, Walk
from tests.runtime.worlds import Wire
from tests.slots_here import located

WITH_A_DEVICE: dict[str, Any] = {
    "name": "f",
    "operators": {
        "in": {"type": "mqtt_source", "topic": "x/{source}"},
        "first": {"type": "device", "input": "in"},
        "second": {"type": "device", "input": "first"},
        "out": {"type": "publish", "input": "second", "topic": "y"},
    },
}


class Device(Logic):
    """Of a package."""

    opened: list[str] = []  # noqa: RUF012 - of the test's own

    def __init__(self, operator: str) -> None:
        super().__init__()
        self.opened.append(operator)


@pytest.fixture
def registry() -> Any:
    Device.opened.clear()
    device = OperatorSpec("device", "Of a package.", logic=lambda build: Device(build.node.name))
    return MappingProxyType({**REGISTRY, "device": device})


def test_the_daemon_keeps_no_logic_of_what_runs_in_slots() -> None:
    walk = Walk(random.Random(1), SPLIT, "locality", 2)
    logics = [weakref.ref(stage.logic) for stage in walk.run.stages.values() if stage.planned.kind == "stateful"]
    assert logics
    walk.slots.begin(walk.run)
    gc.collect()
    assert not any(logic() for logic in logics)


def test_a_slot_makes_the_logic_of_its_own_instances_only(registry: Any) -> None:
    names = list(FlowRun(from_plain(WITH_A_DEVICE, registry), registry, 1, 1, Progress(Position()), "none").instances)
    Device.opened.clear()
    links: Any = {DAEMON: Wire(), 1: Wire()}
    where = [int(name == "second") for name in names]
    pool = Pool(VirtualClock(), workers=0)
    run = SlotRun(
        5,
        0,
        links,
        pool,
        registry,
        VirtualClock(),
        WITH_A_DEVICE,
        1,
        1,
        "none",
        True,
        "",
        located(WITH_A_DEVICE, where, "none", registry),
        0,
        [],
        b"",
    )
    run.start()
    assert Device.opened == ["first"]


def test_a_message_of_a_packages_operator_in_a_slot_is_still_told_from_those_of_others(registry: Any) -> None:
    """Whose part of an instance it is counted at, if it cannot be sent."""
    run = FlowRun(from_plain(WITH_A_DEVICE, registry), registry, 1, 1, Progress(Position()), "full")
    parts = {stage.number: name for name, stage in run.stages.items()}
    message = Message("elsewhere", b"")
    before = run.all[0].giver(message)
    run.leave({})
    assert parts[run.all[0].giver(message)] == parts[before] == "first"
