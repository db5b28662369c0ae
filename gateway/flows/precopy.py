"""State of operators that travels to the boards of the next plan while the flow still runs by the present one.

Once the state of a flow is large, most of the time of a change of plan goes into reading it: into the instances of the
next plan, and out of them to be stored. So a coordinator has it sent ahead, as of a checkpoint made for that:

    copy     a board that gives operators away says their state
    ahead    a board of the next plan builds its part of it, with that state and its own

In the pause only what the flow has changed since travels and is read. Nothing of it is durable: where a board does not
have what was sent ahead any more (it started again, its stored state was merged meanwhile), the whole state travels in
the pause. Pre-copy of live migration: Clark et al., "Live Migration of Virtual Machines", NSDI 2005, section 3.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from edgert.core.checkpoint.position import Position
from edgert.core.errors import EdgertError
from edgert.flow.graph import Flow
from edgert.flow.plan import Assignment
from edgert.runtime.checkpoint import restore
from edgert.runtime.checkpoint.packing import pack_state
from edgert.runtime.checkpoint.progress import Progress
from edgert.runtime.flow_run import FlowRun
from edgert.store.plan_change import Prepared
from gateway.flows.exports import states_of_operators, waiting_here
from gateway.flows.flows import Flows

KEPT_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class Copied:
    """The state of operators that leave, as a board gave it ahead."""

    token: str
    """Token by which the coordinator refers to it."""
    blobs: Sequence[bytes]
    """The stored state of the flow here at that moment."""


@dataclass(slots=True)
class PrecopiedPart:
    """A board's part of the next plan, as of checkpoints before the stop."""

    plan: int
    assignment: Assignment
    run: FlowRun
    base: bytes
    """All state in `run`, packed."""
    own: Sequence[bytes]
    """The stored state of the flow here that is in `run`."""
    imported: Sequence[bytes]
    """The state of other boards that is."""
    tokens: Mapping[str, str]
    """Giving gateway → the token of what it said."""


@dataclass(slots=True)
class Precopy:
    """State that was sent ahead, by flow. Lives on the loop; `form` runs on a thread, while nothing else is done for
    the flow."""

    flows: Flows
    copied: dict[str, Copied] = field(default_factory=dict)
    parts: dict[str, PrecopiedPart] = field(default_factory=dict)
    ready: dict[str, tuple[Prepared, FlowRun]] = field(default_factory=dict)
    """Parts that were formed and stored, each with a run that has all of their state."""
    kept_s: float = KEPT_S
    """State that was sent ahead is forgotten after so long: its coordinator is gone."""

    async def copy(self, flow: str, blobs: Sequence[bytes], operators: Collection[str], most: int) -> dict[str, Any]:
        """The state of operator copies, of a flow of which `blobs` are stored; only its size where that is above `most`
        bytes."""
        copied = self.copied[flow] = Copied(secrets.token_hex(8), blobs)
        asyncio.get_running_loop().call_later(self.kept_s, self._forget_copied, flow, copied)
        states = await asyncio.to_thread(states_of_operators, blobs, operators)
        size = sum(map(len, states))
        return {"token": copied.token, "states": states if size <= most else [], "bytes": size}

    def known(self, flow: str) -> Sequence[bytes]:
        """The stored state of which a copy was made."""
        copied = self.copied.get(flow)
        return copied.blobs if copied is not None else ()

    def since(self, flow: str, token: str, blobs: Sequence[bytes]) -> Sequence[bytes] | None:
        """The state that was stored behind the copy that `token` names; None where that does not tell the whole."""
        copied = self.copied.get(flow)
        return behind(blobs, copied.blobs) if copied is not None and copied.token == token else None

    async def take(
        self, flow: Flow, assignment: Assignment, plan: int, own: Sequence[bytes], copies: Mapping[str, Any]
    ) -> None:
        """Builds this board's part of a plan. `copies`: source gateway → its copied state (`copy`)."""
        imported = [state for one in copies.values() for state in one["states"]]
        tokens = {gateway: str(one["token"]) for gateway, one in copies.items()}
        run, base = await asyncio.to_thread(self._build, flow, assignment, plan, [*own, *imported])
        part = self.parts[flow.name] = PrecopiedPart(plan, dict(assignment), run, base, own, imported, tokens)
        asyncio.get_running_loop().call_later(self.kept_s, self._forget_part, flow.name, part)

    def _build(self, flow: Flow, assignment: Assignment, plan: int, blobs: Sequence[bytes]) -> tuple[FlowRun, bytes]:
        run = self.flows.plans.planned(flow, assignment, plan, Progress(Position()))
        run.restore_state(blobs)
        base = pack_state({restore.WHOLE: True, **run.snapshot(run.built, run.mine)})
        run.restored = 1
        return run, base

    def found(
        self, flow: Flow, assignment: Assignment, plan: int, imports: Sequence[Mapping[str, Any]]
    ) -> PrecopiedPart | None:
        """The part that was built ahead for a plan; it is used once. None where the imports are whole. Raises
        `EdgertError` where an import builds upon a copy that is not here."""
        part = self.parts.pop(flow.name, None)
        needed = {one["gateway"]: one["since"] for one in imports if one.get("since")}
        if not needed:
            return None
        fits = part is not None and part.run.flow.document == flow.document and part.tokens == needed
        if part is None or not fits or (part.plan, part.assignment) != (plan, dict(assignment)):
            raise EdgertError(
                f"flow {flow.name}: expected the state that {', '.join(needed)} sent ahead for plan {plan}, which "
                "is not here any more; try again"
            )
        return part

    def form(self, part: PrecopiedPart, changes: Sequence[bytes], queue: bytes) -> Prepared:
        """This board's part of the plan, with what changed since. The run in `part` has all state of it then. On a
        thread of its own."""
        run = part.run
        packed = []
        for state in restore.states_of(changes):
            if own := restore.only(state, run.built, run.mine):
                packed.append(pack_state(own))
        run.restore_state(packed)
        run.restored = 1 + len(packed)
        waiting = waiting_here(run, queue)
        return Prepared(dict(run.flow.document), part.plan, part.assignment, [part.base, *packed], waiting)

    def run_of(self, flow: str, prepared: Prepared) -> FlowRun | None:
        """The run that has all state of this prepared part; None where it was not formed here from what was ahead."""
        formed, run = self.ready.get(flow, (None, None))
        return run if formed is prepared else None

    def forget(self, flow: str) -> None:
        """The change of the flow's plan has ended, or another one begins."""
        self.copied.pop(flow, None)
        self.parts.pop(flow, None)
        self.ready.pop(flow, None)

    def _forget_copied(self, flow: str, copied: Copied) -> None:
        if self.copied.get(flow) is copied:
            del self.copied[flow]

    def _forget_part(self, flow: str, part: PrecopiedPart) -> None:
        if self.parts.get(flow) is part:
            del self.parts[flow]


def behind(blobs: Sequence[bytes], earlier: Sequence[bytes]) -> Sequence[bytes] | None:
    """The pieces of stored state behind `earlier` ones; None where these are not what they were: state was merged or
    taken anew meanwhile."""
    before = len(earlier)
    return blobs[before:] if list(blobs[:before]) == list(earlier) else None
