"""`edgert central`: the collector, the fleet job, and a look at their tables."""

from __future__ import annotations

import argparse
import logging
import os
import re
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from edgert.cli._numbers import number, whole
from edgert.cli.central import alerts as alerting
from edgert.cli.central import models

if TYPE_CHECKING:
    from edgert.core.settings.central import CollectorSettings

log = logging.getLogger("edgert.central")
HELP = "the central side: collector, fleet job, and a look at their tables"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the verbs of `edgert central`."""
    under = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    collect = _add(under, "collect", _collect, "append results to landing tables (as edgert-collector does)")
    collect.add_argument("--fleet", metavar="NAME", help="fleet whose results are taken")
    collect.add_argument("--broker", metavar="HOST[:PORT]", help="MQTT broker between gateways and central side")

    job = _add(under, "run", _run, "make fleet tables from landing tables (Spark)")
    job.add_argument("--master", type=models.master, help="Spark master: local[2], spark://host:7077, ...")
    trigger = number(0, 3600, "seconds")
    job.add_argument("--trigger-s", type=trigger, metavar="S", help="shortest time between two looks for new rows")
    job.add_argument("--once", action="store_true", help="process what is there, then stop")

    rebuild = _add(under, "rebuild", _rebuild, "make the fleet tables of a flow anew, day by day (Spark)")
    rebuild.add_argument("flow", metavar="FLOW", help="a flow's name; FLOW_v2, ...: only that table")
    rebuild.add_argument("--master", type=models.master, help="Spark master: local[2], spark://host:7077, ...")

    cluster = under.add_parser("cluster", help="run a Spark cluster on this machine, on loopback")
    cluster.description = "Run a Spark cluster on this machine, on loopback, until Ctrl-C; `run --master` uses it."
    port = whole(1, 65535)
    cluster.add_argument("--port", type=port, default=7077, metavar="N", help="port of its master (default 7077)")
    cluster.add_argument("--workers", type=whole(1), default=2, metavar="N", help="how many workers (default 2)")
    cluster.add_argument("--cores", type=whole(1), default=1, metavar="N", help="cores of each (default 1)")
    cluster.add_argument("--memory", type=_memory, default="1g", metavar="SIZE", help="memory of each (default 1g)")
    cluster.set_defaults(do=_cluster)

    models.add_arguments(lambda name, do, about: _add(under, name, do, about), _settings)

    tables = _add(under, "tables", _tables, "list the tables")
    tables.add_argument("--json", action="store_true", help="one JSON object per line")

    show = _add(under, "show", _show, "print a table, newest windows first (without Spark)")
    show.add_argument(
        "table", metavar="TABLE", help="a flow's name (its windows, whoever merged them), or as `tables` lists it"
    )
    show.add_argument("--limit", type=whole(), default=20, metavar="N", help="rows at most (default 20)")
    show.add_argument("--where", default="", metavar="SQL", help="condition, such as \"source = 'a1' AND n > 5\"")
    show.add_argument("--json", action="store_true", help="one JSON object per line")

    upkeep = _add(under, "upkeep", _upkeep, "compact the tables, delete what nobody needs any more (without Spark)")
    upkeep.add_argument("--json", action="store_true", help="one JSON object per line")

    readers = _add(under, "readers", _readers, "list who reads the tables and how far, which upkeep waits for")
    readers.add_argument("--remove", type=_reader, metavar="READER", help="strike one off that is gone for good")
    readers.add_argument(
        "--register", type=_reader, metavar="READER", help="register a reader of your own, or say how far it is"
    )
    readers.add_argument("--table", metavar="TABLE", help="the table that it reads, as `tables` lists it")
    readers.add_argument(
        "--version", type=whole(), metavar="N", help="it has read all of this version (default: newest)"
    )
    readers.add_argument("--json", action="store_true", help="one JSON object per line")

    leases = _add(under, "leases", _leases, "list who has which lease: collectors, fleet job, upkeep (without Spark)")
    leases.add_argument("--json", action="store_true", help="one JSON object per line")

    query = _add(under, "query", _query, "answer an SQL query over the tables (without Spark)")
    query.add_argument("sql", metavar="SQL", help='such as "SELECT source, max(t) FROM fleet_city_air GROUP BY source"')
    query.add_argument("--json", action="store_true", help="one JSON object per line")


def _add(
    under: argparse._SubParsersAction[argparse.ArgumentParser],
    name: str,
    do: Callable[[argparse.Namespace], int],
    about: str,
) -> argparse.ArgumentParser:
    # A part of an option's name is none: `_submit` looks for --master among those of `run`.
    parser = under.add_parser(name, help=about, description=about)
    parser.add_argument("--config", metavar="FILE", help="settings (TOML); see `edgert config`")
    parser.add_argument("--root", metavar="FOLDER", help="folder or URI of the tables")
    parser.set_defaults(do=do)
    return parser


def _reader(text: str) -> str:
    if not text:
        raise argparse.ArgumentTypeError("expected a reader's name, got ''")
    return text


def _memory(text: str) -> str:
    """Parses memory as Spark writes it; an executor of ours takes half a GB, and a worker with less never gets one."""
    found = re.fullmatch(r"(\d{1,9})([mg])b?", text.lower())
    if found is None or int(found[1]) * {"m": 1, "g": 1024}[found[2]] < 512:
        raise argparse.ArgumentTypeError(f"expected a size such as 2g, or 512m at least, got {text}")
    return text


def run(args: argparse.Namespace) -> int:
    """Run the command; returns the exit status."""
    do: Callable[[argparse.Namespace], int] = args.do
    return do(args)


def _settings(args: argparse.Namespace) -> tuple[CollectorSettings, str]:
    """(settings, root of the tables), which can be read and written from now on."""
    from edgert.central.collector.main import settings_of, table_root
    from edgert.central.tables import object_store

    settings = settings_of(args)
    root = table_root(settings)
    object_store.prepare(root, settings.object_store, os.environ)
    return settings, root


def _collect(args: argparse.Namespace) -> int:
    from edgert.central.collector.main import collect

    return collect(args)


def _run(args: argparse.Namespace) -> int:
    from edgert.central.collector.main import make_root
    from edgert.central.tables import show
    from edgert.central.tables.object_store import check_spark
    from edgert.core import log as logs

    settings, root = _settings(args)
    logs.set_up(settings.log.level, env=os.environ)
    check_spark(root)
    if args.once:
        show.find_any(root)
    else:
        make_root(root)
    job_settings = settings.fleet_job
    if args.master:
        job_settings = replace(job_settings, master=args.master)
    if args.trigger_s is not None:
        job_settings = replace(job_settings, trigger_s=args.trigger_s)
    rules = alerting.rules(settings)
    from edgert.central.fleet.job import FleetJob
    from edgert.central.spark.leased_job import stop_on_signal
    from edgert.central.spark.metrics import served
    from edgert.central.spark.session import running

    log.info("Spark starts: some 10 s, and longer at a machine's very first start, which downloads 13 MB")
    with running("edgert-fleet", job_settings.master) as spark:
        log.info("Spark runs; looking for tables in %s", root)
        job = FleetJob(spark, root, job_settings)
        if args.once:
            job.run_once()
        else:
            stop_on_signal(job.stop)
            with (
                models.training(spark, root, settings),
                alerting.raised(spark, root, rules, settings) as alerts,
                served(job_settings.metrics_port, lambda: alerting.status(job, alerts)),
            ):
                job.run()
    return 0


def _cluster(args: argparse.Namespace) -> int:
    from edgert.core import log as logs

    logs.set_up("INFO", env=os.environ)
    from edgert.central.spark.cluster import Cluster
    from edgert.central.spark.leased_job import stop_on_signal

    cluster = Cluster(args.port, args.workers, args.cores, args.memory)
    stop_on_signal(cluster.stop)

    def ready() -> None:
        print(f"Spark cluster: {cluster.master}, {args.workers} workers with {args.cores} cores and {args.memory} each")
        print(f"  edgert central run --master {cluster.master} --root FOLDER")
        print(f"  its logs: {cluster.folder}", flush=True)

    cluster.run(ready)
    return 0


def _rebuild(args: argparse.Namespace) -> int:
    from edgert.core import log as logs

    settings, root = _settings(args)
    logs.set_up(settings.log.level, env=os.environ)
    from edgert.central.fleet.job import FleetJob
    from edgert.central.landing.flow_tables import of_flow
    from edgert.central.spark.session import running
    from edgert.central.tables import show
    from edgert.central.tables.object_store import check_spark
    from edgert.central.tables.table import list_tables

    check_spark(root)
    tables = of_flow(list_tables(root, "landing"), args.flow)
    tables = tables or [show.find(root, f"landing/{args.flow}").removeprefix("landing/")]
    with running("edgert-rebuild", args.master or settings.fleet_job.master) as spark:
        job = FleetJob(spark, root, settings.fleet_job)
        for table in tables:
            days = windows = 0
            for day, count in job.rebuild(table):
                days, windows = days + 1, windows + count
                print(f"{day}: {count:,} windows", flush=True)
            print(f"fleet/{table}: {days} days, {windows:,} windows made anew", flush=True)
    return 0


def _tables(args: argparse.Namespace) -> int:
    from edgert.central.tables import show

    _, root = _settings(args)
    listed, wrong = show.facts(root)
    if not listed and not wrong and not args.json:
        print(f"no tables in {root} yet: they are made when the first results land", file=sys.stderr)
        return 0
    columns = ["table", "rows", "version", "files", "kB"]
    show.print_table(
        columns, [[f.name, f.rows, f.version, f.files, f.size_bytes // 1000] for f in listed], as_json=args.json
    )
    for error in wrong:
        print(f"edgert: {error}", file=sys.stderr)
    return 1 if wrong else 0


def _show(args: argparse.Namespace) -> int:
    import time

    from edgert.central.fleet import on_reading
    from edgert.central.tables import show

    _, root = _settings(args)
    found = on_reading.read(root, args.table, time.time(), args.limit, args.where)
    for note in found.notes:
        print(f"edgert: {note}", file=sys.stderr)
    show.print_table(found.columns, found.rows, as_json=args.json)
    return 0


def _query(args: argparse.Namespace) -> int:
    from edgert.central.tables import show

    _, root = _settings(args)
    columns, rows = show.select(root, args.sql)
    show.print_table(columns, rows, as_json=args.json)
    return 0


def _upkeep(args: argparse.Namespace) -> int:
    from edgert.central.tables import show
    from edgert.central.upkeep.upkeep import Upkeep
    from edgert.core import log as logs

    settings, root = _settings(args)
    logs.set_up(settings.log.level, env=os.environ)
    show.find_any(root)
    columns = ["table", "files", "compacted", "days dropped", "deleted", "kB", "of the log", "held by"]
    rows = []
    failed = 0
    for work in Upkeep(root, settings.upkeep).round(thorough=True):
        rows.append([work.table, work.files, work.compacted, work.days, work.deleted, work.deleted_bytes // 1000])
        rows[-1] += [work.log_deleted, work.held_by or None]
        if work.trouble:
            failed += 1
            print(f"{work.table}: {work.trouble}", file=sys.stderr)
    show.print_table(columns, rows, as_json=args.json)
    return 1 if failed else 0


def _readers(args: argparse.Namespace) -> int:
    import datetime as dt
    import time

    from edgert.central.tables import show
    from edgert.central.tables.readers import Readers
    from edgert.core.errors import EdgertError

    if not args.register and (args.table is not None or args.version is not None):
        raise EdgertError("--table and --version: expected --register READER beside them")
    settings, root = _settings(args)
    show.find_any(root)
    readers = Readers(root)
    if args.remove:
        print(f"{args.remove}: struck off, {readers.remove(args.remove)} tables", file=sys.stderr)
    if args.register:
        if not args.table:
            raise EdgertError("--register: expected --table TABLE beside it, as `edgert central tables` lists it")
        readers.tell_from_outside(args.register, show.find(root, args.table), args.version)
    columns = ["reader", "table", "rows up to", "log from", "seen", "state"]
    now = time.time()
    patience_s = settings.upkeep.reader_patience_days * 86_400
    rows = []
    for r in readers.all():
        seen = dt.datetime.fromtimestamp(round(r.seen), dt.UTC)
        rows.append([r.reader, r.table, r.reach.rows, r.reach.log, seen, r.state(now, patience_s)])
    show.print_table(columns, rows, as_json=args.json)
    return 0


def _leases(args: argparse.Namespace) -> int:
    import datetime as dt
    import time

    from edgert.central.tables import show
    from edgert.central.tables.lease import claims

    _, root = _settings(args)
    show.find_any(root)
    columns = ["lease", "holder", "until", "state"]
    now = time.time()
    rows = []
    for claim in claims(root):
        until = dt.datetime.fromtimestamp(round(claim.expires), dt.UTC) if claim.expires else None
        rows.append([claim.name, claim.holder, until, "held" if claim.expires > now else "free"])
    show.print_table(columns, rows, as_json=args.json)
    return 0
