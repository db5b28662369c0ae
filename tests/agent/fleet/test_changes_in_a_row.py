"""Changes of one flow's plan, one after the other, of which some are undone or not told to all boards: the boards take
none of them for another one."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Mapping
from types import SimpleNamespace
from typing import Any, NamedTuple, cast

from hypothesis import given, settings
from hypothesis import strategies as st

from agent.fleet.history import Why
from agent.fleet.mend import FleetMend
from agent.migration.plan_change import On
from edgert.core.errors import EdgertError
from edgert.flow.part_states import PartState
from tests.agent.fleet.next_coordinator import Fenced, next_coordinator
from tests.agent.migration.worlds import BOARDS, run_virtual, whole

AT_B = {"in": "a", "window": "b", "out": "b"}
"""Where the flow begins: `c` has no part of it."""
AT_C = {"in": "a", "window": "c", "out": "c"}
APART = {"in": "a", "window": "b", "out": "c"}
NEAR = {"in": "a", "window": "b", "out": "a"}
Fault = tuple[str, str, str]
"""(board, verb, what happens to the first such request)."""


class Step(NamedTuple):
    """A change that is tried."""

    after: On
    faults: frozenset[Fault] = frozenset()
    silent: frozenset[str] = frozenset()
    """Boards that do not answer from the first fault on, until the next step is over."""


class Faulty(Fenced):
    """Requests get lost before or after they are carried out, or are carried out late."""

    def __init__(self) -> None:
        super().__init__()
        self.has, self.on = set(AT_B.values()), dict.fromkeys(BOARDS, AT_B)
        self.state = {board: PartState.RUNNING if board in self.has else PartState.GONE for board in BOARDS}
        self.left: set[Fault] = set()
        self.silent: frozenset[str] = frozenset()
        self.late: list[tuple[str, str, Mapping[str, Any]]] = []

    async def ask(self, gateway: str, verb: str, args: Mapping[str, Any]) -> Any:
        fault = next((one for one in sorted(self.left) if one[:2] == (gateway, verb)), None)
        if fault is None:
            return await super().ask(gateway, verb, args)
        self.left.discard(fault)
        try:
            if fault[2] == "unanswered":
                await super().ask(gateway, verb, args)
            elif fault[2] in ("late", "twice"):
                self.late.append((gateway, verb, args))
                if fault[2] == "twice":
                    return await super().ask(gateway, verb, args)
            raise EdgertError("no answer")
        finally:
            self.down |= self.silent

    async def arrive(self) -> None:
        """What is late arrives."""
        late, self.late = self.late, []
        for one in late:
            with contextlib.suppress(EdgertError):
                await Fenced.ask(self, *one)


async def change(mend: FleetMend, after: On) -> None:
    flows, lease = mend._flows, SimpleNamespace(record=SimpleNamespace(boards=BOARDS), write=done, note=done)

    @contextlib.asynccontextmanager
    async def held(_: str) -> AsyncIterator[Any]:
        yield lease

    cast(Any, flows.leases).held = held
    async with flows.changing("f"):
        await flows.change("f", await flows.running("f"), after, Why("person", "asked for"))


async def done(*_: Any) -> None:
    """A majority of the boards answers."""


def make(*steps: Step) -> Faulty:
    """Tries the changes; then all boards answer, and the flow's coordinator ends what was left."""
    gateways = Faulty()

    async def run() -> None:
        mend, before = next_coordinator(gateways), frozenset[str]()
        for step in steps:
            gateways.left, gateways.silent = set(step.faults), step.silent
            with contextlib.suppress(EdgertError):
                await change(mend, step.after)
            gateways.down -= before
            before = step.silent
            await gateways.arrive()
        gateways.left, gateways.down = set(), set()
        for _ in range(4):
            await mend.end_change("f")

    run_virtual(run())
    assert not gateways.mixed
    whole(gateways)
    return gateways


def faults(*told: Fault) -> frozenset[Fault]:
    return frozenset(told)


def test_a_board_that_missed_the_abort_has_no_part_of_the_next_change() -> None:
    """`c` prepared to take the operators, and heard nothing more."""
    undone = Step(AT_C, faults(("c", "part.prepare", "unanswered")), frozenset("c"))
    assert make(undone, Step(NEAR)).on["a"] == NEAR


def test_an_abort_that_overtakes_the_request_to_prepare_leaves_nothing_for_the_next_change() -> None:
    undone = Step(AT_C, faults(("b", "part.prepare", "lost"), ("c", "part.prepare", "late")))
    assert make(undone, Step(NEAR)).on["a"] == NEAR


def test_state_that_was_prepared_for_a_change_that_was_undone_is_not_taken_for_that_of_the_next_one() -> None:
    """Both go to `c`, which the second does not reach, and its coordinator dies."""
    undone = Step(AT_C, faults(("c", "part.prepare", "unanswered"), ("c", "part.abort", "lost")))
    again = faults(("c", "part.prepare", "lost"), *((board, "part.abort", "lost") for board in BOARDS))
    assert make(undone, Step(AT_C, again)).on["a"] == AT_B


def test_a_board_that_has_left_and_was_not_told_does_not_run_again_once_the_flow_went_on() -> None:
    gone = Step(AT_C, faults(("b", "part.commit", "lost")), frozenset("b"))
    made = make(gone, Step({**AT_C, "out": "a"}))
    assert made.on["a"] == {**AT_C, "out": "a"}
    assert made.state["b"] == "gone"


def test_a_board_that_left_is_told_so_after_another_change_has_stopped_the_others_and_was_undone() -> None:
    left = Step(AT_B, faults(("a", "part.commit", "lost")), frozenset("c"))
    made = make(Step(APART), left, Step(NEAR, faults(("a", "part.stop", "lost"))))
    assert made.on["a"] == AT_B
    assert made.state["c"] == "gone"


def test_a_board_that_comes_is_told_so_after_another_change_was_tried() -> None:
    """Its imports are of the plan before. The boards that gave them run by the next plan already."""
    comes = Step(APART, faults(("a", "part.commit", "lost")), frozenset("c"))
    made = make(comes, Step(AT_B), Step(AT_B))
    assert {made.state[board] for board in BOARDS} == {"running"}


def test_a_board_that_has_left_and_is_asked_to_prepare_that_once_more_keeps_nothing() -> None:
    made = make(Step(AT_C), Step(AT_B, faults(("c", "part.prepare", "twice"))))
    assert made.state["c"] == "gone"


VERBS = ("part.copy", "part.ahead", "part.stop", "part.export", "part.prepare", "part.commit", "part.abort")
FAULTS = st.tuples(
    st.sampled_from(BOARDS), st.sampled_from(VERBS), st.sampled_from(["lost", "unanswered", "late", "twice"])
)  # fmt: skip
STEPS = st.builds(
    Step,
    st.sampled_from([AT_B, AT_C, APART, NEAR]),
    st.frozensets(FAULTS, max_size=4),
    st.frozensets(st.sampled_from("bc"), max_size=1),
)


@given(st.lists(STEPS, min_size=2, max_size=4))
@settings(max_examples=300)
def test_the_flow_is_whole_after_changes_in_a_row_of_which_any_request_is_lost_or_late(steps: list[Step]) -> None:
    make(*steps)
