"""A board's vote: to which coordinator it grants the lease of a flow, and what it remembers of the flow.

A coordinator asks all boards for the lease with a number of its own (`agent.lease.fences`). A board grants it to one at
a time, for `LEASE_S` from the last renewal, and takes nothing from a coordinator with a smaller number than the
greatest one that it promised. A coordinator writes all its records by the number that a majority promised it. What a
majority has written, the next coordinator reads from its majority, since two majorities have a board in common
(Lamport, "The Part-Time Parliament", 1998, with one register per flow): which boards may have a part of the flow. So no
coordinator deploys a flow anew beside a part that it does not see.

The lease only keeps two coordinators from hindering each other. That a flow has one owner rests on the numbers.

A board remembers `MOST_FLOWS` flows. Of one that it forgets it keeps the number, in a floor for all flows that it does
not remember: so no number is promised again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeGuard

from agent.lease.fences import FAR_STEPS, NEAR_STEPS, credible, is_of, steps
from edgert.core.ids import COORDINATOR_BITS

LEASE_S: Final = 15.0
"""A coordinator that renews nothing for so long has lost its lease. Longer: the next one waits longer after a death."""
MAX_NUMBER: Final = 2**63
MOST_BOARDS: Final = 4_096
MOST_FLOWS: Final = 1_024
"""Flows that a board remembers. One more forgets the removed flow that was written longest ago; where there is none,
the board grants nothing for a flow that it does not know."""
FAR_PAUSE_S: Final = 60.0
"""A board takes a number that is far above the last one once in this time, of all flows together. So the numbers of a
flow, 2^31 changes, outlast a member that raises them as fast as it can by weeks, and its revocation ends that."""
STATES: Final = ("", "deploying", "runs", "removing", "removed")
"""States of a flow; empty: nothing is remembered."""


class Record(NamedTuple):
    """The memory of a flow. Of several records the greatest one holds."""

    number: int = 0
    """The number that a majority promised the coordinator that wrote it."""
    step: int = 0
    """Counts the records of that coordinator."""
    state: str = ""
    boards: tuple[str, ...] = ()
    """Boards that may have a part of the flow."""

    def plain(self) -> list[Any]:
        return [self.number, self.step, self.state, list(self.boards)]


@dataclass(slots=True)
class Grant:
    """Grants of one flow. Times are monotonic seconds."""

    promised: int = 0
    holder: str = ""
    until: float = float("-inf")
    record: Record = Record()
    written_at: float | None = None
    """Time of the last record; None: no record has come since this agent began."""

    def held_by_another(self, coordinator: str, now: float) -> bool:
        return self.holder != coordinator and now < self.until

    def is_spare(self, now: float) -> bool:
        """The flow is not there, and nobody changes it."""
        return now >= self.until and self.record.state in ("", "removed")


class Grants:
    """The votes of one board, by flow. What `plain` gives must be on the disk before anything is answered."""

    def __init__(self, stored: Mapping[str, Grant], now: float, floor: int = 0) -> None:
        """A lease that was granted before a restart may last for `LEASE_S` more."""
        self._grants = dict(stored)
        """Flows that were written longest ago first."""
        self.floor = floor
        """The greatest number that was promised for a flow that is forgotten."""
        self.refused: frozenset[int] = frozenset()
        """Marks of revoked coordinators (`agent.lease.fences`). Their records make way where there is no room."""
        self._far_at = float("-inf")
        for grant in self._grants.values():
            grant.until = now + LEASE_S if grant.holder else float("-inf")

    def take(self, flow: str, number: int, holder: str, now: float) -> dict[str, Any]:
        """`{"granted": bool, "promised": number, "record": [...]}`; where it is refused since another one has the lease
        the `holder`, where it is granted `age_s`, the time since the last write, if that is known."""
        grant = self._of(flow)
        if grant.held_by_another(holder, now):
            return {"granted": False, "promised": grant.promised, "holder": grant.holder}
        self._lift(flow, number, grant, now)
        if number <= grant.promised or not self._credible(number, grant, now) or not self._keeps(flow, grant, now):
            return {"granted": False, "promised": grant.promised}
        grant.promised, grant.holder, grant.until = number, holder, now + LEASE_S
        answer = {"granted": True, "promised": number, "record": grant.record.plain()}
        return answer if grant.written_at is None else {**answer, "age_s": now - grant.written_at}

    def renew(self, flow: str, number: int, holder: str, now: float) -> bool:
        """False if another coordinator has the lease now. Keeps nothing: a restart counts as a renewal."""
        grant = self._of(flow)
        if grant.holder != holder or number < grant.promised:
            return False
        grant.until = now + LEASE_S
        return True

    def write(self, flow: str, record: Record, holder: str, now: float) -> bool:
        """Remembers what a coordinator says; False if a greater number was promised, another one has the lease, or a
        later record of the same one has come."""
        grant = self._of(flow)
        late = record.number < grant.promised or record < grant.record
        if (
            late
            or not self._credible(record.number, grant, now)
            or grant.held_by_another(holder, now)
            or not self._keeps(flow, grant, now)
        ):
            return False
        grant.promised, grant.record, grant.written_at = record.number, record, now
        self._grants[flow] = self._grants.pop(flow)
        return True

    def _lift(self, flow: str, number: int, grant: Grant, now: float) -> None:
        """Comes nearer to a number that is not credible: others may have promised it step by step, to a liar. So this
        board votes again after as many minutes as the liar had."""
        far = steps(number, grant.promised) > FAR_STEPS
        if far and now - self._far_at >= FAR_PAUSE_S and self._keeps(flow, grant, now):
            self._far_at = now
            grant.promised += FAR_STEPS << COORDINATOR_BITS

    def _credible(self, number: int, grant: Grant, now: float) -> bool:
        ahead = steps(number, grant.promised)
        if NEAR_STEPS < ahead <= FAR_STEPS and now - self._far_at >= FAR_PAUSE_S:
            self._far_at = now
            return True
        return ahead <= NEAR_STEPS

    def holds(self, flow: str, number: int, holder: str, now: float) -> bool:
        """True if this board promised the lease of a flow to a coordinator, by this number, and it is not over."""
        grant = self._of(flow)
        return (grant.promised, grant.holder) == (number, holder) and now < grant.until

    def release(self, flow: str, number: int, holder: str) -> None:
        grant = self._of(flow)
        if grant.holder == holder and number >= grant.promised:
            grant.holder, grant.until = "", float("-inf")

    def promised(self, flow: str) -> int:
        return self._of(flow).promised

    def record(self, flow: str) -> Record:
        """The record that this board remembers; others may have a newer one."""
        return self._of(flow).record

    def _of(self, flow: str) -> Grant:
        """The grant of a flow; of one that is not known, or was forgotten, one with the floor."""
        return self._grants.get(flow) or Grant(self.floor)

    def _keeps(self, flow: str, grant: Grant, now: float) -> bool:
        """Remembers the grant from now on; False where there is no room."""
        if flow not in self._grants and len(self._grants) >= MOST_FLOWS:
            spare = [name for name, other in self._grants.items()
                     if other.is_spare(now) or is_of(other.record.number, self.refused)]  # fmt: skip
            if not spare:
                return False
            gone = min(spare, key=lambda name: self._grants[name].record.state != "")  # the first one without a record
            self.floor = max(self.floor, self._grants.pop(gone).promised)
        self._grants[flow] = grant
        return True

    def learn(self, others: Grants, now: float) -> None:
        """Takes over greater promises and newer records; who has the lease of a flow stays as it is. Raises
        `ValueError` where there is no room."""
        blank = not self._grants
        if blank or steps(others.floor, self.floor) <= FAR_STEPS:
            self.floor = max(self.floor, others.floor)
        for flow, other in others._grants.items():
            grant = self._of(flow)
            if not blank and steps(max(other.promised, other.record.number), grant.promised) > FAR_STEPS:
                continue  # not credible; this board's vote for the flow stays as it is
            grant.promised = max(grant.promised, other.promised, other.record.number)
            grant.record = max(grant.record, other.record)
            if not self._keeps(flow, grant, now):
                raise ValueError(f"expected room for flow {flow}: this board remembers {MOST_FLOWS} others")

    def clear(self) -> None:
        """Forgets all: this board belongs to another fleet now, with numbers of its own."""
        self.floor = 0
        self._grants.clear()

    def plain(self) -> dict[str, list[Any]]:
        """Returns the grants as JSON types, for the disk and for other boards."""
        return {flow: [grant.promised, grant.holder, grant.record.plain()] for flow, grant in self._grants.items()}


def gathered(told: Sequence[Grants], now: float) -> Grants:
    """Returns of each flow the greatest credible promise and record that several boards remember."""
    floor = credible([one.floor for one in told])
    found = Grants({}, now, floor)
    for flow in dict.fromkeys(flow for one in told for flow in one._grants):
        grants = [one._of(flow) for one in told]
        most = credible([max(grant.promised, grant.record.number) for grant in grants])
        true = [grant for grant in grants if max(grant.promised, grant.record.number) <= most]
        found._grants[flow] = Grant(max(grant.promised for grant in true), record=max(grant.record for grant in true))
        if len(found._grants) == MOST_FLOWS:
            break
    return found


def record_untrusted(plain: Any) -> Record:
    """Raises `ValueError`."""
    if not isinstance(plain, list) or len(plain) != 4:
        raise ValueError("expected a number, a step, a state and boards")
    number, step, state, boards = plain
    fits = isinstance(boards, list) and len(boards) <= MOST_BOARDS and all(isinstance(one, str) for one in boards)
    if not is_number(number) or not is_number(step) or state not in STATES or not fits:
        raise ValueError(f"expected a number, a step, one of the states {', '.join(STATES[1:])}, and boards")
    return Record(number, step, state, tuple(boards))


def is_number(plain: Any) -> TypeGuard[int]:
    """True for a number that a coordinator can have."""
    return type(plain) is int and 0 <= plain < MAX_NUMBER


def grants_untrusted(plain: Any) -> dict[str, Grant]:
    """Reads the result of `Grants.plain`. Raises `ValueError`."""
    if not isinstance(plain, Mapping) or len(plain) > MOST_FLOWS:
        raise ValueError(f"expected grants of at most {MOST_FLOWS} flows")
    found: dict[str, Grant] = {}
    for flow, told in plain.items():
        fits = isinstance(told, list) and len(told) == 3 and is_number(told[0]) and isinstance(told[1], str)
        if not isinstance(flow, str) or not fits:
            raise ValueError("expected of each flow a number, a holder and a record")
        found[flow] = Grant(told[0], told[1], record=record_untrusted(told[2]))
    return found
