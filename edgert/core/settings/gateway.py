"""Settings of the gateway's file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from edgert.core.config import section, setting
from edgert.core.settings.checks import PORT, fleet_name, gateway_name, place_fault
from edgert.core.settings.connection import Connection
from edgert.core.settings.folders import socket_folder
from edgert.core.settings.log import Log
from edgert.core.text.mqtt_text import fits
from edgert.core.text.topic_template import MAX_LEVELS


def _topic(text: str) -> str | None:
    fit = len(text.encode("utf-8", "replace")) <= 65_535 and not set(text) & {"+", "#"} and fits(text)
    expected = f"a topic of at most {MAX_LEVELS} levels, without wildcards and control characters, or nothing"
    return None if fit and text.count("/") < MAX_LEVELS else expected


@dataclass(frozen=True, slots=True)
class Gateway:
    """Which board this is and where it keeps its data."""

    id: str = setting(
        "", doc="name of this gateway in its fleet; empty: made from the machine id, hashed", check=gateway_name
    )
    fleet: str = setting("default", doc="name of the fleet that it belongs to", check=fleet_name)
    data_dir: str = setting(
        "",
        doc="folder of the database; empty: that of the service, /var/lib/edgert for root, else $XDG_STATE_HOME/edgert",
        path=True,
    )


@dataclass(frozen=True, slots=True)
class Sensors(Connection):
    """The broker that the sensors publish to."""

    latency_budget_s: float = setting(
        0.005,
        doc="how long reading may wait so that more messages come with one read; 0: never; waits only at high rates; a "
        "broker that has Nagle's algorithm on (Mosquitto, unless set_tcp_nodelay is true) adds to it",
        unit="s",
        minimum=0,
        maximum=1,
    )
    max_packet_bytes: int = setting(
        1024 * 1024,
        doc="a larger message is skipped without holding it in memory, acknowledged and counted",
        unit="bytes",
        minimum=1024,
        maximum=268_435_455,
    )
    window: int = setting(
        0,
        doc="how many messages the broker sends before some are acknowledged: 20 for Mosquitto in MQTT 3.1.1, 32 for "
        "EMQX, 65535 for no limit; 0: it is found out",
        unit="messages",
        minimum=0,
        maximum=65_535,
    )
    drops_topic: str = setting(
        "$SYS/broker/publish/messages/dropped",
        doc="topic on which the broker says how many messages it has dropped since its start, of any client's queue "
        "(as Mosquitto does): what it drops is counted, also while the gateway is away; empty: it is not asked",
        check=_topic,
    )
    broker_saves: bool = setting(
        False,
        doc="the broker is this board's own, and is asked to save its sessions and retained messages when the gateway "
        "has subscribed, and after each accepted document (true in a board's image)",
    )


@dataclass(frozen=True, slots=True)
class Central(Connection):
    """The broker between the gateways and the central side; configuration and flows come over it too."""

    enabled: bool = setting(True, doc="false: the gateway works alone, results wait in the outbox")
    mac_key_file: str = setting(
        "",
        doc="file with this gateway's key (`edgert fleet mac-key --of`): results carry a MAC by it, and an "
        "acknowledgement without a MAC by it is refused; empty: neither",
        secret_file=True,
    )


@dataclass(frozen=True, slots=True)
class Uplink:
    """How results leave for the central side."""

    outage_s: float = setting(
        60.0,
        doc="after an outage longer than this, new results leave beside those that have piled up, and before them",
        unit="s",
        minimum=1,
        maximum=86_400,
    )
    backlog_rate: int = setting(
        0,
        doc="at most so much of what has piled up, so that it leaves room for others; 0: no limit. New results go "
        "first in any case",
        unit="bytes/s",
        minimum=0,
        maximum=1_000_000_000,
    )
    rate: int = setting(
        0,
        doc="at most so much of all results together, averaged over seconds; 0: no limit. New results alone may "
        "use all of it, so it has to be more than they need",
        unit="bytes/s",
        minimum=0,
        maximum=1_000_000_000,
    )


@dataclass(frozen=True, slots=True)
class Outbox:
    """Results that wait for the collector; what becomes of more is each flow's choice (`outbox.full`)."""

    quota_bytes: int = setting(
        2_147_483_648,
        doc="most that may wait; the database is about a third larger. The default is meant for a card of 16 GB or "
        "more, and is some ten days of 50 rows/s",
        unit="bytes",
        minimum=1_048_576,
        maximum=2**50,
    )
    batch_rows: int = setting(
        1_000,
        doc="rows of one result message at most: 1,000 are some 100 kB. A message above the central broker's limit "
        "leaves in pieces; where that limit is known to be small, smaller batches spare the pieces",
        unit="rows",
        minimum=1,
        maximum=10_000,
    )
    batch_bytes: int = setting(
        262_144,
        doc="bytes of texts and sketches in one result message at most, but for a single row that has more",
        unit="bytes",
        minimum=1_024,
        maximum=4_194_304,
    )
    greatest_age_s: float = setting(
        0.0,
        doc="results that have waited for longer are dropped, counted, and stated as a gap, whatever a flow's choice; "
        "only the time counts in which the gateway runs, so that a wrong clock costs nothing; 0: no limit",
        unit="s",
        minimum=0,
        maximum=1e9,
    )


