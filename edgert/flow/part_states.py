"""States of a gateway's part of a flow while its plan is changed: one table of what each event makes of each state.

The gateway (`gateway.flows.parts`), the simulated one (`agent.simulation.gateway`) and the gateways in the tests of the
coordinator go by this table.

python -m edgert.flow.part_states     # the diagram in docs/internals/plan-changes.md
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from edgert.core.errors import EdgertError, show


class PartState(StrEnum):
    """A gateway's part of one flow."""

    GONE = "gone"
    """No part, and none prepared."""
    RUNNING = "running"
    STOPPED = "stopped"
    """Stands still at a committed checkpoint, and goes on by itself when its patience ends."""
    SUSPENDED = "suspended"
    """Stands still until this board's agent, or a coordinator, says otherwise."""
    JOINING = "joining"
    """No part by the present plan; that of the next one is prepared."""
    PREPARED = "prepared"
    """Stands still; its part of the next plan is prepared."""
    COMMITTED = "committed"
    """The database has the next plan as the flow's; the part does not run by it yet."""

    @property
    def told(self) -> str:
        """The state as coordinators are told it (`part.status`)."""
        if self is PartState.SUSPENDED:
            return PartState.STOPPED.value
        return PartState.PREPARED.value if self in (PartState.JOINING, PartState.COMMITTED) else self.value


class PartEvent(StrEnum):
    """A request, or what happens at the gateway."""

    CHANGE = "another change"
    """A deployment, a removal, another placement on this board, a copy of the state."""
    SUSPEND = "suspend"
    RESUME = "resume"
    STOP = "stop"
    PATIENCE_ENDS = "patience ends"
    PREPARE = "prepare"
    PREPARE_OTHER = "prepare another plan"
    """Than the one that is prepared."""
    ABORT = "abort"
    ABORT_OTHER = "abort another plan"
    """Than the one that is prepared."""
    COMMIT = "commit"
    COMMIT_PAST = "commit once more"
    """A plan by which the part runs, or one before, or any where there is no part."""
    COMMIT_OTHER = "commit another plan"
    """One that is not prepared and by which the part does not run."""
    STAYS = "goes on by the next plan"
    LEAVES = "has no operator by the next plan"
    START = "start"
    """The gateway starts anew, from its database. A part that was committed is running or gone then."""
    START_AS_GUEST = "start as a guest"
    """A start where guests wait for this board's agent."""


class Refusal(StrEnum):
    """The answer to a request that a state does not allow."""

    NO_PART = "expected a flow that runs here, got {shown}"
    CHANGING = "the plan of flow {flow} is being changed; try again"
    RUNS = "flow {flow} runs: stop it before its next plan is prepared"
    DECIDED = "flow {flow} is committed to plan {prepared}: commit it again, so that it runs by it"
    NOT_PREPARED = "flow {flow}: expected a prepared plan {plan}, got {prepared}"


