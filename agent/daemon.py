"""The agent daemon: membership, coordinates, and the state of this board told to the others."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
import signal
from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, Final

from agent import capacity, elsewhere, kernel_rtt, member_log
from agent.coordinates.registry import make
from agent.coordinates.rounds import RoundParameters, Rounds
from agent.drivers.procfs import ProcFs
from agent.fleet import status as fleet_status
from agent.fleet.auto import FleetAuto
from agent.fleet.deploy import FleetDeploy
from agent.fleet.drain import FleetDrain
from agent.fleet.flows import VOTER, FleetFlows
from agent.fleet.history import MoveHistory
from agent.fleet.local_gateway import LocalGateway
from agent.fleet.mend import FleetMend
from agent.fleet.moves import SECTION as MOVES
from agent.fleet.moves import FleetMoves
from agent.fleet.plans import FleetPlans
from agent.fleet.presence import FleetPresence
from agent.fleet.requests import GATEWAY, PASS_ON, FleetRequests
from agent.fleet.rings import SECTION, FleetRings
from agent.lease.electorate import Electorate
from agent.lease.leases import VERB as LEASE
from agent.lease.leases import Leases
from agent.lease.memory import LeaseMemory
from agent.membership.events import Changed, EpochRaised, Measured, MemberEvent
from agent.membership.files import (
    HelloMemory,
    next_epoch,
    read_identity,
    read_keys,
    read_revoked,
    replace_file,
    stamp,
    store_epoch,
)
from agent.membership.keys import KeyRing
from agent.membership.members import Address, State
from agent.membership.packets import Sealer
from agent.membership.parameters import Parameters
from agent.membership.protocol import Membership
from agent.metrics import MetricsServer
from agent.network.own_address import UNKNOWN, OwnAddress
from agent.network.transport import TIMEOUT_S, Transport
from agent.osched.component import OsScheduling, switched_off
from agent.placement.replacement import Hysteresis
from agent.sched_peers import SchedPeers
from edgert.boards.member_identity import BoardIdentity
from edgert.control.server import ControlServer, Handler
from edgert.core.errors import EdgertError
from edgert.core.packing import pack
from edgert.core.settings.agent import AgentSettings, PlacementSettings, agent_data, agent_socket, gateway_socket
from edgert.core.system_clock import SleepingClock
from edgert.limits import limits
from edgert.machine import notify

if TYPE_CHECKING:
    from agent.discovery import Discovery

log = logging.getLogger(__name__)
LEAVE_S: Final = 1.0
WATCHDOG_S: Final = 10.0
"""Time between two signs of life for systemd: well below the `WatchdogSec=` of the unit."""
MAX_KEYS_TOLD: Final = 4
"""Keys that the status names. A rotation needs two."""
LEASES: Final = "coordination.json"
"""File in the data folder: the voters of the fleet, and what this board granted to coordinators."""
ALONE_S: Final = 10.0
"""A board begins a fleet when mDNS has shown no other board for so long."""


class Agent:
    """One agent. Its parts add verbs to `control` (its own socket) and to `transport.handlers` (requests of others)."""

    def __init__(self, settings: AgentSettings, name: str) -> None:
        """Raises `EdgertError` where keys or epoch cannot be read."""
        root, env = os.geteuid() == 0, os.environ
        self.settings = settings
        self.name = name
        self.clock = SleepingClock()
        self._data = Path(agent_data(settings, env, root))
        self._key_file = Path(settings.agent.key_file or self._data / "fleet.key")
        self._key_stamp = _stamp_of_keys(self._key_file, self.settings)
        ring = KeyRing(read_keys(self._key_file))
        epoch = next_epoch(self._data, self.clock.wall())
        random, now = Random(secrets.randbits(64)), self.clock.monotonic()
        timing, chosen = settings.membership, settings.coordinates
        parameters = Parameters(probe_interval_s=timing.probe_interval_s, probe_timeout_s=timing.probe_timeout_s)
        settings.agent.check()
        self.membership = Membership(name, (UNKNOWN, settings.agent.port or 1), epoch, parameters, random, now)
        self.sealer = Sealer(name, settings.gateway.fleet, epoch, ring, secrets.token_bytes, HelloMemory(self._data))
        self.sealer.identity = _identity(self.name, self.settings, self.clock)
        self._crl_file = Path(settings.agent.crl_file) if settings.agent.crl_file else None
        self._crl_stamp = stamp(self._crl_file) if self._crl_file else None
        if self._crl_file:
            self._refuse(read_revoked(self._crl_file))
        self.transport = Transport(self.membership, self.sealer, self.clock, self._on_events)
        self.own_address = OwnAddress(settings.agent, self.transport, self.clock)
        round_parameters = RoundParameters(period_s=chosen.period_s, near=chosen.near, far=chosen.far)
        self.rounds = Rounds(make(chosen.algorithm, random), round_parameters, random, now)
        self._capacity = capacity.BoardCapacity(self._data, settings.agent.bandwidth_mbit)
        own_gateway, own_socket = gateway_socket(settings, env, root), agent_socket(settings, env, root)
        self.gateway = LocalGateway(own_gateway, name, own_socket=own_socket)
        self.control: dict[str, Handler] = {"fleet.status": self._status, "fleet.leave": self._leave}
        self.sched: OsScheduling | None = None
        if settings.sched.enabled:
            self.sched = OsScheduling(settings.sched, own_gateway, self._data, peers=SchedPeers(self.membership))
            self.control |= self.sched.handlers
        else:
            self.control |= switched_off()
        roster, moving = self.membership.roster, settings.moves
        self.leases = Leases(self._memory(), roster, self.request, self.clock, Random(random.getrandbits(64)))
        self.electorate = Electorate(
            self.leases, roster, self.clock, Random(random.getrandbits(64)), self._may_begin,
            lambda: self.membership.claims.revoked,
        )  # fmt: skip
        history = MoveHistory(self.clock, self._data)
        self.requests = FleetRequests(name, roster, self.request, self.clock, random, self._ping)
        self.flows = FleetFlows(name, roster, self.gateway, self.requests.request, self.leases, history)
        self.mend = FleetMend(self.flows, FleetDeploy(roster, self.flows))
        self.presence = FleetPresence(
            roster, self.gateway, self.flows, self.leases, self.electorate, self.clock, self._ping
        )
        plans = FleetPlans(roster, self.rounds, self.flows, Random(random.getrandbits(64)))
        self.auto = FleetAuto(self.flows, plans, self.clock, _hysteresis(settings.placement))
        self.rings = FleetRings(roster, self.gateway, self._capacity.look(), moving.external)
        self.moves = FleetMoves(moving, roster, self.gateway, self.flows, self.rings, self.request, self.clock)
        self.drain = FleetDrain(self._data, roster, self.gateway, self.flows, self.rings, self.moves, self.request)
        self.control |= self.flows.control | self.rings.control | self.moves.control | self.drain.control
        self.control |= self.presence.control | elsewhere.FleetOperators(self.gateway, self.flows).control
        self.transport.handlers[LEASE] = self.leases.memory.serve
        self.transport.handlers["fleet.admit"] = self.moves.serve_admission
        self.transport.handlers["fleet.drain"] = self.drain.serve
        self.transport.handlers["fleet.moves"] = self.moves.serve_moves
        self.transport.handlers[GATEWAY] = self.flows.serve_gateway
        self.transport.handlers[PASS_ON] = self.requests.serve
        self.transport.handlers["fleet.coordinate"] = self.flows.serve_coordinator
        self.server = ControlServer(own_socket, self.control)
        self.metrics = MetricsServer(self._measured)
        self.stopping = asyncio.Event()
        self._load_told = float("-inf")
        self.discovery: Discovery | None = None

    def _memory(self) -> LeaseMemory:
        file = self._data / LEASES
        try:
            stored = file.read_text() if file.exists() else ""
            return LeaseMemory(self.name, self.clock, stored, lambda text: replace_file(file, text))
        except (OSError, ValueError) as error:
            raise EdgertError(
                f"{file}: expected what this agent wrote: {error}; where it is damaged: stop the agent, remove the"
                " file, and start the agent while most boards of the fleet are there"
            ) from error

    def _may_begin(self) -> bool:
        """True if this board may be the first of a fleet: not where it should have met others, which may have one."""
        seeds = {_address(seed) for seed in self.settings.agent.seeds}
        if seeds:
            met = {*self.membership.met, *(m.address for m in self.membership.roster if m.present)}
            for seed in seeds - met:  # by a name, perhaps, of which members know the address only
                self.transport.meet(seed)
            return 2 * len(met & seeds) > len(seeds)
        return self.settings.agent.discovery != "mdns" or self.own_address.known_s() >= ALONE_S

    async def request(self, gateway: str, verb: str, args: Mapping[str, Any], timeout_s: float = TIMEOUT_S) -> Any:
        """The result of `verb` at the agent of `gateway`. Raises `RequestError`."""
        return await self.transport.request(gateway, verb, args, timeout_s)

    async def run(self) -> None:
        """Runs until `stopping` is set. Raises `EdgertError` where it cannot begin."""
        self._find_seeds()
        tasks: list[asyncio.Task[None]] = []
        try:
            await self.own_address.look()
            await self.server.start()
            tasks = [asyncio.create_task(self._measure()), asyncio.create_task(self._look())]
            if self.settings.agent.metrics_port:
                await self.metrics.start(self.settings.agent.metrics_port)
            if self.settings.agent.discovery == "mdns":
                tasks.append(asyncio.create_task(self._discover()))
            runs = (self.presence.run, self.mend.run, self.auto.run, self.moves.run, self.drain.run, _feed_watchdog)
            tasks += [asyncio.create_task(run()) for run in runs]
            if self.sched is not None:
                tasks.append(asyncio.create_task(self.sched.run()))
            tasks.append(asyncio.create_task(self.own_address.follow()))
            self._listen_to_signals()
            log.info("agent of %s in fleet %s", self.name, self.settings.gateway.fleet)
            notify("READY=1")
            await self.stopping.wait()
        finally:
            notify("STOPPING=1")
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self.server.stop()
            await self.metrics.stop()
            await self.gateway.close()
            await self.transport.stop()

    def _listen_to_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.stopping.set)
        loop.add_signal_handler(signal.SIGHUP, self._read_keys)

    # Events

    def _on_events(self, events: list[MemberEvent]) -> None:
        for event in events:
            member_log.tell(event, self.name)
            match event:
                case Measured(name, rtt_s, coordinate):
                    self.rounds.measured(name, rtt_s, coordinate)
                case Changed(name, _, State.DEAD | State.LEFT):
                    self.rounds.forget(name)
                case EpochRaised(epoch):
                    self.sealer.epoch = epoch
                    with contextlib.suppress(EdgertError):
                        store_epoch(self._data, epoch)
                case _:
                    pass

    # What runs beside

    async def _measure(self) -> None:
        """Sends the pings of the coordinates' rounds, and reads once per round what the kernel knows of links."""
        listen_at = 0.0
        while True:
            now = self.clock.monotonic()
            if now >= listen_at:
                self._listen_to_kernel()
                listen_at = now + self.settings.coordinates.period_s
            own = self.membership.roster.own
            alive = [m.name for m in self.membership.roster if m.state is State.ALIVE and m is not own]
            for name in self.rounds.due(now, alive):
                self._ping(name)
            self.membership.coordinate = self.rounds.algorithm.coordinate
            await asyncio.sleep(max(self.rounds.next_due - self.clock.monotonic(), 0.05))

    def _ping(self, name: str) -> None:
        self.membership.measure(name, self.clock.monotonic())
        self.transport.step()

    def _listen_to_kernel(self) -> None:
        try:
            for name, rtt_s in kernel_rtt.by_member(self.membership.roster).items():
                self.rounds.measured(name, rtt_s, ())
        except OSError as error:  # a sandbox may forbid netlink; pings go on
            log.debug("the kernel does not tell the round-trip times of links: %s", error)

    async def _discover(self) -> None:
        from agent.discovery import Discovery  # 5 MB

        self.discovery = Discovery(self.name, self.settings.gateway.fleet)
        await self.discovery.run(lambda: self.membership.roster.own.address)

    def _find_seeds(self) -> None:
        """Sets the seeds: those of the settings, and those that mDNS shows now."""
        seeds = [_address(seed) for seed in self.settings.agent.seeds]
        seeds += self.discovery.found.values() if self.discovery is not None else ()
        own = self.membership.roster.own.address
        self.membership.seeds = [seed for seed in dict.fromkeys(seeds) if seed != own]

    async def _look(self) -> None:
        """Follows the gateway, the load and the key file, and tells the other boards."""
        while True:
            try:
                self._find_seeds()
                await self.gateway.look()
                if _stamp_of_keys(self._key_file, self.settings) != self._key_stamp:
                    self._read_keys()
                self._publish()
                if self._crl_file and stamp(self._crl_file) != self._crl_stamp:
                    self._read_revoked(self._crl_file)
            except Exception:
                log.exception("the state of this board could not be told")
            await self.gateway.pause(self.settings.moves.period_s)

    def _publish(self) -> None:
        now, membership = self.clock.monotonic(), self.membership
        labels = dict(label.partition("=")[::2] for label in self.settings.agent.labels)
        host = membership.roster.own.address[0]
        whole, link = self._capacity.look(), [host, self.gateway.link_port()]
        able = capacity.within(whole, limits(self.gateway.pid()))
        keys = self.sealer.ring.identifiers[:MAX_KEYS_TOLD]
        self._tell("board", {**able, "link": link, "labels": labels, "drained": self.drain.drained, "keys": keys})
        self._tell(VOTER, told := self.presence.told(), again="majority" in told)
        self._tell("flows", {**self.gateway.flows(), "gateway": self.gateway.connected})
        self._tell("coordinate", {"at": list(self.rounds.application.value), "by": self.settings.coordinates.algorithm})
        load = capacity.load()
        # under a quota what waits for its next period counts as pressure, too, while cores are free
        pressure = ProcFs().pressure() if able["cores"] >= whole["cores"] else None
        ring = self.rings.look(capacity.runnable(load["load"], pressure, able["cores"]), able["cores"], able["speed"])
        if now - self._load_told >= membership.parameters.state_interval(membership.roster.present):
            self._load_told = now
            self._tell("load", load)
            membership.publish(SECTION, ring, again=True)
            self._tell(MOVES, self.moves.gossip_section())
        self.transport.step()

    def _tell(self, section: str, value: Mapping[str, Any], *, again: bool = False) -> None:
        try:
            self.membership.publish(section, pack(value), again)
        except ValueError as error:
            log.warning("the other agents are not told the newest state: %s", error)

    def _read_keys(self) -> None:
        self._key_stamp = _stamp_of_keys(self._key_file, self.settings)
        try:
            identity, ring = _identity(self.name, self.settings, self.clock), KeyRing(read_keys(self._key_file))
            if identity is not None and self.sealer.identity is not None:
                identity.known = self.sealer.identity.known
            self.sealer.identity, self.sealer.ring = identity, ring
            log.info("the fleet's keys were read again: %s", ", ".join(self.sealer.ring.identifiers))
        except EdgertError as error:
            log.warning("the keys stay as they are: %s", error)

    def _read_revoked(self, path: Path) -> None:
        self._crl_stamp = stamp(path)
        try:
            self._refuse(read_revoked(path))
        except EdgertError as error:
            log.warning("the revoked boards stay as they are: %s", error)

    def _refuse(self, names: frozenset[str]) -> None:
        if names:
            log.info("revoked boards are no members: %s", ", ".join(sorted(names)))
        if self.name in names:
            log.error("this board, %s, is revoked: the others refuse it", self.name)
        self.sealer.revoked = names
        self.membership.revoke(names, self.clock.monotonic())

    # Verbs of the control socket

    async def _status(self, _: Mapping[str, Any]) -> Mapping[str, Any]:
        return self.status()

    def status(self) -> Mapping[str, Any]:
        """The fleet as this agent knows it."""
        own = self.membership.roster.own
        return {
            "gateway": self.name,
            "fleet": self.settings.gateway.fleet,
            "address": list(own.address),
            "address_error": self.own_address.error,
            "discovery": self.discovery.status() if self.discovery is not None else None,
            "health": self.membership.health.score,
            "local_gateway": {"connected": self.gateway.connected, "error": self.gateway.error},
            "coordinates": {
                "algorithm": self.settings.coordinates.algorithm,
                "rounds": self.rounds.rounds,
                "application_changes": self.rounds.application.changes,
                "system": list(self.rounds.algorithm.coordinate),
            },
            "keys": self.sealer.ring.identifiers,
            "members": fleet_status.members(self.transport, self.rounds, self.clock.monotonic()),
            "counters": fleet_status.counters(self.transport),
            "replacements": self.auto.made,
            "drained": self.drain.drained,
            "coordination": self.presence.status(),
        }

    def _measured(self) -> Mapping[str, Any]:
        """Returns for Prometheus the status, and that of moves and of OS scheduling."""
        sched = None if self.sched is None else self.sched.status()
        return {**self.status(), "moves": self.moves.measured(), "sched": sched}

    async def _leave(self, args: Mapping[str, Any]) -> Mapping[str, Any]:
        """Tell the fleet that this board leaves, then end. `{"force": True}`: though it has parts of flows."""
        await self.presence.take_leave(args)
        self.membership.leave(self.clock.monotonic())
        self.transport.step()
        counted = await self.electorate.resign()
        asyncio.get_running_loop().call_later(LEAVE_S, self.stopping.set)
        return {"left": True, **({"counted": counted} if counted else {})}


