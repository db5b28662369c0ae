"""Lifeguard: the health of this agent itself (§IV-A), and a running suspicion of a member (§IV-B).

Dadgar, Phillips, Currey, DSN-W 2018. An agent that is starved itself suspects others more slowly; the more members
suspect one, the sooner it is held for dead.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from agent.membership.parameters import Parameters


@dataclass(slots=True)
class LocalHealth:
    """A score from 0 (healthy) to `limit`. Probe interval and time-out are multiplied by score + 1."""

    limit: int
    score: int = 0

    @property
    def multiplier(self) -> int:
        return self.score + 1

    def adjust(self, change: int) -> None:
        """Add `change`, within the bounds: positive for signs of trouble of our own, negative for a good probe."""
        self.score = min(max(self.score + change, 0), self.limit)


@dataclass(slots=True)
class Suspicion:
    """One member's suspicion at this agent. `began` is a monotonic time in seconds."""

    began: float
    members: int
    """Size of the fleet when the suspicion began."""
    checked_at: float | None = None
    """Monotonic time of the last look before its end; None: not taken yet."""
    patience: float = 1.0
    """Factor of its time: greater than 1 for a member that refuted suspicions in the last minute."""
    witnesses: set[str] = field(default_factory=set)
    """Names of the members that suspect it by their own probes."""

    def confirm(self, witness: str, parameters: Parameters) -> bool:
        """Count an independent witness. True if it is new and still needed: then the claim is worth passing on."""
        if witness in self.witnesses or len(self.witnesses) > parameters.confirmations:
            return False
        self.witnesses.add(witness)
        return True

    def deadline(self, parameters: Parameters) -> float:
        """The monotonic time at which its time is over. Not before a last look is the member declared dead."""
        return self.began + self.patience * parameters.suspicion(self.members, max(len(self.witnesses) - 1, 0))

    def next_step(self, parameters: Parameters) -> float:
        """The monotonic time of the last look, or after it of the end, which gives the answers time to come."""
        if self.checked_at is None:
            return self.deadline(parameters) - parameters.last_look_s
        return max(self.deadline(parameters), self.checked_at + parameters.last_look_s)

    def put_off(self, seconds: float) -> None:
        """Do not count time in which this agent did not run."""
        self.began += seconds
