"""What a flow in slots gives for other gateways leaves with the checkpoint whose state has it no more."""

from __future__ import annotations

import random
import threading
from typing import Any

from edgert.core.batch import RawBatch
from edgert.core.checkpoint.position import Position
from edgert.flow.document import from_plain
from edgert.flow.plan import Location
from edgert.operators.registry import REGISTRY
from edgert.runtime.checkpoint.progress import Progress
from edgert.runtime.flow_run import FlowRun
from tests.gateway.slots_walk import Walk
from tests.waiting import wait_until

DOCUMENT: dict[str, Any] = {
    "name": "f",
    "operators": {
        "in": {"type": "mqtt_source", "topic": "x/{source}"},
        "by": {"type": "key_by", "input": "in", "keys": ["source"]},
        "window": {"type": "tumbling_window", "input": "by", "size_s": 10, "aggregates": {"n": "count()"}},
        "out": {"type": "ship", "input": "window"},
    },
}


def test_a_window_that_closes_behind_a_checkpoint_leaves_with_the_next_one() -> None:
    """The slot goes on as soon as it has answered, and the daemon reads answer and window at once: they left with a
    checkpoint whose state had the window as well, so that it was counted twice after a kill."""
    walk = Walk(random.Random(1), DOCUMENT, "locality", 1, "full")
    at = {name: Location("g1", 0) for name in DOCUMENT["operators"]} | {"out": Location("g2", -1)}
    run = walk.run = FlowRun(
        from_plain(DOCUMENT, REGISTRY), REGISTRY, 1, 1, Progress(Position()), "full", True, "g1", at
    )
    walk.slots.begin(run)
    (slot,) = walk.processes
    slot.start()
    hosted = walk.slots.hosted[run]

    def feed(time: int) -> None:
        ((_, copies),) = run.sources()
        with walk.feeding:
            run.progress.fed += 1
            payload = b'{"time": %d}' % time
            walk.slots.put([(copies[0], 0, RawBatch(["x/a"], [payload], 0.0, time, 50, True))])

    def work() -> None:
        for _ in range(40):
            slot.link.flush()
            slot.step()

    def capture(meanwhile: int = 0) -> list[int]:
        """Counts of the windows that leave with a checkpoint; the slot takes a message of the time `meanwhile` behind
        it."""
        marks = len(hosted.marks)
        capturing = threading.Thread(target=walk.slots.checkpoints.capture, args=(run, walk.feeding))
        capturing.start()
        wait_until(lambda: len(hosted.marks) > marks, "the mark")
        if meanwhile:
            feed(meanwhile)
        work()
        slot.listen()
        capturing.join(60.0)
        return [row["n"] for one in run.pending[-1].departures for row in one.batch.rows]

    for time in (1_700_000_000, 1_700_000_001, 1_700_000_002):
        feed(time)
    work()
    slot.listen()
    slot.clock.advance(5.0)
    assert capture(meanwhile=1_700_000_030) == []
    assert capture() == [3]
    assert capture() == []