async def _feed_watchdog() -> None:
    """Tells systemd that the loop turns, however seldom the settings let the agent do its work."""
    while True:
        notify("WATCHDOG=1")
        await asyncio.sleep(WATCHDOG_S)


def _stamp_of_keys(fleet_key: Path, settings: AgentSettings) -> tuple[tuple[int, int, int], ...]:
    own = (settings.agent.certificate, settings.agent.private_key)
    return tuple(map(stamp, (fleet_key, *(Path(file) for file in own if file))))


def _identity(name: str, settings: AgentSettings, clock: SleepingClock) -> BoardIdentity | None:
    """The board's certificate and key; None without. Raises `EdgertError`."""
    agent = settings.agent
    if not agent.certificate:
        return None
    certificate, key = read_identity(Path(agent.certificate), Path(agent.private_key))
    found = BoardIdentity(name, settings.gateway.fleet, certificate, key, clock.wall)
    found.accepts_unsigned = agent.accept_unsigned
    return found


def _hysteresis(settings: PlacementSettings) -> Hysteresis:
    return Hysteresis(
        look_s=settings.look_s, settle_s=settings.settle_s, pause_s=settings.pause_s, looks=settings.looks,
        least_gain=settings.least_gain,
    )  # fmt: skip


def _address(text: str) -> Address:
    host, _, port = text.rpartition(":")
    return host.strip("[]"), int(port)
