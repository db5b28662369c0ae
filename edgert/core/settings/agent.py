"""The agent's settings: its file, and where its sockets and data lie."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from edgert.core.config import section, setting
from edgert.core.errors import EdgertError
from edgert.core.settings.checks import PORT, is_address, place_fault
from edgert.core.settings.folders import data_folder, socket_folder
from edgert.core.settings.gateway import Gateway
from edgert.core.settings.log import Log


def _seed(seeds: tuple[str, ...]) -> str | None:
    for seed in seeds:
        host, colon, port = seed.rpartition(":")
        if not (host and colon and port.isascii() and port.isdigit() and 0 < int(port) <= PORT):
            return "addresses of agents as HOST:PORT"
    return None


MAX_LABEL_BYTES: Final = 600
"""The bytes of all labels of a board, and 3 more for each: the other boards are told them in one packet."""


def _labels(labels: tuple[str, ...]) -> str | None:
    size = sum(len(label.encode()) + 3 for label in labels)
    return f"labels of {MAX_LABEL_BYTES} bytes together, with 3 for each" if size > MAX_LABEL_BYTES else None


def _advertised(text: str) -> str | None:
    return (place_fault(text) or _unspecified(text)) if text else None


def _unspecified(text: str) -> str | None:
    unspecified = is_address(text) and ipaddress.ip_address(text).is_unspecified
    return "the IP address that other boards reach" if unspecified else None


@dataclass(frozen=True, slots=True)
class Agent:
    """How this agent is reached, and by whom it joins its fleet."""

    bind: str = setting(
        "127.0.0.1",
        doc="IP address, network interface or default (the interface of the default route) to listen on, UDP and TCP; "
        "the address of an interface is followed when it changes",
        check=place_fault,
    )
    port: int = setting(7946, doc="port to listen on, UDP and TCP; 0: any free one", minimum=0, maximum=PORT)
    advertise: str = setting(
        "",
        doc="IP address, interface or default that others are told; empty: that of bind, which must not be 0.0.0.0",
        check=_advertised,
    )
    seeds: tuple[str, ...] = setting(
        (),
        doc="agents to join by, as HOST:PORT; one that lives is enough to join a fleet, and more than half of them (of "
        "two both) to begin one",
        check=_seed,
    )
    discovery: str = setting(
        "none",
        doc="mdns: agents of the same fleet on the local network find each other, also without seeds; the network can "
        "read this board's id, fleet and address then",
        choices=("none", "mdns"),
    )
    key_file: str = setting(
        "",
        doc="file with the fleet's keys, made by `edgert fleet key`; only its owner may read it; empty: fleet.key in "
        "the data folder",
        secret_file=True,
    )
    crl_file: str = setting(
        "",
        doc="the fleet's revoked certificates, written by `edgert fleet revoke`: their boards are no members; empty: "
        "none are revoked",
        path=True,
    )
    certificate: str = setting(
        "",
        doc="this board's certificate (PEM), followed by that of the CA that signed it: packets are signed by its key, "
        "and those of others are taken only with a signature by theirs; empty: who has the fleet's key can speak as "
        "any board, also when it is revoked",
        path=True,
    )
    private_key: str = setting("", doc="private key of agent.certificate (PEM)", secret_file=True)
    accept_unsigned: bool = setting(
        False,
        doc="with agent.certificate: packets without a signature are taken, too, for the time in which boards get "
        "their certificates",
    )
    labels: tuple[str, ...] = setting(
        (), doc="labels of this board as NAME=VALUE, for the placement of operators", check=_labels
    )
    bandwidth_mbit: float = setting(
        0.0, doc="what this board can send to other boards, and as much receive; 0: the speed of its fastest network "
        "card, 100 where the kernel tells none (Wi-Fi, virtual machines)", unit="Mbit/s", minimum=0,
    )  # fmt: skip
    gateway_socket: str = setting(
        "", doc="control socket of this board's gateway; empty: where the gateway has it", path=True
    )
    metrics_port: int = setting(
        0, doc="port of Prometheus metrics, on loopback (see metrics-agent.md); 0: none", minimum=0, maximum=PORT
    )
    socket: str = setting("", doc="the agent's own control socket; empty: agent.sock beside the gateway's", path=True)

    def check(self) -> None:
        """Raises `EdgertError` where others would be told an address that they could not reach."""
        if not self.advertise and _unspecified(self.bind):
            raise EdgertError(
                f"agent.advertise: expected the IP address that other boards reach, as agent.bind is {self.bind}; got"
                " none"
            )


@dataclass(frozen=True, slots=True)
class MembershipSettings:
    """Failure detection (SWIM with Lifeguard)."""

    probe_interval_s: float = setting(
        1.0,
        doc="one member is probed per interval; shorter: deaths are seen sooner, and each board sends more",
        unit="s",
        minimum=0.1,
        maximum=60,
    )
    probe_timeout_s: float = setting(
        0.4, doc="wait for an answer before others are asked to probe", unit="s", minimum=0.01, maximum=30
    )


@dataclass(frozen=True, slots=True)
class CoordinateSettings:
    """Network coordinates: estimates of the round-trip time between any two boards."""

    algorithm: str = setting(
        "remembering",
        doc="remembering: with height, fitted to the last times of all peers; spring: relaxation in three dimensions; "
        "vivaldi: with height, as Serf has it; the same on all boards",
        choices=("remembering", "spring", "vivaldi"),
    )
    period_s: float = setting(10.0, doc="mean time between two rounds", unit="s", minimum=1, maximum=3600)
    near: int = setting(4, doc="peers of a round that were nearest in the last one", minimum=0, maximum=64)
    far: int = setting(4, doc="random peers of a round", minimum=1, maximum=64)


@dataclass(frozen=True, slots=True)
class PlacementSettings:
    """When a flow whose rules name a heuristic is placed anew (see docs/fleet.md)."""

    look_s: float = setting(
        10.0, doc="time between two looks at a flow; each reads the figures of all boards twice", unit="s", minimum=1,
        maximum=3600,
    )  # fmt: skip
    settle_s: float = setting(
        10.0, doc="the fleet must have had the same boards for so long", unit="s", minimum=0, maximum=3600
    )
    pause_s: float = setting(30.0, doc="least time between two changes of a flow", unit="s", minimum=1, maximum=86400)
    looks: int = setting(3, doc="looks in a row that must agree on a change", minimum=1, maximum=100)
    least_gain: float = setting(0.1, doc="the score must fall by this part of what it is", minimum=0.001, maximum=1)


@dataclass(frozen=True, slots=True)
class Moves:
    """Moves of operators that the fleet makes by itself (see docs/internals/interference.md)."""

    enabled: bool = setting(
        True,
        doc="false: this board gives no operators away by itself and takes none from crowded boards; people still "
        "move and drain them",
    )
    period_s: float = setting(
        5.0, doc="time between two predictions; an instance is offered after three", unit="s", minimum=0.5, maximum=60
    )
    crowded: float = setting(
        0.7, doc="part of what operators may use that the board is predicted to need before it gives any away",
        minimum=0.01, maximum=10,
    )  # fmt: skip
    cpu: float = setting(0.95, doc="part of the board's cores that operators may use", minimum=0.0001, maximum=1)
    bandwidth: float = setting(0.95, doc="part of the network that operators may use", minimum=0.01, maximum=1)
    external: bool = setting(
        True,
        doc="count what other programs use of the board; false: where several gateways share a machine, as each would "
        "count the others",
    )


MECHANISMS: Final = ("nice", "slice", "nice+slice", "groups", "groups+nice")
"""How priorities reach the kernel. `groups`: equal shares per query, by control groups."""


@dataclass(frozen=True, slots=True)
class Sched:
    """How the agent has the Linux scheduler serve the flows (see docs/internals/os-scheduling.md)."""

    enabled: bool = setting(True, doc="false: no thread's scheduling is changed, and nothing is measured")
    policy: str = setting(
        "qs",
        doc="policy, with its period and a condition if wanted: `qs`, `slack every 100 ms`, "
        "`when cpu > 80 %: qs else: none`; policies: qs, hr, fcfs, ioq, slack, random, constant, none",
    )
    period_s: float = setting(
        1.0, doc="time between two looks of a policy without a period of its own", unit="s", minimum=0.05, maximum=3600
    )
    mechanism: str = setting(
        "nice",
        doc="how priorities reach the kernel; groups: equal shares of the CPU per flow; slice: how soon, not how much "
        "(Linux 6.12 and newer)",
        choices=MECHANISMS,
    )
    quotas: tuple[str, ...] = setting(
        (), doc="cores that a query may use at most, each QUERY=CORES, such as report=0.5; needs groups"
    )
    nice_best: int = setting(
        0,
        doc="nice value of the greatest priority; below 0 it goes before the rest of the board",
        minimum=-20,
        maximum=19,
    )
    nice_worst: int = setting(19, doc="greatest nice value that is given", minimum=-20, maximum=19)
    smoothing: float = setting(
        1.0,
        doc="part of a new priority that counts, the rest is that of the period before; 1: none",
        minimum=0.01,
        maximum=1,
    )
    pool_weights: bool = setting(False, doc="also set the weights of instances in the pools of our own slots")
    root_group: str = setting(
        "auto",
        doc="put all scheduled threads into one control group, so that their nice values compare; auto: where they "
        "would not compare otherwise (the kernel's autogroups, or services with groups of their own)",
        choices=("auto", "always", "never"),
    )
    affinity: str = setting(
        "auto",
        doc="big.LITTLE: keep the most urgent threads on the fast cores; auto: on an Odroid-XU4 only",
        choices=("auto", "on", "off"),
    )
    cooperate: bool = setting(
        True,
        doc="exchange ranges of priorities and path terms of flows that several boards share, so that a priority means "
        "the same on all of them; false: this board is on its own, and tells nothing",
    )
    drivers: tuple[str, ...] = setting(
        (), doc="engines, each KIND=ADDRESS, such as edgert=/run/edgert/control.sock; empty: this board's gateway"
    )
    engine_users: tuple[str, ...] = setting(
        (),
        doc="users whose Java processes are scheduled as those of a Flink or Storm in `drivers`, by name or number; "
        "those of the agent's own user always are. Any other process with the same arguments is left alone",
    )


@dataclass(frozen=True, slots=True)
class AgentSettings:
    """The agent's file, `/etc/edgert/agent.toml`."""

    gateway: Gateway = section(Gateway)
    agent: Agent = section(Agent)
    membership: MembershipSettings = section(MembershipSettings)
    coordinates: CoordinateSettings = section(CoordinateSettings)
    placement: PlacementSettings = section(PlacementSettings)
    moves: Moves = section(Moves)
    sched: Sched = section(Sched)
    log: Log = section(Log)


def agent_socket(settings: AgentSettings, env: Mapping[str, str], root: bool) -> str:
    """Path of the agent's control socket."""
    return settings.agent.socket or f"{socket_folder(settings.gateway.data_dir, env, root)}/agent.sock"


def gateway_socket(settings: AgentSettings, env: Mapping[str, str], root: bool) -> str:
    """Path of the control socket of this board's gateway."""
    return settings.agent.gateway_socket or f"{socket_folder(settings.gateway.data_dir, env, root)}/control.sock"


def agent_data(settings: AgentSettings, env: Mapping[str, str], root: bool) -> str:
    """The folder in which the agent keeps its restart epoch and, by default, the fleet's keys."""
    return settings.gateway.data_dir or data_folder(env, root)
