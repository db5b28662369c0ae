"""Mishaps of fleet jobs at the moment at which they do harm. Random walks meet it seldom, and what comes later nearly
always makes it good."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from edgert.central.collector.inbox import ResultMessage
from edgert.core.clock import VirtualClock
from edgert.core.ids import make_epoch
from edgert.core.results.result_schema import Schema
from edgert.core.results.results import OpenBatch, RowsBatch, pack_result, results_topic
from tests.protocol.central_side import CentralSide
from tests.protocol.fleet_side import LEASE_S, MOMENTS, FleetSide
from tests.protocol.mutants_central import Patch, what_is_new_is_never_void, who_lost_the_lease_writes_on
from tests.protocol.spark import without_spark
from tests.protocol.state import WALL

FLOW = "a"
FIRST, SECOND = make_epoch(1, 1), make_epoch(2, 1)
SCHEMA = Schema(3.0, (("u", "string"),), (("n", "count"),))


class Scene:
    """Results of one flow land, and two fleet jobs read them; `seed` says in which batches."""

    def __init__(self, seed: int) -> None:
        self.clock = VirtualClock(wall=WALL)
        self._central = CentralSide(random.Random(seed), self.clock, 1, leases=False)
        self.fleet = FleetSide(random.Random(seed), self._central, [FLOW], lambda: None, lambda text: None)
        self.fleet.most, self.fleet.many, self.fleet.few = 10, 20_000, 100_000

    def opens(self, epoch: int, parent: int | None = None) -> None:
        """An epoch opens, and makes all rows of its parent void."""
        self._land(OpenBatch(**self._number(epoch, 1), schema=SCHEMA, parent=parent, cut={0: 1} if parent else {}))

    def counts(self, sequence: int) -> None:
        """One more message counts, in the first epoch's only window."""
        columns = ["window_start", "window_end", "u", "n"]
        self._land(RowsBatch(**self._number(FIRST, sequence), columns=columns, rows=[[0, 3_000_000, "x", 1]]))

    def _land(self, batch: OpenBatch | RowsBatch) -> None:
        self._central.handle([ResultMessage(results_topic("fleet", "g", FLOW), pack_result(batch))], 0)

    def _number(self, epoch: int, sequence: int) -> dict[str, Any]:
        return {
            "gateway": "g", "flow": FLOW, "epoch": epoch, "stream": 0, "sequence": sequence, "flow_version": 1,
        }  # fmt: skip

    def works(self, number: int, moment: Callable[[], None] = lambda: None) -> None:
        """A job, until it has nothing to do. `moment`: see `FleetMemoryTable`."""
        while self.fleet._works(self.fleet.jobs[number], FLOW, moment):
            pass

    def check(self) -> None:
        self.fleet.settle()
        self.fleet.check(FLOW)


def loses_its_place(seed: int) -> None:
    """A job that has counted a message loses its place; when it reads all anew, that message is void."""
    scene = Scene(seed)
    scene.opens(FIRST)
    scene.counts(2)
    scene.works(0)
    scene.opens(SECOND, FIRST)
    scene.fleet.checkpoints.clear()
    scene.fleet.jobs[0].streams.clear()
    scene.check()


def stands_still(at: int) -> None:
    """A job stands still in the midst of a batch, at its moment `at`, until another has the lease and has counted one
    message more of the same window. It goes on then."""
    scene = Scene(0)
    scene.opens(FIRST)
    scene.works(0)
    scene.counts(2)
    left = at

    def moment() -> None:
        nonlocal left
        left -= 1
        if left == -1:
            scene.clock.advance(LEASE_S)
            scene.counts(3)
            scene.works(1)

    scene.works(0, moment)
    scene.check()


@pytest.mark.parametrize("scene", [loses_its_place, stands_still])
def test_the_fleet_table_says_what_landed(scene: Callable[[int], None]) -> None:
    for number in range(2 * MOMENTS):
        with without_spark():
            scene(number)


@pytest.mark.parametrize(
    ("broken", "scene"), [(what_is_new_is_never_void, loses_its_place), (who_lost_the_lease_writes_on, stands_still)]
)
def test_a_rule_of_the_fleet_job_is_needed(broken: Callable[[], Patch], scene: Callable[[int], None]) -> None:
    with pytest.raises(AssertionError, match="fleet table a has"):  # noqa: PT012
        for number in range(2 * MOMENTS):
            with without_spark(), broken():
                scene(number)
