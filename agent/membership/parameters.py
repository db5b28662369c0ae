"""The tunables of the membership protocol and the formulas made of them.

SWIM: Das, Gupta, Motivala, DSN 2002. Lifeguard: Dadgar, Phillips, Currey, DSN-W 2018.
"""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Parameters:
    """All times in seconds."""

    probe_interval_s: float = 1.0
    """One member is probed per interval (SWIM §3.1; Lifeguard multiplies it by the local health). Shorter: deaths are
    seen sooner, and each board sends more."""
    probe_timeout_s: float = 0.4
    """Wait for a direct answer before the member is pinged again, for a packet may be lost; and as long again before
    others are asked to probe (SWIM §3.1). Beyond the fleet's round-trip times."""
    probe_intervals: float = 4.0
    """A member that answers nothing for so many probe intervals is suspected. SWIM and Lifeguard suspect it after one,
    and wait longer for its refutation: then every pause of a starved member comes to all members twice. Greater than
    its pauses, and the suspicion time smaller by as much: no packet but its late answer, and a death is seen as
    soon."""
    indirect_probes: int = 3
    """Members that are asked to probe one that did not answer (SWIM §3.1)."""
    probers_of_suspect: float = 8.0
    """Members that, on average, probe a suspect as soon as they hear of the suspicion, and not in its turn: so that
    there are soon enough witnesses, or a refutation."""
    suspicion_factor: float = 0.8
    """Least suspicion time = factor · log10(members) · probe interval (Lifeguard §IV-B). A member that is starved for
    longer than this and the time of a probe is declared dead. 0.8 gives 2.4 s in a fleet of 1,000, so that a death is
    known within 10 s."""
    least_suspicion_s: float = 2.4
    """Floor of the least suspicion time, for small fleets."""
    suspicion_spread: float = 6.0
    """Greatest suspicion time, without a second witness, as a multiple of the least (Lifeguard §IV-B)."""
    suspicion_patience: float = 3.0
    """Greatest factor of the suspicion time of a member that refuted suspicions in the last minute (the health that
    Lifeguard §IV-A multiplies with, as the others see it). The death of such a member is seen so much later."""
    last_look_s: float = 0.8
    """Time before the end of a suspicion at which the suspect and some other members are pinged once more."""
    last_look_fanout: int = 4
    """The number of these other members. Each that has heard of a refutation tells it, unless a packet is lost."""
    confirmations: int = 3
    """Independent witnesses, beside the first, at which a suspicion time falls to the least (Lifeguard §IV-B)."""
    retransmit_factor: float = 4.0
    """An update is sent factor · log10(members + 1) times by each member (SWIM §4.1: λ log n)."""
    suspicion_retransmit_factor: float = 1.3
    """The factor for suspicions: each witness has one, and it need not come to every member, as the death does that may
    follow it."""
    gossip_interval_s: float = 0.2
    """Time between two rounds of gossip; without news a round sends nothing."""
    gossip_fanout: int = 2
    """Members that a round of gossip goes to."""
    refutation_fanout: int = 6
    """Members that a refutation goes to at once: its sender may be starved again within milliseconds, and two packets
    of gossip are both lost, or go to starved members, too often."""
    gossip_bytes_s: float = 1_200.0
    """Sustained bytes per second of gossip that no probe carries; what exceeds it waits, the newest first."""
    gossip_burst_bytes: float = 12_000.0
    state_bytes_s: float = 400.0
    """Sustained bytes per second of sections of state in all packets together, those that carry a probe, too. State of
    `members` boards that changes every `state_interval` is more than this in a large fleet: then each board has it
    somewhat later."""
    state_burst_bytes: float = 3_000.0
    state_per_member_s: float = 0.5
    """State that changes all the time is published at most once in this time per member."""
    sync_interval_s: float = 30.0
    """Mean time between two exchanges of the whole table over TCP (anti-entropy); grows with log2(members / 32)."""
    health_limit: int = 8
    """The local health multiplier goes from 1 to 1 + this (Lifeguard §IV-A)."""
    stall_s: float = 0.75
    """A tick that comes so much too late shows that this process was starved: its timers are put off by the delay."""
    forget_dead_s: float = 86_400.0
    """A dead member is kept so long, so that a split fleet can heal."""
    forget_left_s: float = 3_600.0
    max_members: int = 4_096
    """Bound of the table: a member beyond it is not taken in, and counted."""
    max_section_bytes: int = 900
    """Bound of one packed section of a member's state: it must fit into a packet."""

    def least_suspicion(self, members: int) -> float:
        """Least suspicion time in a fleet of `members`."""
        scaled = self.suspicion_factor * math.log10(max(members, 1)) * self.probe_interval_s
        return max(self.least_suspicion_s, scaled)

    def suspicion(self, members: int, confirmations: int) -> float:
        """Suspicion time with `confirmations` independent witnesses beside the first (Lifeguard §IV-B)."""
        least = self.least_suspicion(members)
        greatest = least * self.suspicion_spread
        wanted = min(self.confirmations, max(members - 2, 0))
        if wanted == 0:
            return least
        share = math.log(confirmations + 1) / math.log(wanted + 1)
        return max(least, greatest - (greatest - least) * share)

    def transmissions(self, members: int) -> int:
        """Returns how often each member sends an update."""
        return max(2, math.ceil(self.retransmit_factor * math.log10(members + 1)))

    def transmissions_of_suspicions(self, members: int) -> int:
        """Returns how often each member sends a suspicion."""
        return max(2, math.ceil(self.suspicion_retransmit_factor * math.log10(members + 1)))

    def state_interval(self, members: int) -> float:
        """Least time between two publications of state that changes all the time, in a fleet of `members`."""
        return self.state_per_member_s * members

    def sync_interval(self, members: int) -> float:
        """Mean time between two exchanges of the whole table in a fleet of `members`."""
        return self.sync_interval_s * max(1.0, math.log2(max(members, 1) / 32) + 1)
