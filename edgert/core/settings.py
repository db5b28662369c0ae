"""Every setting of the programs: the gateway's file and the central side's. Docs and samples are made from here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from edgert.core.config import section, setting
from edgert.core.ids import GATEWAY_NAME
from edgert.core.log import LEVELS
from edgert.core.mqtt_text import fits

PORT: Final = 65535


def _name(text: str) -> str | None:
    """Names become one level of a topic."""
    fits = not text or GATEWAY_NAME.fullmatch(text)
    return None if fits else "1 to 63 letters, digits, '_', '.' or '-', a letter or digit first"


def _fleet(text: str) -> str | None:
    return "a name, not nothing" if not text else _name(text)


def _lease(seconds: float) -> str | None:
    return "0, or at least 5: a collector looks after its leases every second" if 0 < seconds < 5 else None


def _host(text: str) -> str | None:
    """A name or an address alone: others write `mqtt://name:1883`."""
    scheme, found, rest = text.partition("://")
    if found:
        name = rest.rpartition("@")[2].partition("/")[0].partition(":")[0] or "broker.local"
        tls = ", and tls = true" if scheme.lower() in ("mqtts", "ssl", "tls") else ""
        return f'a host without {scheme}://, such as host = "{name}"; the port stands in port{tls}'
    return None if text and not set(text) & set(" /@") else "a host name or address, nothing else"


def _topic(text: str) -> str | None:
    sendable = len(text.encode("utf-8", "replace")) <= 65_535 and not set(text) & {"+", "#"} and fits(text)
    return None if sendable else "a topic without wildcards and control characters, or nothing"


def _url(text: str) -> str | None:
    fits = not text or text.startswith(("https://", "http://"))
    return None if fits else "an address that begins with https:// or http://"


def data_folder(env: Mapping[str, str], root: bool) -> str:
    """Where data lies when no setting says so: what systemd gave us, /var/lib/edgert for root, else the XDG folder."""
    given = env.get("STATE_DIRECTORY", "").split(":")[0]
    if given or root:
        return given or "/var/lib/edgert"
    return (env.get("XDG_STATE_HOME") or f"{env.get('HOME', '')}/.local/state") + "/edgert"


def runtime_folder(env: Mapping[str, str], root: bool) -> str:
    """Where sockets lie: what systemd gave us, /run/edgert for root, else the XDG folder; empty where there is none."""
    given = env.get("RUNTIME_DIRECTORY", "").split(":")[0]
    if given or root:
        return given or "/run/edgert"
    user = env.get("XDG_RUNTIME_DIR", "")
    return f"{user}/edgert" if user else ""


@dataclass(frozen=True, slots=True)
class Gateway:
    """Which board this is and where it keeps its data."""

    id: str = setting("", doc="name of this gateway in its fleet; empty: made from the machine id, hashed", check=_name)
    fleet: str = setting("default", doc="name of the fleet that it belongs to", check=_fleet)
    data_dir: str = setting(
        "",
        doc="folder of the database; empty: that of the service, /var/lib/edgert for root, else $XDG_STATE_HOME/edgert",
    )


@dataclass(frozen=True, slots=True)
class Connection:
    """One connection to an MQTT broker."""

    host: str = setting("127.0.0.1", doc="host name or address of the broker", check=_host)
    port: int = setting(1883, doc="TCP port of the broker (with TLS usually 8883)", minimum=1, maximum=PORT)
    tls: bool = setting(False, doc="speak TLS; the broker's certificate and host name are checked")
    ca_file: str = setting("", doc="certificates that may have signed the broker's; empty: those of the system")
    cert_file: str = setting("", doc="our certificate, where the broker asks for one")
    key_file: str = setting("", doc="private key of our certificate")
    username: str = setting("", doc="user name; empty: none is sent")
    password_file: str = setting("", doc="file whose first line is the password; it is never shown or logged")
    protocol: str = setting(
        "auto", doc="MQTT version; auto: 5, and 3.1.1 if the broker refuses it", choices=("auto", "5", "3.1.1")
    )
    keep_alive_s: int = setting(
        30, doc="longest silence on the connection; 0: no limit", unit="s", minimum=0, maximum=65535
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
        doc="how many messages the broker sends before some are acknowledged, if that is known; 0: it is found out",
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


@dataclass(frozen=True, slots=True)
class Central(Connection):
    """The broker between the gateways and the central side; configuration and flows come over it too."""

    enabled: bool = setting(True, doc="false: the gateway works alone, results wait in the outbox")


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
    listen: str = setting("127.0.0.1", doc="address to listen on for other gateways")
    port: int = setting(7844, doc="TCP port to listen on; 0: any free one, said in the log", minimum=0, maximum=PORT)
    certificate: str = setting(
        "", doc="this gateway's certificate (PEM), with its name as URI:edgert://<fleet>/<gateway> or as common name"
    )
    key: str = setting("", doc="private key of the certificate (PEM); not everybody may read it")
    ca: str = setting("", doc="the fleet's CA (PEM), which has signed every gateway's certificate")
    crl: str = setting(
        "", doc="certificates that the CA has revoked (PEM); a newer file is read within seconds; empty: none are"
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
        doc="control socket of this board's agent, for the card OS scheduling; empty: `agent.sock` where "
        "`control.sock` is by default",
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
        doc="how much an instance takes from its queue at a time: at most consumption_rows, half of it, or all",
        choices=("at-most", "half", "all"),
    )
    policy: str = setting(
        "congestion-aware",
        doc="which instance runs next; congestion-aware: the longest queue (EdgeWise, §4.1), but before it whoever has "
        "waited for 50 ms, the longest first: where many have rows all the time, and a turn of each takes longer than "
        "that together, it is first come, first served; congestion-aware-published: the longest queue, whoever waits: "
        "a short one may starve; min-latency: the nearest to a sink; min-memory: who makes rows vanish fastest (Chain);"
        " round-robin; random; owpoa: a thread per instance, and the OS decides (to compare with)",
        choices=(
            "congestion-aware",
            "congestion-aware-published",
            "min-latency",
            "min-memory",
            "round-robin",
            "random",
            "owpoa",
        ),
    )
    fusion: str = setting(
        "full",
        doc="what becomes one instance; full: all that one operator alone feeds, directly or not; lines: the same "
        "without branches; chains: only stateless operators; none",
        choices=("full", "lines", "chains", "none"),
    )
    fission: bool = setting(
        True, doc="whether operators run in as many instances as their documents say; false: in one each"
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
class Log:
    """What is told on standard error."""

    level: str = setting("info", doc="least level that is told", choices=LEVELS)


@dataclass(frozen=True, slots=True)
class Flows:
    """Flows that this gateway starts with, beside those that come over MQTT."""

    files: tuple[str, ...] = setting((), doc="deployment documents (.toml or .json)")


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
    pool: Pool = section(Pool)
    log: Log = section(Log)
    flows: Flows = section(Flows)


def control_socket(settings: GatewaySettings, env: Mapping[str, str], root: bool) -> str:
    """Path of a gateway's control socket. Two gateways of one user have data folders of their own, so that their
    sockets differ, too."""
    return settings.control.socket or f"{_socket_folder(settings, env, root)}/control.sock"


def agent_socket(settings: GatewaySettings, env: Mapping[str, str], root: bool) -> str:
    """Path of the control socket of the agent on a gateway's board."""
    return settings.web.agent_socket or f"{_socket_folder(settings, env, root)}/agent.sock"


