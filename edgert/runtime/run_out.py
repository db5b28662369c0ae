"""The end of a flow: it works off what it has, on the caller's thread."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from edgert.flow.plan import copy_name
from edgert.operators.base.logic import Logic, Now, PlainMessage
from edgert.operators.fusion.chain import Chain
from edgert.runtime.flow_run import FlowRun
from edgert.runtime.instance.instance import Instance
from edgert.runtime.instance.queue import Entry

LAST_ROWS: Final = 10
"""Rows per turn of a flow that works off its queues. With so few, a slow flow can be told from one that hangs."""
Said = tuple[Instance, Sequence[PlainMessage]]
"""The messages that one turn of an instance gave."""
Heirs = Mapping[str, str]
"""Operator → the operator of the flow's next version that goes on with its state."""
NO_HEIRS: Final[Heirs] = MappingProxyType({})


def run_out(run: FlowRun, now: Now, heirs: Heirs = NO_HEIRS) -> Iterator[Said]:
    """Runs a held flow to its very end, turn by turn: queues, what windows still hold, a capture.

    For a flow that is replaced or removed: nothing may be fed to it any more. Operators with heirs take what waits for
    them, and keep what they hold: their state is in the capture, by the names of the heirs.
    """
    run.ended = True
    handed: dict[str, Any] = {}
    for instance in run.local:
        instance.hurry()
    for instance in run.local:  # each after all that feed it; what feeds an operator with an heir has one, too
        most = 1 if instance.schedule.waits else LAST_ROWS  # each row may wait for a service that is away
        while True:
            waits = instance.queue.rows > 0
            if waits:
                turn = instance.run(instance.queue.take(most), now)
            else:
                turn = instance.finish(now, _hand_over(run, instance, heirs, handed))
            for target, batch in instance.send_away(turn.out):
                entry = Entry(target.source, batch, producer=target.producer)
                target.instance.queue.append(entry)  # comes at once, so no budget applies
            yield instance, turn.messages
            if not waits:
                break
    run.capture_end(handed if heirs else None)


def _hand_over(run: FlowRun, instance: Instance, heirs: Heirs, handed: dict[str, Any]) -> list[Logic]:
    """Adds the state of operators with heirs to `handed`, as `FlowRun.snapshot` gives it. Returns their logic."""
    found: list[Logic] = []
    for stage in run.stages.values():
        own = {name: heirs[name] for name in stage.planned.operators if name in heirs}
        if stage.instance is not instance or not own:
            continue
        state = stage.logic.snapshot()
        if isinstance(stage.logic, Chain):  # by operator, and some of them may have no heir
            state = {own[name]: one for name, one in (state or {}).items() if name in own}
        else:
            found.append(stage.logic)
        if state:
            handed[copy_name(next(iter(own.values())), stage.planned.copy)] = state
    return found
