"""Probes that run: direct, then over others, then failed (SWIM §3.1); and probes that run for others.

Lifeguard: the health of this agent itself (§IV-A), and a running suspicion of a member (§IV-B).

Dadgar, Phillips, Currey, DSN-W 2018. An agent that is starved itself suspects others more slowly; the more members
suspect one, the sooner it is held for dead.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final

from agent.membership.members import Peer
from agent.membership.parameters import Parameters

MAX_RELAYS: Final = 256
MAX_MEASUREMENTS: Final = 256


class ProbeStep(IntEnum):
    """A step of a probe that is not answered, in order."""

    REPEAT = 0
    """Ping the target again: a packet may be lost."""
    ASK = 1
    """Ask others to ping it."""
    DOUBT = 2
    """From now on the probe counts as failed where another member suspects the target, too."""
    END = 3
    """The probe failed."""


@dataclass(slots=True)
class Probe:
    """One probe of ours. Times are monotonic seconds."""

    sequence: int
    target: str
    sent: float
    times: list[float]
    """The time at which each step is due."""
    step: ProbeStep = ProbeStep.REPEAT
    """The next step."""
    asked: int = 0
    """The number of members that were asked to ping the target."""
    nacks: int = 0


@dataclass(slots=True)
class Relay:
    """A ping on behalf of `requester`, who used `original` as its sequence."""

    requester: Peer
    original: int
    target: str
    nack_at: float
    ends_at: float
    nacked: bool = False


@dataclass(slots=True)
class Measurement:
    """A ping that only measures a round-trip time: nothing follows from its loss."""

    target: str
    sent: float
    ends_at: float


@dataclass(frozen=True, slots=True)
class Answered:
    """An acknowledgement that was waited for. `rtt_s` is None unless the target itself answered.

    `relay` is set where it belongs to another member's probe, `probed` where it ends a probe of ours."""

    target: str
    rtt_s: float | None
    relay: Relay | None = None
    probed: bool = False


class Prober:
    """Keeps sequences and deadlines; it sends nothing itself."""

    def __init__(self, parameters: Parameters, first_sequence: int) -> None:
        self._parameters = parameters
        self._sequence = first_sequence
        self._probes: dict[int, Probe] = {}
        self._relays: dict[int, Relay] = {}
        self._measurements: dict[int, Measurement] = {}

    def _next(self) -> int:
        self._sequence += 1
        return self._sequence

    def probe(self, target: str, now: float, multiplier: int, patience: int = 1) -> Probe:
        """Begin a probe. `multiplier` is the local health's; `patience` is the target's, for the end of the probe."""
        sequence, p = self._next(), self._parameters
        timeout_s = p.probe_timeout_s * multiplier
        doubt_s = max(p.probe_interval_s * multiplier, 2 * timeout_s)
        end_s = doubt_s + p.probe_interval_s * (p.probe_intervals - 1 + patience - 1)
        times = [now + after for after in (timeout_s, 2 * timeout_s, doubt_s, end_s)]
        probe = self._probes[sequence] = Probe(sequence, target, now, times)
        return probe

    def relay(self, requester: Peer, original: int, target: str, now: float) -> int | None:
        """Begin a ping for another member; its sequence, or None when too many run."""
        if len(self._relays) >= MAX_RELAYS:
            return None
        sequence, p = self._next(), self._parameters
        ends = now + p.probe_interval_s * p.probe_intervals
        self._relays[sequence] = Relay(requester, original, target, now + 0.8 * p.probe_timeout_s, ends)
        return sequence

    def measure(self, target: str, now: float) -> int | None:
        """Begin a ping that only measures; its sequence, or None when too many run."""
        if len(self._measurements) >= MAX_MEASUREMENTS:
            return None
        sequence = self._next()
        self._measurements[sequence] = Measurement(target, now, now + self._parameters.probe_interval_s)
        return sequence

    def acknowledge(self, sequence: int, sender: str, now: float) -> Answered | None:
        """Takes the acknowledgement of `sequence` by member `sender`. Returns the probe that it ends; None: no probe
        waits for it."""
        if probe := self._probes.pop(sequence, None):
            once = sender == probe.target and probe.step is ProbeStep.REPEAT  # else: the answer to which ping?
            rtt = now - probe.sent if once else None
            return Answered(probe.target, rtt, probed=True)
        if relay := self._relays.get(sequence):
            if sender != relay.target:
                return None
            del self._relays[sequence]
            return Answered(relay.target, None, relay=relay)
        measurement = self._measurements.get(sequence)
        if measurement is None or sender != measurement.target:
            return None
        del self._measurements[sequence]
        return Answered(measurement.target, now - measurement.sent)

    def nack(self, sequence: int) -> None:
        """A member that was asked lives, but could not reach the target either."""
        probe = self._probes.get(sequence)
        if probe is not None and probe.nacks < probe.asked:
            probe.nacks += 1

    def due(self, now: float) -> list[tuple[ProbeStep, Probe]]:
        """The steps of probes that are due, each once. Takes out the probes that have failed."""
        found: list[tuple[ProbeStep, Probe]] = []
        for probe in list(self._probes.values()):
            while probe.sequence in self._probes and probe.times[probe.step] <= now:
                found.append((probe.step, probe))
                if probe.step is ProbeStep.END:
                    del self._probes[probe.sequence]
                else:
                    probe.step = ProbeStep(probe.step + 1)
        for sequence in [s for s, m in self._measurements.items() if m.ends_at <= now]:
            del self._measurements[sequence]
        return found

    def doubts(self, target: str) -> bool:
        """True if a probe of `target` waits for longer than is usual, though others were asked."""
        return any(probe.target == target and probe.step is ProbeStep.END for probe in self._probes.values())

    def due_to_nack(self, now: float) -> list[Relay]:
        """Relays whose target is silent, each once; relays that are over are dropped."""
        for sequence in [s for s, r in self._relays.items() if r.ends_at <= now]:
            del self._relays[sequence]
        due = [relay for relay in self._relays.values() if not relay.nacked and relay.nack_at <= now]
        for relay in due:
            relay.nacked = True
        return due

    def put_off(self, seconds: float) -> None:
        """Do not count time in which this agent did not run."""
        for probe in self._probes.values():
            probe.times = [time + seconds for time in probe.times]

    def next_deadline(self) -> float:
        """The earliest monotonic time at which one of the above has something new; infinite without any."""
        times = [probe.times[probe.step] for probe in self._probes.values()]
        times += [relay.ends_at if relay.nacked else relay.nack_at for relay in self._relays.values()]
        times += [measurement.ends_at for measurement in self._measurements.values()]
        return min(times, default=float("inf"))


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