_G, _R, _S, _U, _J, _P, _C = PartState
_HERE, _BUSY, _RUNS, _MADE, _PLAN = Refusal
_GRID: Final[Mapping[PartEvent, tuple[PartState | Refusal | None, ...]]] = {
    # in this state:        gone       running    stopped    suspended  joining    prepared   committed
    PartEvent.CHANGE:          (_G,        _R,        _BUSY,     _BUSY,     _BUSY,     _BUSY,     _BUSY),
    PartEvent.SUSPEND:         (_HERE,     _U,        _S,        _U,        _J,        _P,        _C),
    PartEvent.RESUME:          (_G,        _R,        _S,        _R,        _J,        _P,        _C),
    PartEvent.STOP:            (_HERE,     _S,        _S,        _S,        _BUSY,     _BUSY,     _BUSY),
    PartEvent.PATIENCE_ENDS:   (None,      None,      _R,        _U,        None,      _P,        _C),
    PartEvent.PREPARE:         (_J,        _RUNS,     _P,        _P,        _J,        _P,        _MADE),
    PartEvent.PREPARE_OTHER:   (None,      None,      None,      None,      _J,        _BUSY,     _MADE),
    PartEvent.ABORT:           (_G,        _R,        _R,        _R,        _G,        _R,        _MADE),
    PartEvent.ABORT_OTHER:     (None,      None,      None,      None,      _J,        _P,        _MADE),
    PartEvent.COMMIT:          (None,      None,      None,      None,      _C,        _C,        _C),
    PartEvent.COMMIT_PAST:     (_G,        _R,        _S,        _U,        None,      None,      None),
    PartEvent.COMMIT_OTHER:    (None,      _PLAN,     _PLAN,     _PLAN,     _PLAN,     _PLAN,     _PLAN),
    PartEvent.STAYS:           (None,      None,      None,      None,      None,      None,      _R),
    PartEvent.LEAVES:          (None,      None,      None,      None,      None,      None,      _G),
    PartEvent.START:           (_G,        _R,        _R,        _R,        _J,        _P,        None),
    PartEvent.START_AS_GUEST:  (None,      _U,        _U,        _U,        None,      _P,        None),
}  # fmt: skip
TABLE: Final[Mapping[tuple[PartState, PartEvent], PartState | Refusal]] = {
    (state, event): cell for event, row in _GRID.items() for state, cell in zip(PartState, row, strict=True) if cell
}
"""All pairs that can be."""


def state_of(*, part: bool, stands: bool, suspended: bool, prepared: bool, committed: bool) -> PartState:
    """The state, from what the gateway has of the flow."""
    if prepared:
        return PartState.COMMITTED if committed else PartState.PREPARED if part else PartState.JOINING
    if stands:
        return PartState.SUSPENDED if suspended else PartState.STOPPED
    return PartState.RUNNING if part else PartState.GONE


def event_of(request: PartEvent, plan: int, prepared: int | None, runs_by: int | None) -> PartEvent:
    """The event that a request is which names a plan. `prepared`: the plan that is prepared here; `runs_by`: that of
    the part."""
    if request is PartEvent.COMMIT and plan != prepared:
        past = prepared is None and (runs_by is None or runs_by >= plan)
        return PartEvent.COMMIT_PAST if past else PartEvent.COMMIT_OTHER
    if prepared is None or plan == prepared:
        return request
    return {PartEvent.PREPARE: PartEvent.PREPARE_OTHER, PartEvent.ABORT: PartEvent.ABORT_OTHER}.get(request, request)


def after(flow: str, state: PartState, event: PartEvent, plan: int = 0, prepared: int | None = None) -> PartState:
    """The state after the event. Raises `EdgertError` where the state does not allow it. `plan`: the one that was asked
    for; `prepared`: the one that is prepared here."""
    found = TABLE[state, event]
    if isinstance(found, Refusal):
        raise EdgertError(found.format(flow=flow, shown=show(flow), plan=plan, prepared=prepared))
    return found


def markdown() -> str:
    """The table for people: a diagram as text, and the requests that are refused."""
    lines = ["```"]
    for state in PartState:
        steps: dict[PartState, list[str]] = {}
        for event in PartEvent:
            to = TABLE.get((state, event))
            if isinstance(to, PartState) and to is not state:
                steps.setdefault(to, []).append(event)
        for number, (to, events) in enumerate(steps.items()):
            lines.append(f"{'' if number else state:<9} ── {', '.join(events)} ──▶ {to}")
    lines += ["```", "", "| refused | in state | answer |", "|---|---|---|"]
    for refusal in Refusal:
        for event in PartEvent:
            states = [state for state in PartState if TABLE.get((state, event)) is refusal]
            if states:
                answer = refusal.format(flow="air", shown="'air'", plan=9, prepared=8)
                lines.append(f"| {event} | {', '.join(states)} | {answer} |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(markdown())