def _socket_folder(settings: GatewaySettings, env: Mapping[str, str], root: bool) -> str:
    data = settings.gateway.data_dir
    return data if data and not env.get("RUNTIME_DIRECTORY") else runtime_folder(env, root) or data_folder(env, root)


@dataclass(frozen=True, slots=True)
class Collector:
    """Takes results from the broker and appends them to the landing tables."""

    id: str = setting(
        "collector", doc="name of this collector, told in its acknowledgements and its status", check=_fleet
    )
    fleet: str = setting("default", doc="name of the fleet whose results it takes", check=_fleet)
    table_root: str = setting(
        "",
        doc="folder or URI of the tables; empty: `tables` in the service's folder, in /var/lib/edgert for root, else "
        "in $XDG_STATE_HOME/edgert",
    )
    gather_s: float = setting(
        1.0,
        doc="results are gathered for this long into one commit of a table, or until there are 2 MiB of them before "
        "compression",
        unit="s",
        minimum=0.01,
        maximum=60,
    )
    lease_s: float = setting(
        0.0,
        doc="several collectors share the results by leases, and after one's death the others wait so long; the same "
        "for all of them, each with an id of its own. 0: this collector takes all results",
        unit="s",
        minimum=0,
        maximum=600,
        check=_lease,
    )
    hold_s: float = setting(
        10.0,
        doc="how long results after a missing one are held; then they are dropped and asked for again",
        unit="s",
        minimum=0.1,
        maximum=600,
    )


