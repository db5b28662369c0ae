"""`python -m benchmarks.fleet.job`: the fleet job in a process of its own, and what Spark says of each of its triggers.

Says `ready` when it has its session, works for each line that it reads, from the beginning of the landing table, and
says (JSON) how long that took; it ends with its input. With `--follow` it works from one line to the next. With
`--plain` it appends the same rows to a table and computes nothing.
"""

from __future__ import annotations

import argparse
import json
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
from pyspark.sql.streaming.listener import StreamingQueryListener

from benchmarks.fleet.landings import FLOW, clear
from edgert.central.fleet.job import FleetJob
from edgert.central.spark.session import make_session
from edgert.central.tables.table import join
from edgert.core.settings.central import FleetJob as Settings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import listener


class Triggers(StreamingQueryListener):
    """What Spark tells of the triggers that had rows: (rows, ms per phase)."""

    def __init__(self) -> None:
        self.told: list[tuple[int, dict[str, int]]] = []
        self.ended = threading.Event()

    def onQueryStarted(self, event: listener.QueryStartedEvent) -> None:  # noqa: N802 - Spark's name
        pass

    def onQueryProgress(self, event: listener.QueryProgressEvent) -> None:  # noqa: N802
        plain = json.loads(event.progress.json)
        if plain["numInputRows"]:
            self.told.append((plain["numInputRows"], plain["durationMs"]))

    def onQueryIdle(self, event: listener.QueryIdleEvent) -> None:  # noqa: N802
        pass

    def onQueryTerminated(self, event: listener.QueryTerminatedEvent) -> None:  # noqa: N802
        self.ended.set()


def append(spark: SparkSession, root: str, settings: Settings) -> None:
    """The same rows, in triggers of as many files, to a table of their own."""
    target = join(root, "plain", FLOW)

    def write(batch: DataFrame, _number: int) -> None:
        batch.write.format("delta").mode("append").partitionBy("day").save(target)

    source = spark.readStream.format("delta").option("maxFilesPerTrigger", settings.max_files_per_trigger)
    query = (
        source.load(join(root, "landing", FLOW))
        .writeStream.option("checkpointLocation", join(root, "_spark", "plain"))
        .foreachBatch(write)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def used() -> tuple[float, float]:
    """(seconds of CPU so far, resident memory in MB) of this process and its JVM."""
    this = psutil.Process()
    both = [this, *this.children(recursive=True)]
    times = [process.cpu_times() for process in both]
    return sum(t.user + t.system for t in times), sum(p.memory_info().rss for p in both) / 1e6


def work(spark: SparkSession, options: argparse.Namespace, settings: Settings) -> None:
    """As it was asked for."""
    if options.plain:
        append(spark, options.root, settings)
        return
    job = FleetJob(spark, options.root, settings)
    if not options.follow:
        job.run_once()
        return
    thread = threading.Thread(target=job.run)
    thread.start()
    sys.stdin.readline()
    job.stop()
    thread.join()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", required=True)
    parser.add_argument("--follow", action="store_true")
    parser.add_argument("--plain", action="store_true")
    options = parser.parse_args()
    settings = Settings()
    spark = make_session("edgert-bench", settings.master)
    print("ready", flush=True)
    while sys.stdin.readline():
        clear(Path(options.root))
        triggers = Triggers()
        spark.streams.addListener(triggers)
        started, cpu_before = time.monotonic(), used()[0]
        work(spark, options, settings)
        seconds, (cpu, memory) = time.monotonic() - started, used()
        triggers.ended.wait(5.0)  # Spark tells it a moment later
        spark.streams.removeListener(triggers)
        told = {"seconds": seconds, "cpu_s": cpu - cpu_before, "memory_mb": memory, "triggers": triggers.told}
        print(json.dumps(told), flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
