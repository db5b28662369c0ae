"""The Spark session of the central side: local by default, Delta's four jars fetched once, nothing else to set up."""

from __future__ import annotations

import logging
import os
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from edgert.central.spark.install import check_java, jar_cache, secret_of
from edgert.core.errors import EdgertError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_MASTER: Final = re.compile(
    r"local(\[([1-9]\d{0,3}|\*)(,\s*\d+)?\])?|local-cluster\[\d+,\d+,\d+\]|spark://[^\s:/,]+:\d+(,[^\s:/,]+:\d+)*|yarn|k8s://\S+"
)
_SCALA: Final = "2.13"
_JAVA: Final = (
    "-XX:+UseSerialGC",
    "-XX:ReservedCodeCacheSize=192m",
    # The functions that Spark generates for a wide aggregation are longer than what Java compiles by default.
    "-XX:-DontCompileHugeMethods",
)
_TOLD_BY_US: Final = (
    "org.apache.spark.executor.Executor",
    "org.apache.spark.scheduler.TaskSetManager",
    "org.apache.spark.sql.catalyst.expressions.codegen.CodeGenerator",
    "org.apache.spark.sql.execution.streaming",
)
"""Java's loggers of what comes to us as an error (a task or a batch that failed, each with a stack of its own) or is
none: code too long for Java to compile, with all of that code, is interpreted."""
_TIMES: Final = ("spark.sql.session.timeZone", "spark.sql.parquet.outputTimestampType")
_STATE_STORE: Final = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
# Spark brings all of this itself; without the exclusions Delta's package pulls in 74 MB of it a second time.
_SPARK_HAS: Final = (
    "com.fasterxml.jackson.core",
    "com.fasterxml.jackson.datatype",
    "com.fasterxml.jackson.module",
    "com.github.luben",
    "com.google.code.findbugs",
    "commons-logging",
    "commons-pool",
    "io.airlift",
    "io.unitycatalog",
    "javax.annotation",
    "org.antlr",
    "org.apache.hadoop",
    "org.apache.logging.log4j",
    "org.apache.parquet",
    "org.apache.spark",
    "org.locationtech.jts",
    "org.roaringbitmap",
    "org.scala-lang",
    "org.slf4j",
    "org.xerial.snappy",
)


def make_session(name: str, master: str = "local[2]") -> SparkSession:
    """A session with Delta. Raises `EdgertError` if Java is missing or the jars cannot be fetched.

    The first session of a machine fetches four jars (13 MB) from Maven Central into a cache; later ones need no
    network. Set `EDGERT_JARS` to a folder that has them where a machine may not fetch. Under `spark-submit` its master,
    jars and settings hold, and `master` means nothing.
    """
    check_java()
    check_master(master)
    # Workers must run this interpreter, not the first `python3` of the PATH.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName(name)
    if is_submitted():
        settings = _of_submitted()
    else:
        builder = builder.master(master)
        local = master.startswith("local")
        if local:
            os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        settings = _settings(local) | _of_process(local) | _of_cluster(master)
    for key, value in settings.items():
        builder = builder.config(key, value)
    try:
        session = builder.getOrCreate()
    # Whatever it is that Spark cannot do, it says so by a dozen types, some of them bare `Exception`.
    except Exception as error:
        text = str(error).strip().splitlines()
        raise EdgertError(f"Spark could not start ({text[0] if text else type(error).__name__})") from error
    session.sparkContext.setLogLevel("ERROR")
    log4j: Any = session._jvm
    for name in _TOLD_BY_US:
        log4j.org.apache.logging.log4j.core.config.Configurator.setLevel(name, "OFF")
    return session


def check_master(text: str) -> str:
    """Raises `EdgertError` for what Spark would not know: it says so by pages of Java."""
    if not _MASTER.fullmatch(text):
        raise EdgertError(f"expected a Spark master (local[2], spark://HOST:PORT, yarn, k8s://...), got {text!r}")
    return text


@contextmanager
def running(name: str, master: str) -> Iterator[SparkSession]:
    """A session as `make_session` makes it, stopped at the end. Raises `EdgertError` if Spark ends before."""
    spark = make_session(name, master)
    from py4j.protocol import Py4JNetworkError  # type: ignore[import-untyped]

    gone = (Py4JNetworkError, ConnectionError, EOFError)
    try:
        with without_lost_calls():
            yield spark
    except gone as error:
        raise EdgertError(
            "Spark's Java process is gone (killed, or out of memory?); what was committed stays: start this again"
        ) from error
    finally:
        with suppress(*gone):
            spark.stop()


@contextmanager
def without_lost_calls() -> Iterator[None]:
    """Keep py4j's tracebacks of calls that Java's end cut short out of the log: it raises them as well."""

    def kept(record: logging.LogRecord) -> bool:
        return record.msg != "Exception while sending command."

    logging.getLogger().addFilter(kept)  # py4j has no logger of its own for these
    try:
        yield
    finally:
        logging.getLogger().removeFilter(kept)


