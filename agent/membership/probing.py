"""Probes that run: direct, then over others, then failed (SWIM §3.1); and probes that run for others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from agent.membership.members import Peer
from agent.membership.parameters import Parameters

MAX_RELAYS: Final = 256
MAX_MEASUREMENTS: Final = 256


@dataclass(slots=True)
class Probe:
    """One probe of ours. Times are monotonic seconds."""

    sequence: int
    target: str
    sent: float
    asks_at: float
    ends_at: float
    escalated: bool = False
    """Others were asked to probe it: not before `asks_at`."""
    asked: int = 0
    """How many were asked."""
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
        probe = Probe(
            sequence,
            target,
            now,
            now + p.probe_timeout_s * multiplier,
            now + p.probe_interval_s * multiplier * patience,
        )
        self._probes[sequence] = probe
        return probe

    def relay(self, requester: Peer, original: int, target: str, now: float) -> int | None:
        """Begin a ping for another member; its sequence, or None when too many run."""
        if len(self._relays) >= MAX_RELAYS:
            return None
        sequence, p = self._next(), self._parameters
        ends = now + p.probe_interval_s
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
            rtt = now - probe.sent if sender == probe.target else None
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

    def due_to_ask(self, now: float) -> list[Probe]:
        """Probes without a direct answer in time, each once: others are to be asked now."""
        return [probe for probe in self._probes.values() if not probe.escalated and probe.asks_at <= now]

    def failed(self, now: float) -> list[Probe]:
        """Takes out the probes that were not answered."""
        over = [probe for probe in self._probes.values() if probe.ends_at <= now]
        for probe in over:
            del self._probes[probe.sequence]
        for sequence in [s for s, m in self._measurements.items() if m.ends_at <= now]:
            del self._measurements[sequence]
        return over

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
            probe.asks_at += seconds
            probe.ends_at += seconds

    def next_deadline(self) -> float:
        """The earliest monotonic time at which one of the above has something new; infinite without any."""
        times = [probe.ends_at if probe.escalated else probe.asks_at for probe in self._probes.values()]
        times += [relay.ends_at if relay.nacked else relay.nack_at for relay in self._relays.values()]
        times += [measurement.ends_at for measurement in self._measurements.values()]
        return min(times, default=float("inf"))
