"""The commands of `edgert central` about models: train one, list them, go back to an older one."""

from __future__ import annotations

import argparse
import datetime as dt
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from edgert.core.errors import EdgertError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from edgert.central.training.schedule import TrainingOutcome
    from edgert.core.settings.central import CollectorSettings

Do = Callable[[argparse.Namespace], int]
Add = Callable[[str, Do, str], argparse.ArgumentParser]
ReadSettings = Callable[[argparse.Namespace], "tuple[CollectorSettings, str]"]


def add_arguments(add: Add, settings: ReadSettings) -> None:
    """`add(name, do, about)` makes a command; `settings(args)` reads (settings, root of the tables)."""
    train = add("train", lambda args: _train(args, settings), "train a model on a fleet table and publish it (Spark)")
    train.add_argument("file", type=Path, metavar="FILE", help="training document (.toml), see docs/models.md")
    train.add_argument("--master", type=master, help="Spark master: local[2], spark://host:7077, ...")
    train.add_argument("--force", action="store_true", help="publish it though it is worse, or cannot be compared")
    listed = add("models", lambda args: _models(args, settings), "list the versions of models (without Spark)")
    listed.add_argument("name", nargs="?", metavar="NAME", help="only this model's")
    listed.add_argument("--json", action="store_true", help="one JSON object per line, with the whole document")
    back = add(
        "rollback", lambda args: _rollback(args, settings), "publish an older version of a model (without Spark)"
    )
    back.add_argument("name", metavar="NAME", help="a model's name")
    back.add_argument("--to", type=int, metavar="VERSION", help="which one (default: the older one in use before)")
    for parser in (train, back):
        parser.add_argument("--fleet", metavar="NAME", help="fleet that it is published to")
        parser.add_argument("--broker", metavar="HOST[:PORT]", help="MQTT broker between gateways and central side")


def master(text: str) -> str:
    """A Spark master, as argparse wants it told."""
    from edgert.central.spark.session import check_master

    try:
        return check_master(text)
    except EdgertError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


@contextmanager
def training(spark: SparkSession, root: str, settings: CollectorSettings) -> Iterator[None]:
    """Meanwhile models are trained as their documents in the settings say; nothing if there are none."""
    if not settings.training.files:
        yield
        return
    from edgert.central.training.schedule import TrainingSchedule

    trainer = TrainingSchedule(spark, root, settings.training.files, settings.central, settings.collector.fleet)
    trainer.start()
    try:
        yield
    finally:
        trainer.close()


def _train(args: argparse.Namespace, read: ReadSettings) -> int:
    from edgert.central.tables.object_store import check_spark
    from edgert.central.training.document import load
    from edgert.central.training.publication import Publication
    from edgert.core import log as logs

    settings, root = read(args)
    logs.set_up(settings.log.level, env=os.environ)
    check_spark(root)
    document = load(args.file)
    publication = Publication(settings.central, settings.collector.fleet)
    publication.start()
    try:
        publication.wait()
        from edgert.central.spark.session import running
        from edgert.central.training.schedule import train_and_publish

        with running("edgert-train", args.master or settings.fleet_job.master) as spark:
            outcome = train_and_publish(spark, root, document, publication, force=args.force)
    finally:
        publication.close()
    assert outcome is not None, "only a training on a schedule comes to nothing"
    print(_told(outcome))
    if not outcome.topics:
        v = outcome.version
        raise EdgertError(
            f"model {v.name}: version {v.version} is not published: {v.reason}; --force would publish it all the same"
        )
    return 0


def _told(outcome: TrainingOutcome) -> str:
    v, trained = outcome.version, outcome.trained
    lines = [f"model {v.name}: version {v.version} {v.state}: {v.reason}"]
    for what, figures in (("trained on", trained.on_training), ("held out", trained.on_holdout)):
        r2 = "" if figures.r2 is None else f", R² {figures.r2:.6g}"
        lines.append(f"  {what} {figures.rows:,} rows: {figures.told}{r2}")
    lines.append(f"  from {v.since:%Y-%m-%d %H:%M:%S} to {v.until:%Y-%m-%d %H:%M:%S} UTC, held out what is newer")
    if v.left_out:
        lines.append(f"  left out {v.left_out:,} rows with a value that is null or no number")
    return "\n".join([*lines, *(f"  sent to {topic}" for topic in outcome.topics)])


def _models(args: argparse.Namespace, read: ReadSettings) -> int:
    from dataclasses import asdict

    from edgert.central.tables import show
    from edgert.central.tables.models import ModelRegistry

    _, root = read(args)
    registry = ModelRegistry(root)
    found = (
        registry.known(args.name) if args.name else [v for name in registry.names() for v in registry.versions(name)]
    )
    if not found:
        print(f"no models in {root} yet: train one by `edgert central train`", file=sys.stderr)
        return 0
    rows = [asdict(v) for v in found]
    columns = list(rows[0])
    if args.json:
        show.print_table(columns, [list(row.values()) for row in rows], as_json=True)
        return 0
    columns = ["name", "version", "state", "pinned", "trained", "rows", "holdout_rmse", "holdout_r2",
               "holdout_accuracy", "reason"]  # fmt: skip
    told = [
        {**row, "trained": f"{row['trained']:%Y-%m-%d %H:%M}", "pinned": "yes" if row["pinned"] else ""} for row in rows
    ]
    show.print_table(columns, [[row[c] for c in columns] for row in told])
    return 0


def _rollback(args: argparse.Namespace, read: ReadSettings) -> int:
    from edgert.central.tables.models import ModelRegistry
    from edgert.central.training.publication import Publication, changing

    settings, root = read(args)
    registry = ModelRegistry(root)
    registry.known(args.name)
    publication = Publication(settings.central, settings.collector.fleet)
    publication.start()
    try:
        publication.wait()
        with changing(root, args.name) as lease:
            version = registry.roll_back(args.name, args.to, dt.datetime.now(dt.UTC))
            topics = publication.publish(registry, args.name, lease)
    finally:
        publication.close()
    print(f"model {version.name}: version {version.version} is published, and no training on a schedule replaces it")
    print("\n".join(f"  sent to {topic}" for topic in topics))
    return 0