def forget_tables(spark: SparkSession) -> None:
    """Have what Delta keeps of each table's log read anew: with it stays what failed while it was made (on a full disk
    a broadcast, of which each later use gets the same error) for as long as the table has no new version."""
    java: Any = spark._jvm
    java.org.apache.spark.sql.delta.DeltaLog.clearCache()


@contextmanager
def set_for(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Settings of a session for as long as this lasts. A stream has a session of its own, so no other sees them."""
    before = {name: spark.conf.get(name, None) for name in settings}
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, old in before.items():
            if old is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, old)


def _settings(local: bool) -> dict[str, str]:
    """Returns settings of every session that runs our queries."""
    settings = {
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.debug.maxToStringFields": "100",
        # Nothing of ours is kept there, but Spark makes the folder: by default wherever it was started.
        "spark.sql.warehouse.dir": str(jar_cache().parent / "warehouse"),
        # By hashing, an aggregation that collects makes a buffer per window, which costs more than all else of a row.
        "spark.sql.execution.useObjectHashAggregateExec": "false",
        # Though they are not looked at: plans as text, made anew with each stage, and the last 1,000 queries in memory.
        "spark.sql.ui.explainMode": "simple",
        "spark.sql.maxPlanStringLength": "2000",
        "spark.sql.ui.retainedExecutions": "10",
        # What a compaction leaves alone: more would be written again and again.
        "spark.databricks.delta.optimize.minFileSize": str(16 * 1024 * 1024),
        # Its own default of old cannot tell times from 2262 on to other readers.
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
        # A file for each of a few days at once, instead of all rows sorted by their day first.
        "spark.sql.maxConcurrentOutputFileWriters": "4",
        # The only one that the alert job's streams can have; those of the fleet job keep no state.
        "spark.sql.streaming.stateStore.providerClass": _STATE_STORE,
    }
    if local:
        settings |= {
            # The default of 200 partitions is for a cluster; here each costs a task and a file.
            "spark.sql.shuffle.partitions": "2",
            "spark.databricks.delta.snapshotPartitions": "2",
            "spark.sql.sources.parallelPartitionDiscovery.parallelism": "2",
        }
    return settings


def _of_process(local: bool) -> dict[str, str]:
    """Returns settings of a session in a process of our own."""
    settings = {
        "spark.driver.memory": "1g",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.ui.retainedJobs": "20",
        "spark.ui.retainedStages": "20",
        "spark.ui.retainedTasks": "200",
        "spark.ui.dagGraph.retainedRootRDDs": "10",
        # One sorted file per task of a shuffle; by default it is one per partition first, which costs more per row.
        "spark.shuffle.sort.bypassMergeThreshold": "1",
        **_jars(),
    }
    if local:
        settings |= {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.default.parallelism": "2",
            "spark.driver.extraJavaOptions": " ".join(_JAVA),
        }
    return settings


def is_submitted() -> bool:
    """True if `spark-submit` has started this process, and Spark's Java before it."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def _of_submitted() -> dict[str, str]:
    """Settings that our queries need beside those of `spark-submit`, which take precedence except for the meaning of
    times in tables."""
    from pyspark import SparkConf

    given = SparkConf()
    local = (given.get("spark.master") or "").startswith("local")
    return {key: value for key, value in _settings(local).items() if key in _TIMES or not given.contains(key)}


def _of_cluster(master: str) -> dict[str, str]:
    """For a cluster that `edgert central cluster` has started here: its secret, and nothing but loopback."""
    secret = secret_of(master)
    if secret is None:
        return {}
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    return {
        "spark.authenticate": "true",
        "spark.authenticate.secret": secret,
        "spark.network.crypto.enabled": "true",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.executor.memory": "512m",
        "spark.sql.shuffle.partitions": "4",
        "spark.databricks.delta.snapshotPartitions": "2",
    }


def _names() -> list[str]:
    spark = ".".join(version("pyspark").split(".")[:2])
    return [f"delta-spark_{spark}_{_SCALA}", "delta-storage", "delta-kernel-api", "delta-kernel-defaults"]


def _jars() -> dict[str, str]:
    """The jars from the cache if they are all there (then no network is needed), else the order to fetch them."""
    delta = version("delta-spark")
    cache = jar_cache()
    given = os.environ.get("EDGERT_JARS")
    if given:
        files = [Path(given) / f"{name}-{delta}.jar" for name in _names()]
        missing = [f.name for f in files if not f.is_file()]
        if missing:
            raise EdgertError(f"EDGERT_JARS: expected {', '.join(missing)} in {given}")
        return {"spark.jars": ",".join(map(str, files))}
    files = [cache / "jars" / f"io.delta_{name}-{delta}.jar" for name in _names()]
    if all(f.is_file() for f in files):
        return {"spark.jars": ",".join(map(str, files))}
    excluded = [f"{group}:*" for group in _SPARK_HAS] + ["io.delta:delta-kernel-unitycatalog"]
    return {
        "spark.jars.packages": f"io.delta:{_names()[0]}:{delta}",
        "spark.jars.excludes": ",".join(excluded),
        "spark.jars.ivy": str(cache),
    }