@dataclass(frozen=True, slots=True)
class Links:
    """Links to other gateways, for flows that run on several boards. Without certificates only loopback addresses."""

    enabled: bool = setting(False, doc="whether other gateways may be linked to")
    listen: str = setting(
        "127.0.0.1",
        doc="address, network interface or default (the interface of the default route) to listen on for other "
        "gateways; the address of an interface is followed when it changes",
        check=place_fault,
    )
    port: int = setting(7844, doc="TCP port to listen on; 0: any free one, said in the log", minimum=0, maximum=PORT)
    certificate: str = setting(
        "",
        doc="this gateway's certificate (PEM), with its name as URI:edgert://<fleet>/<gateway> or as common name",
        path=True,
    )
    key: str = setting("", doc="private key of the certificate (PEM); not everybody may read it", secret_file=True)
    ca: str = setting("", doc="the fleet's CA (PEM), which has signed every gateway's certificate", path=True)
    crl: str = setting(
        "",
        doc="certificates that the CA has revoked (PEM); a newer file is read within seconds; empty: none are",
        path=True,
    )
    quota_bytes: int = setting(
        1_073_741_824,
        doc="most that may wait for other gateways; beyond it the oldest batches of the stream that holds the most "
        "make way, counted and said; a flow with outbox.full = stop-acknowledging stops instead",
        unit="bytes",
        minimum=1_048_576,
        maximum=2**50,
    )


@dataclass(frozen=True, slots=True)
class Web:
    """The page, its JSON and the Prometheus metrics."""

    enabled: bool = setting(True, doc="whether to serve them")
    host: str = setting("127.0.0.1", doc="address to listen on; the page asks for no password: mind who can reach it")
    port: int = setting(8080, doc="TCP port to listen on; 0: any free one, said in the log", minimum=0, maximum=PORT)
    agent_socket: str = setting(
        "",
        doc="control socket of this board's agent, for the page's cards Fleet and OS scheduling; empty: as the agent "
        "says it, or `agent.sock` where `control.sock` is by default",
        path=True,
    )


@dataclass(frozen=True, slots=True)
class Control:
    """The control socket, by which programs of this board ask and steer the gateway (`edgert status`, `edgert top`)."""

    enabled: bool = setting(True, doc="whether to serve it")
    socket: str = setting(
        "",
        doc="path of the socket; root, the gateway's own user and members of the file's group may use it. Empty: "
        "`control.sock` in the service's runtime folder; without a service in gateway.data_dir, where that is set, "
        "else in /run/edgert for root and in $XDG_RUNTIME_DIR/edgert for others",
        path=True,
    )


@dataclass(frozen=True, slots=True)
class Updates:
    """Updates over MQTT (`edgert fleet update`) of a board that was made from an image with two slots."""

    enabled: bool = setting(
        True, doc="whether the board takes them; it installs only what a certificate of its fleet has signed"
    )
    request: str = setting(
        "",
        doc="file in which a request is left for the service that installs; empty: `update.request` in the service's "
        "runtime folder",
        path=True,
    )
    state: str = setting(
        "/run/edgert-update/state.json",
        doc="file that says how the board and its last update are; where it is missing, the board takes none",
        path=True,
    )


