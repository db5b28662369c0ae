"""`edgert central`: the collector, the fleet job, and a look at their tables."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from edgert.cli import _models

if TYPE_CHECKING:
    from edgert.core.settings import CollectorSettings

HELP = "the central side: collector, fleet job, and a look at their tables"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What is under `edgert central`."""
    under = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    collect = _add(under, "collect", _collect, "append results to landing tables (as edgert-collector does)")
    collect.add_argument("--fleet", metavar="NAME", help="fleet whose results are taken")
    collect.add_argument("--broker", metavar="HOST[:PORT]", help="MQTT broker between gateways and central side")

    job = _add(under, "run", _run, "make fleet tables from landing tables (Spark)")
    job.add_argument("--master", help="Spark master: local[2], spark://host:7077, ...")
    job.add_argument("--trigger-s", type=float, metavar="S", help="shortest time between two looks for new rows")
    job.add_argument("--once", action="store_true", help="process what is there, then stop")

    rebuild = _add(under, "rebuild", _rebuild, "make the fleet table of a flow anew, day by day (Spark)")
    rebuild.add_argument("flow", metavar="FLOW", help="a flow's name")
    rebuild.add_argument("--master", help="Spark master: local[2], spark://host:7077, ...")

    _models.add_arguments(lambda name, do, about: _add(under, name, do, about), _settings)

    _add(under, "tables", _tables, "list the tables")

    show = _add(under, "show", _show, "print a table, newest windows first (without Spark)")
    show.add_argument("table", metavar="TABLE", help="a flow's name (its fleet table), or as `tables` lists it")
    show.add_argument("--limit", type=count, default=20, metavar="N", help="rows at most (default 20)")
    show.add_argument("--where", default="", metavar="SQL", help="condition, such as \"source = 'a1' AND n > 5\"")
    show.add_argument("--json", action="store_true", help="one JSON object per line")

    query = _add(under, "query", _query, "answer an SQL query over the tables (without Spark)")
    query.add_argument("sql", metavar="SQL", help='such as "SELECT source, max(t) FROM fleet_city_air GROUP BY source"')
    query.add_argument("--json", action="store_true", help="one JSON object per line")


def _add(
    under: argparse._SubParsersAction[argparse.ArgumentParser],
    name: str,
    do: Callable[[argparse.Namespace], int],
    about: str,
) -> argparse.ArgumentParser:
    parser = under.add_parser(name, help=about, description=about)
    parser.add_argument("--config", metavar="FILE", help="settings (TOML); see `edgert config`")
    parser.add_argument("--root", metavar="FOLDER", help="folder or URI of the tables")
    parser.set_defaults(do=do)
    return parser


def count(text: str) -> int:
    number = int(text)
    if number < 0:
        raise ValueError(text)
    return number


def run(args: argparse.Namespace) -> int:
    """Run the command; returns the exit status."""
    do: Callable[[argparse.Namespace], int] = args.do
    return do(args)


def _settings(args: argparse.Namespace) -> tuple[CollectorSettings, str]:
    """(settings, root of the tables)."""
    from edgert.central.collector_main import settings_of, table_root

    for name in ("fleet", "broker"):
        if name not in args:
            setattr(args, name, None)
    settings = settings_of(args)
    return settings, table_root(settings)


def _collect(args: argparse.Namespace) -> int:
    from edgert.central.collector_main import collect

    return collect(args)


def _run(args: argparse.Namespace) -> int:
    from edgert.central.collector_main import make_root
    from edgert.core import log as logs

    settings, root = _settings(args)
    logs.set_up(settings.log.level, env=os.environ)
    make_root(root)
    job_settings = settings.fleet_job
    if args.master:
        job_settings = replace(job_settings, master=args.master)
    if args.trigger_s is not None:
        job_settings = replace(job_settings, trigger_s=args.trigger_s)
    from edgert.central.fleet_job import FleetJob, stop_on_signal
    from edgert.central.session import make_session

    spark = make_session("edgert-fleet", job_settings.master)
    try:
        job = FleetJob(spark, root, job_settings)
        if args.once:
            job.run_once()
        else:
            stop_on_signal(job.stop)
            with _models.training(spark, root, settings):
                job.run()
    finally:
        spark.stop()
    return 0


def _rebuild(args: argparse.Namespace) -> int:
    from edgert.core import log as logs

    settings, root = _settings(args)
    logs.set_up(settings.log.level, env=os.environ)
    from edgert.central import show
    from edgert.central.fleet_job import FleetJob
    from edgert.central.session import make_session

    show.find(root, f"landing/{args.flow}")
    spark = make_session("edgert-rebuild", args.master or settings.fleet_job.master)
    try:
        days = windows = 0
        for day, count in FleetJob(spark, root, settings.fleet_job).rebuild(args.flow):
            days, windows = days + 1, windows + count
            print(f"{day}: {count:,} windows", flush=True)
    finally:
        spark.stop()
    print(f"fleet/{args.flow}: {days} days, {windows:,} windows made anew")
    return 0


def _tables(args: argparse.Namespace) -> int:
    from edgert.central import show

    _, root = _settings(args)
    listed = show.facts(root)
    if not listed:
        print(f"no tables in {root} yet: they are made when the first results land", file=sys.stderr)
        return 0
    columns = ["table", "rows", "version", "files", "kB"]
    print(show.text_table(columns, [[f.name, f.rows, f.version, f.files, f.size_bytes // 1000] for f in listed]))
    return 0


def _show(args: argparse.Namespace) -> int:
    from edgert.central import show

    _, root = _settings(args)
    columns, rows = show.rows(root, args.table, args.limit, args.where)
    print(show.json_lines(columns, rows) if args.json else show.text_table(columns, rows))
    return 0


def _query(args: argparse.Namespace) -> int:
    from edgert.central import show

    _, root = _settings(args)
    columns, rows = show.select(root, args.sql)
    print(show.json_lines(columns, rows) if args.json else show.text_table(columns, rows))
    return 0