@dataclass(frozen=True, slots=True)
class ObjectStore:
    """An S3-compatible store, where `collector.table_root` is a URI such as s3://bucket/tables."""

    endpoint: str = setting("", doc="its URL, such as https://store.example:9000; empty: Amazon's", check=_url)
    region: str = setting("us-east-1", doc="its region, where AWS_REGION does not say another")
    credentials_file: str = setting(
        "",
        doc="file with aws_access_key_id and aws_secret_access_key under [default], which not everybody may read; "
        "empty: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
    )


@dataclass(frozen=True, slots=True)
class FleetJob:
    """The Spark job that makes fleet tables from landing tables."""

    trigger_s: float = setting(
        3.0, doc="shortest time between two looks for new results", unit="s", minimum=0, maximum=3600
    )
    master: str = setting("local[2]", doc="Spark master: local[N], spark://host:port, yarn, k8s://...")
    max_files_per_trigger: int = setting(
        400,
        doc="most landing files taken at a time; if that fails they are taken again",
        minimum=1,
        maximum=100_000,
    )
    lease_s: float = setting(
        60.0,
        doc="another job waits so long before it takes the place of one that died; the same for all jobs of a root",
        unit="s",
        minimum=5,
        maximum=3600,
    )
    metrics_port: int = setting(
        0, doc="port of Prometheus metrics, on loopback (see metrics-central.md); 0: none", minimum=0, maximum=65_535
    )


@dataclass(frozen=True, slots=True)
class Upkeep:
    """What keeps the tables small: compaction, deletion of what nobody needs any more, retention. The collector does it
    beside its work; `edgert central upkeep` does it by hand."""

    every_s: float = setting(
        60.0,
        doc="time between two looks for small files; once an hour all else is done, too. 0: by hand only",
        unit="s",
        minimum=0,
        maximum=86_400,
    )
    compact_files: int = setting(
        100, doc="as many small files of a day (below 16 MiB) are rewritten as few", minimum=2, maximum=100_000
    )
    keep_hours: int = setting(
        24,
        doc="how long older versions of a table can be read, by those who read without being registered as readers",
        unit="h",
        minimum=1,
        maximum=87_600,
    )
    reader_patience_days: float = setting(
        7.0,
        doc="a registered reader that says nothing for this long is waited for no longer: it has to begin anew",
        unit="days",
        minimum=0.01,
        maximum=3650,
    )
    retention_days: int = setting(
        0,
        doc="landing rows, gaps, drops and quarantine are dropped after this many days; a rebuild and a correction "
        "then reach no further back. 0: never",
        unit="days",
        minimum=0,
        maximum=36_500,
    )


@dataclass(frozen=True, slots=True)
class Training:
    """Models that `edgert central run` trains on fleet tables and publishes to the gateways."""

    files: tuple[str, ...] = setting((), doc="training documents (.toml), see models.md; each says how often")


@dataclass(frozen=True, slots=True)
class Alerts:
    """Alerts that `edgert central run` raises and clears."""

    files: tuple[str, ...] = setting((), doc="documents with alert rules (.toml), see alerts.md")
    trigger_s: float = setting(15.0, doc="shortest time between two looks", unit="s", minimum=0.1, maximum=3600)
    publish: bool = setting(False, doc="also as messages on `edgert/v1/<fleet>/@alerts/<rule>` of the central broker")


@dataclass(frozen=True, slots=True)
class CollectorSettings:
    """The central side's file, `/etc/edgert/central.toml`."""

    collector: Collector = section(Collector)
    central: Connection = section(Connection, doc="The broker between the gateways and the central side.")
    object_store: ObjectStore = section(ObjectStore)
    fleet_job: FleetJob = section(FleetJob)
    upkeep: Upkeep = section(Upkeep)
    training: Training = section(Training)
    alerts: Alerts = section(Alerts)
    log: Log = section(Log)
