"""The end of a flow: it works off what it has, on the caller's thread."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from edgert.operators.logic import Now, PlainMessage
from edgert.runtime.flow_run import FlowRun
from edgert.runtime.instance.instance import Instance
from edgert.runtime.instance.queue import Entry

DRAIN_ROWS: Final = 10
"""So many go at a time: a flow that is slow is to be told from one that is blocked."""


def drain(
    run: FlowRun,
    now: Now,
    send: Callable[[Instance, Sequence[PlainMessage]], None],
    turned: Callable[[], None] = lambda: None,
) -> None:
    """Runs a held flow to its very end: queues, what windows still hold, a capture. `turned` is called after each turn:
    what it raises ends all of it.

    For a flow that is replaced or removed: nothing may be fed to it any more.
    """
    run.ended = True
    for instance in run.local:
        instance.hurry()
    for instance in run.local:
        most = 1 if instance.schedule.waits else DRAIN_ROWS  # each row may wait for a service that is away
        while True:
            waits = bool(instance.queue.entries)
            turn = instance.run(instance.queue.take(most), now) if waits else instance.finish(now)
            turned()
            for target, batch in instance.send_away(turn.out):
                entry = Entry(target.source, batch, producer=target.producer)
                target.instance.queue.append(entry)  # comes at once, so no budget applies
            if turn.messages:
                send(instance, turn.messages)
            if not waits:
                break
    run.capture_end()
