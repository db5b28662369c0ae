"""An operator each try of which takes long: a turn with errors ends all the same, and nothing is lost or doubled."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from edgert.core.batch import NO_WATERMARK, Batch, RawBatch
from edgert.core.clock import VirtualClock
from edgert.core.text.topic_template import TopicTemplate
from edgert.flow.options.on_error import ErrorAction, OnError
from edgert.operators.base.error_boundary import APART_S, FAILED, ErrorBoundary
from edgert.operators.base.logic import Emission, Now
from tests.named import named
from tests.operators.base.error_boundary_rig import BATCHES, Driven, Fussy, batches_of


class Away(Fussy):
    """Waits with each try for a service that does not answer to some rows."""

    def __init__(self, repeatable: bool, clock: VirtualClock, try_s: float) -> None:
        super().__init__(repeatable)
        self.clock, self.try_s = clock, try_s

    def process(self, batch: Batch | RawBatch, source: int, now: Now) -> Sequence[Emission]:
        self.clock.advance(self.try_s)
        return super().process(batch, source, now)


@given(
    BATCHES, st.sampled_from(["drop", "dead-letter", "retry"]), st.booleans(), st.booleans(),
    st.sampled_from([0.3, 0.6, 2.0]),
)  # fmt: skip
def test_a_turn_in_which_tries_take_long_ends_and_with_the_rest_it_goes_as_if_it_had_not(
    faults: list[list[int]], action: ErrorAction, repeatable: bool, patient: bool, try_s: float
) -> None:
    policy = OnError(action, None if action == "drop" else TopicTemplate("bad", sink=True), 2, 0.5)
    clock = VirtualClock()
    driven = Driven(Away(repeatable, clock, try_s), policy, patient)
    driven.boundary.clock = clock.monotonic
    other = Driven(Fussy(repeatable), policy, patient)
    other.feed(batches_of(faults))
    waiting: list[Any] = list(batches_of(faults))
    while waiting:
        began, batch = clock.monotonic(), waiting.pop(0)
        for _, some in driven.boundary.process(batch, 0, Now(began, 0.0)):
            driven.out += [row["n"] for row in some.rows]
            driven.marks += [some.watermark] if some.watermark != NO_WATERMARK else []
        if patient:
            # one more try may be under way, that of the watermark behind it, and what began the turn
            assert clock.monotonic() - began <= APART_S + 3 * try_s
        held, driven.boundary.held = driven.boundary.held, []
        assert patient or not held
        driven.waits += [driven.boundary.wait_s] if held and driven.boundary.wait_s else []
        waiting = [*held, *waiting]
    assert (driven.out, driven.marks, driven.waits) == (other.out, other.marks, other.waits)
    assert driven.logic.state == other.logic.state
    assert driven.logic.drops == other.logic.drops
    letters = [[m.payload for m in named(d.logic.messages) if m.topic == "bad"] for d in (driven, other)]
    assert letters[0] == letters[1]
    for name in ("failures", "retries", "dead_letters"):
        assert getattr(driven.boundary, name) == getattr(other.boundary, name)
    if not repeatable:
        assert len(set(driven.logic.given)) == len(driven.logic.given)


def test_where_nothing_passes_each_turn_comes_a_step_further() -> None:
    clock = VirtualClock()
    logic = Away(True, clock, 5.0)
    boundary = ErrorBoundary(logic)
    boundary.clock = clock.monotonic
    waiting: list[Any] = batches_of([[10**6] * 8])
    turns = 0
    while waiting:
        turns += 1
        emissions = boundary.process(waiting.pop(0), 0, Now(clock.monotonic(), 0.0))
        assert sum(len(e.batch) for e in emissions) == 0
        waiting, boundary.held = [*boundary.held, *waiting], []
        assert boundary.wait_s == 0.0
    assert (turns, boundary.failures, boundary.retries, logic.drops[FAILED]) == (15, 8, 0, 8)
