"""SWIM with Lifeguard, without input or output: bytes and times in, events and outputs out.

The owner calls `receive_untrusted` for each authenticated packet, `tick` at `next_wakeup()`, and after each of them
takes `take_outputs()` and `take_events()`. Times are monotonic seconds. The algorithm is described in
`docs/internals/membership.md`.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from agent.membership import tables
from agent.membership.claims import Claims
from agent.membership.events import Datagram, Measured, MemberEvent, MemberOutput, SectionChanged, StreamPing, Sync
from agent.membership.gossip import Budgets, GossipQueue, largest_body
from agent.membership.members import Address, Member, Peer, Section, State, Version
from agent.membership.messages import (
    Ack,
    Claim,
    Known,
    MembershipMessage,
    Nack,
    NameHeld,
    Ping,
    PingRequest,
    SectionUpdate,
    body,
    decode_untrusted,
    encode,
)
from agent.membership.parameters import Parameters
from agent.membership.probing import LocalHealth, Probe, Prober, ProbeStep
from agent.membership.roster import Roster, claim_of, section_of

MAX_BETTER = 8
"""Most outdated claims of a ping that its answer sets right."""
FORGET_EVERY_S = 60.0


class Membership:
    """One agent's part of the protocol."""

    def __init__(
        self, name: str, address: Address, epoch: int, parameters: Parameters, random: Random, now: float
    ) -> None:
        self.name = name
        self.parameters = parameters
        self.health = LocalHealth(parameters.health_limit)
        self.coordinate: tuple[float, ...] = ()
        """Our own coordinate, sent with each acknowledgement."""
        self.seeds: list[Address] = []
        """Addresses to join by, as long as no member is known, and now and then afterwards."""
        self.met: dict[Address, str] = {}
        """Seeds that have answered, and the member there: known by its own address, which may be another."""
        self._random = random
        self._own = Member(name, address, Version(epoch, 0, State.ALIVE), now)
        self.roster = Roster(self._own, random, parameters.max_members)
        self._events: list[MemberEvent] = []
        self._outputs: list[MemberOutput] = []
        self.queue = GossipQueue()
        self.claims = Claims(self.roster, self.queue, self.health, parameters, self._events)
        self._prober = Prober(parameters, random.randrange(2**32))
        self._section_version = 0
        self._next_probe = now + random.random() * parameters.probe_interval_s
        self._next_gossip = now
        self._next_sync = now
        self._next_forget = now + FORGET_EVERY_S
        self._failed_joins = 0
        self._budgets = Budgets(self.queue, parameters, now, largest_body(name))
        self._expected_tick = now
        self.stalls = 0
        """How often a tick came so late that this process must have been starved."""
        self.claims.own.announce(now)

    @property
    def epoch(self) -> int:
        """Our restart epoch: each start has a greater one."""
        return self._own.version.epoch

    def take_events(self) -> list[MemberEvent]:
        """The events since the last call."""
        events = self._events[:]
        self._events.clear()
        return events

    def take_outputs(self) -> list[MemberOutput]:
        """The packets and exchanges since the last call."""
        outputs, self._outputs = self._outputs, []
        return [*outputs, *self.claims.refusals.take_outputs()]

    def publish(self, section: str, payload: bytes, again: bool = False) -> None:
        """Replace a section of our state. `again`: also by the same, where its age counts. Raises `ValueError` if it
        does not fit into a packet."""
        limit = self.parameters.max_section_bytes
        if len(payload) > limit:
            raise ValueError(f"section {section}: expected at most {limit} bytes, got {len(payload)}")
        held = self._own.sections.get(section)
        if held is not None and held.payload == payload and not again:
            return
        self._section_version += 1
        self._own.sections[section] = Section(self.epoch, self._section_version, payload)
        self.queue.add_state(section_of(self._own, section), self.name, section)

    def move(self, address: Address, now: float) -> None:
        """Our address is another one than it was said to be."""
        if address != self._own.address:
            self._own.address = address
            self.refute(now)

    def refute(self, now: float) -> None:
        """Tell the fleet anew that we live, and where."""
        self.claims.own.announce(now, incarnation=self._own.version.incarnation + 1)

    def leave(self, now: float) -> None:
        """Tell the fleet that we go. Keep ticking for a second, so that the news spreads."""
        self.claims.own.leaving = True
        self.claims.own.announce(now, State.LEFT)

    def revoke(self, names: frozenset[str], now: float) -> None:
        """These boards, and no others, are refused from now on."""
        self.claims.revoke(names, now)

    def measure(self, target: str, now: float) -> bool:
        """Ping `target` only to measure its round-trip time: an answer gives the event `Measured`."""
        if (member := self.roster.get(target)) is None or (sequence := self._prober.measure(target, now)) is None:
            return False
        self._send(member.peer, member, Ping(sequence, target))
        return True

    # Time

    def next_wakeup(self, now: float) -> float:
        """Returns when `tick` is to be called next, at the latest. News after a calm time finds the time of the last
        gossip, long ago: it goes out `now`, and does not show that we were starved."""
        gossip = max(self._gossip_due(), now)
        deadlines = (self._prober.next_deadline(), self.claims.next_deadline())
        self._expected_tick = min(self._next_probe, self._next_sync, self._next_forget, gossip, *deadlines)
        return self._expected_tick

    def _gossip_due(self) -> float:
        """The monotonic time of the next round of gossip; infinite without news. State alone waits for a full
        packet."""
        if self.queue.claims:
            return self._next_gossip
        if self.queue.states:
            return max(self._next_gossip, self._budgets.full_packet_at())
        return float("inf")

    def tick(self, now: float) -> None:
        """Do what is due."""
        self._budgets.refill(now)
        late = now - self._expected_tick
        if late > self.parameters.stall_s:
            self._stalled(late)
        self._expected_tick = now
        self._run_probes(now)
        self._look_once_more(now)
        self.claims.expire(now)
        self._ping_contested(now)
        if now >= self._next_probe:
            self._begin_probe(now)
        if now >= self._gossip_due():
            self._gossip(now)
        if now >= self._next_sync:
            self._begin_sync(now)
        if now >= self._next_forget:
            self._next_forget = now + FORGET_EVERY_S
            self.claims.forget(now)

    def _stalled(self, seconds: float) -> None:
        """This process did not run: answers may lie unread, so no timer counts that time."""
        self.stalls += 1
        self.health.adjust(1)
        self._prober.put_off(seconds)
        self.claims.put_off(seconds)

    def _begin_probe(self, now: float) -> None:
        self._next_probe = now + self.parameters.probe_interval_s * self.health.multiplier
        if not self.claims.own.leaving and (member := self.roster.next_to_probe()) is not None:
            self._probe(member, now)

    def _probe(self, member: Member, now: float) -> None:
        probe = self._prober.probe(member.name, now, self.health.multiplier, member.patience(now))
        self._send(member.peer, member, Ping(probe.sequence, member.name))

    def _run_probes(self, now: float) -> None:
        for step, probe in self._prober.due(now):
            member = self.roster.get(probe.target)
            if member is None or self.claims.own.leaving:
                continue
            match step:
                case ProbeStep.REPEAT:
                    self._send(member.peer, member, Ping(probe.sequence, member.name))
                case ProbeStep.ASK:
                    self._ask_others(probe, member)
                case ProbeStep.DOUBT:
                    if member.state is State.SUSPECT:
                        self.claims.suspect(member, now)
                case ProbeStep.END:
                    self.health.adjust(probe.asked - probe.nacks if probe.asked > 0 else 1)
                    self.claims.failed(member, now)
                    self.measure(member.name, now)  # tells the suspect, which finds the news when it runs again
        for relay in self._prober.due_to_nack(now):
            self._send(relay.requester, None, Nack(relay.original))

    def _look_once_more(self, now: float) -> None:
        """Before a suspect is held for dead it is pinged, and so are some others: their answers bring what they know
        better. A refutation that did not come here in time makes no false death so."""
        for suspect in self.claims.due_to_check(now):
            others = self.roster.choose(self.parameters.last_look_fanout, lambda m: m.state is State.ALIVE)
            for member in (suspect, *others):
                sequence = self._prober.measure(member.name, now)
                if sequence is not None:
                    parts = [encode(Ping(sequence, member.name)), encode(claim_of(suspect, self.name))]
                    self._outputs.append(Datagram(member.peer, body(parts)))

    def _ask_others(self, probe: Probe, target: Member) -> None:
        others = self.roster.choose(
            self.parameters.indirect_probes, lambda m: m.state is State.ALIVE and m is not target
        )
        probe.asked = len(others)
        for other in others:
            self._send(other.peer, other, PingRequest(probe.sequence, target.name))
        self._outputs.append(StreamPing(target.address, target.name, probe.sequence))

    def _gossip(self, now: float) -> None:
        self._next_gossip = now + self.parameters.gossip_interval_s
        for member in self.roster.choose(self.parameters.gossip_fanout, lambda m: m.state is State.ALIVE):
            if parts := self._budgets.take_packet(self.roster.present):
                self._outputs.append(Datagram(member.peer, body(parts)))

    def _begin_sync(self, now: float) -> None:
        members = self.roster.choose(1, lambda m: m.present)
        syncs = [Sync(member.address, member.name) for member in members]
        lost = tables.lost(self.roster, self.seeds, self.met, self.claims.revoked)
        if lost:  # a split fleet heals, and a fleet that was started apart meets
            syncs.append(self._random.choice(lost))
        if members:
            self._failed_joins = 0
            wait = self.parameters.sync_interval(self.roster.present)
        else:
            self._failed_joins += 1
            wait = min(2.0 ** min(self._failed_joins, 8) / 2, self.parameters.sync_interval_s)
        self._next_sync = now + wait * self._random.uniform(0.75, 1.25)
        self._outputs += syncs

    # Packets

    def _send(self, peer: Peer, to: Member | None, message: MembershipMessage, better: Sequence[str] = ()) -> None:
        """A message with as many updates as fit. A suspect is told first that it is one (Lifeguard: buddy system), and
        the receiver what it does not know about the members `better`."""
        parts = [encode(message)]
        room = largest_body(self.name) - len(parts[0]) - 5
        suspected = to is not None and to.state in (State.SUSPECT, State.DEAD)
        for about in [to if suspected else None, *map(self.roster.get, better[:MAX_BETTER])]:
            if about is not None and len(claim := encode(claim_of(about, self.name))) <= room:
                parts.append(claim)
                room -= len(claim)
        if not suspected:  # what a suspect is told may be told to nobody
            parts += self._budgets.take(room, self.roster.present)
        self._outputs.append(Datagram(peer, body(parts)))

    def receive_untrusted(self, payload: bytes, sender: Peer, now: float) -> None:
        """Take in the body of an authenticated packet from `sender`. Raises `ProtocolError` if it is malformed."""
        messages = decode_untrusted(payload)
        self._budgets.refill(now)
        self.claims.heard(sender.name, now)
        outdated = [m for m in messages if isinstance(m, Claim) and self.claims.knows_better(m)]
        for message in messages:
            self._receive(message, sender, now, outdated)
        self._refute()
        self._ping_contested(now)
        self.claims.refusals.tell(sender, now)

    def _ping_contested(self, now: float) -> None:
        """Pings members whose names are claimed from other addresses, over UDP and TCP. Members that have not answered
        are replaced."""
        interval_s = self.parameters.probe_interval_s * self.health.multiplier
        to_ping, over = self.claims.contests.due(now, interval_s)
        for member in filter(None, map(self.roster.get, to_ping)):
            self.measure(member.name, now)
            self._outputs.append(StreamPing(member.address, member.name, 0))
        for member in filter(None, map(self.roster.get, over)):
            self.claims.failed(member, now)

    def _refute(self) -> None:
        """Send the answer to a suspicion of ourselves at once, outside the budget of gossip."""
        if not self.claims.own.refuting:
            return
        self.claims.own.refuting = False
        payload = body([encode(claim_of(self._own, self.name))])
        for member in self.roster.choose(self.parameters.refutation_fanout, lambda m: m.present):
            self._outputs.append(Datagram(member.peer, payload))

    def _receive(self, message: MembershipMessage, sender: Peer, now: float, outdated: Sequence[Claim] = ()) -> None:
        """`outdated`: claims of the same packet that ours replace; a ping is answered with ours."""
        match message:
            case Claim():
                self._take_claim(message, now)
            case SectionUpdate():
                self._take_section(message, now)
            case Ping():
                if message.target == self.name:
                    ack = Ack(message.sequence, self.coordinate)
                    self._send(sender, self.roster.get(sender.name), ack, [claim.name for claim in outdated])
            case Ack():
                self._acknowledged(message, sender.name, now)
            case Nack():
                self._prober.nack(message.sequence)
            case PingRequest():
                self._relay(message, sender, now)
            case NameHeld():
                self.claims.own.held(message, now)
            case Known():
                pass  # belongs to an exchange of tables

    def _take_claim(self, claim: Claim, now: float) -> None:
        """A suspicion is looked into: by a probe that waits for an answer already, else by one that begins at once,
        but not by all members of a large fleet."""
        was = (member := self.roster.get(claim.name)) and member.state
        self.claims.consider(claim, now)
        if member is None or member.state is not State.SUSPECT:
            return
        if self._prober.doubts(member.name):
            if now - self._expected_tick <= self.parameters.stall_s:  # else the answer may lie unread
                self.claims.suspect(member, now)
        elif was is State.ALIVE and self._random.random() * self.roster.present < self.parameters.probers_of_suspect:
            self._probe(member, now)

    def _relay(self, message: PingRequest, sender: Peer, now: float) -> None:
        if (target := self.roster.get(message.target)) is None:
            return
        if (sequence := self._prober.relay(sender, message.sequence, target.name, now)) is not None:
            self._send(target.peer, target, Ping(sequence, target.name))

    def _acknowledged(self, message: Ack, sender: str, now: float) -> None:
        answered = self._prober.acknowledge(message.sequence, sender, now)
        if answered is None:
            return
        if sender == answered.target and (member := self.roster.get(sender)) is not None:
            member.answered_at = now
            self.claims.answered(member, now)
        if answered.relay is not None:
            self._send(answered.relay.requester, None, Ack(answered.relay.original, message.coordinate))
            return
        if answered.probed:
            self.health.adjust(-1)
        if answered.rtt_s is not None:
            self._events.append(Measured(answered.target, answered.rtt_s, message.coordinate))

    def stream_acknowledged(self, target: str, epoch: int, sequence: int, now: float) -> None:
        """A ping over TCP was answered by `target`, of which this is the epoch: it lives, although UDP packets do not
        arrive. Packets for another start of it do not open there; then an exchange of tables tells both sides."""
        self._prober.acknowledge(sequence, "", now)
        if (member := self.roster.get(target)) is None:
            return
        member.answered_at = now
        if member.version.epoch == epoch:
            self.claims.answered(member, now)
        else:
            self._outputs.append(Sync(member.address, target))

    def _take_section(self, update: SectionUpdate, now: float) -> None:
        if self.roster.take_section(update, self.parameters.max_section_bytes, now):
            self._events.append(SectionChanged(update.name, update.section))
            self.queue.add_state(update, update.name, update.section)

    # Exchange of tables (anti-entropy)

    def table(self) -> bytes:
        """The table for another member; see `tables`."""
        return tables.table(self.roster)

    def answer_table_untrusted(self, payload: bytes, now: float) -> bytes:
        """Take in another member's table; returns what it lacks. Raises `ProtocolError` if it is malformed."""
        messages = tables.read_untrusted(payload)
        self._merge(messages, now)
        return tables.answer(self.roster, messages)

    def merge_untrusted(self, payload: bytes, now: float) -> None:
        """Take in the answer to our table. Raises `ProtocolError` if it is malformed."""
        self._merge(tables.read_untrusted(payload), now)

    def _merge(self, messages: list[MembershipMessage], now: float) -> None:
        for message in messages:
            if isinstance(message, Claim):
                self.claims.consider(tables.softened(message, self.roster), now)
            elif isinstance(message, SectionUpdate):
                self._take_section(message, now)
        self._refute()
        self._ping_contested(now)