@dataclass(frozen=True, slots=True)
class Pool:
    """The workers that run operators."""

    workers: int = setting(
        1, doc="threads of one process; more than 1 only helps operators that block", minimum=1, maximum=64
    )
    consumption_rows: int = setting(
        200,
        doc="most rows that an instance takes from its queue at a time (EdgeWise, §4.2: at-most-N, there 50); "
        "more: less overhead per row, longer waits for the others. In any case so few that a turn takes about 10 ms by "
        "what rows have cost; of rows dearer than 1 ms up to ten, if these take no longer than 0.2 s; one at least",
        unit="rows",
        minimum=1,
        maximum=1_000_000,
    )
    consumption: str = setting(
        "at-most",
        doc="how much an instance takes from its queue at a time; at-most: consumption_rows at most. For research: "
        "half of the queue, or all of it",
        choices=("at-most", "half", "all"),
    )
    policy: str = setting(
        "congestion-aware",
        doc="which instance runs next; congestion-aware: the longest queue (EdgeWise, §4.1), but before it an instance "
        "that has waited for 50 ms, the longest wait first. For research: congestion-aware-published: the longest "
        "queue, so that a short one may starve; min-latency: the nearest to a sink; min-memory: the one that makes "
        "rows vanish fastest (Chain); round-robin; random",
        choices=(
            "congestion-aware",
            "congestion-aware-published",
            "min-latency",
            "min-memory",
            "round-robin",
            "random",
        ),
    )
    fusion: str = setting(
        "full",
        doc="which operators become one instance; full: all that one operator alone feeds, directly or not; none: each "
        "is an instance of its own. For research: lines: as full without branches; chains: only stateless operators",
        choices=("full", "lines", "chains", "none"),
    )
    fission: bool = setting(
        True,
        doc="whether operators run in as many instances as their documents say; false: in one each. Counts for new "
        "flows and new versions",
    )
    slots: int = setting(
        0,
        doc="processes that run operators, to use more cores; 0: the gateway process itself, which takes least memory "
        "and adds least latency",
        minimum=0,
        maximum=64,
    )
    memory_bytes: int = setting(
        0,
        doc="memory for the gateway and its slots together; what operators keep by key has half of what is left after "
        "64 MB for each process. 0: the least limit of the control groups (MemoryHigh=, MemoryMax=, a container's), or "
        "half of the board's memory, whichever is less",
        unit="bytes",
        minimum=0,
        maximum=2**50,
    )
    placement: str = setting(
        "locality",
        doc="which operators share a slot; locality: those that send to each other, far from their own copies (L/F "
        "pipelines); even: in turn",
        choices=("locality", "even"),
    )


@dataclass(frozen=True, slots=True)
class Flows:
    """Flows that this gateway starts with, beside those that come over MQTT."""

    files: tuple[str, ...] = setting((), doc="deployment documents (.toml or .json)", path=True)


@dataclass(frozen=True, slots=True)
class GatewaySettings:
    """The gateway's file, `/etc/edgert/gateway.toml`."""

    gateway: Gateway = section(Gateway)
    sensors: Sensors = section(Sensors)
    central: Central = section(Central)
    uplink: Uplink = section(Uplink)
    outbox: Outbox = section(Outbox)
    links: Links = section(Links)
    web: Web = section(Web)
    control: Control = section(Control)
    updates: Updates = section(Updates)
    pool: Pool = section(Pool)
    log: Log = section(Log)
    flows: Flows = section(Flows)


def control_socket(settings: GatewaySettings, env: Mapping[str, str], root: bool) -> str:
    """Path of a gateway's control socket. Two gateways of one user have data folders of their own, so that their
    sockets differ, too."""
    return settings.control.socket or f"{socket_folder(settings.gateway.data_dir, env, root)}/control.sock"


def agent_socket(settings: GatewaySettings, env: Mapping[str, str], root: bool) -> str:
    """Path of the control socket of the agent on a gateway's board."""
    return settings.web.agent_socket or f"{socket_folder(settings.gateway.data_dir, env, root)}/agent.sock"


def update_request(settings: GatewaySettings, env: Mapping[str, str], root: bool) -> str:
    """Path of the file in which a request for an update is left."""
    return settings.updates.request or f"{socket_folder(settings.gateway.data_dir, env, root)}/update.request"


def save_request(settings: GatewaySettings, env: Mapping[str, str], root: bool) -> str:
    """Path of the file by which the board's own broker is asked to save."""
    return f"{socket_folder(settings.gateway.data_dir, env, root)}/broker-save.request"


def revoked_request(settings: GatewaySettings, env: Mapping[str, str], root: bool) -> str:
    """Path of the file in which a list of revoked certificates is left for root."""
    return f"{socket_folder(settings.gateway.data_dir, env, root)}/crl.request"
