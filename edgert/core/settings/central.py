"""Settings of the central side's file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from edgert.core.config import section, setting
from edgert.core.settings.checks import fleet_name
from edgert.core.settings.connection import Connection
from edgert.core.settings.log import Log

TABLES_PER_FLOW: Final = 16


def _lease(seconds: float) -> str | None:
    return "0, or at least 5: a collector looks after its leases every second" if 0 < seconds < 5 else None


def _url(text: str) -> str | None:
    fits = not text or text.startswith(("https://", "http://"))
    return None if fits else "an address that begins with https:// or http://"


@dataclass(frozen=True, slots=True)
class Collector:
    """Takes results from the broker and appends them to the landing tables."""

    id: str = setting(
        "collector", doc="name of this collector, told in its acknowledgements and its status", check=fleet_name
    )
    fleet: str = setting("default", doc="name of the fleet whose results it takes", check=fleet_name)
    table_root: str = setting(
        "",
        doc="folder or URI of the tables; empty: `tables` in the service's folder, in /var/lib/edgert for root, else "
        "in $XDG_STATE_HOME/edgert",
        path=True,
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
    tables_per_flow: int = setting(
        TABLES_PER_FLOW,
        doc="most landing tables of one flow with results of one gateway: a version with other windows or keys has one "
        "of its own; results that would need one more go to `quarantine`",
        minimum=1,
        maximum=10_000,
    )
    mac_key_file: str = setting(
        "",
        doc="file with the central key (`edgert fleet mac-key`), of which the keys of all gateways are made; its first "
        "line is in use, further ones are former keys: a result without a MAC by a key of its gateway is refused, and "
        "acknowledgements carry a MAC; empty: MACs are not checked",
        secret_file=True,
    )
    accept_unsigned: bool = setting(
        False,
        doc="with mac_key_file: results without a MAC are taken and counted (`unsigned`), for the time in which "
        "gateways get their keys; a wrong MAC is refused in any case",
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
        secret_file=True,
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
    """Upkeep that keeps the tables small: compaction, deletion of files that no reader needs, retention. The collector
    does it beside its work; `edgert central upkeep` does it by hand."""

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

    files: tuple[str, ...] = setting(
        (), doc="training documents (.toml), see models.md; each says how often", path=True
    )


@dataclass(frozen=True, slots=True)
class Alerts:
    """Alerts that `edgert central run` raises and clears."""

    files: tuple[str, ...] = setting((), doc="documents with alert rules (.toml), see alerts.md", path=True)
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
