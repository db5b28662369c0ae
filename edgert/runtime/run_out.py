"""The end of a flow: it works off what it has, on the caller's thread."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from edgert.operators.base.logic import Now, PlainMessage
from edgert.runtime.flow_run import FlowRun
from edgert.runtime.instance.instance import Instance
from edgert.runtime.instance.queue import Entry

LAST_ROWS: Final = 10
"""Rows per turn of a flow that works off its queues. With so few, a slow flow can be told from one that hangs."""
Said = tuple[Instance, Sequence[PlainMessage]]
"""The messages that one turn of an instance gave."""


def run_out(run: FlowRun, now: Now) -> Iterator[Said]:
    """Runs a held flow to its very end, turn by turn: queues, what windows still hold, a capture.

    For a flow that is replaced or removed: nothing may be fed to it any more.
    """
    run.ended = True
    for instance in run.local:
        instance.hurry()
    for instance in run.local:
        most = 1 if instance.schedule.waits else LAST_ROWS  # each row may wait for a service that is away
        while True:
            waits = instance.queue.rows > 0
            turn = instance.run(instance.queue.take(most), now) if waits else instance.finish(now)
            for target, batch in instance.send_away(turn.out):
                entry = Entry(target.source, batch, producer=target.producer)
                target.instance.queue.append(entry)  # comes at once, so no budget applies
            yield instance, turn.messages
            if not waits:
                break
    run.capture_end()
