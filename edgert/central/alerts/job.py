"""The alert job: a Spark stream per rule and landing table of its flow, whose verdicts become rows of `alerts`."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import logging
import threading
from collections import Counter, deque
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, ClassVar, Final

from edgert.central.alerts.rules import AlertRule
from edgert.central.alerts.streams import RuleStream, rule_stream
from edgert.central.alerts.table import Alert, Alerts
from edgert.central.landing.flow_table import FlowTable
from edgert.central.landing.flow_tables import of_flow
from edgert.central.spark.leased_job import Job
from edgert.central.spark.session import forget_tables
from edgert.central.spark.stream_reader import StreamReader, opened
from edgert.central.spark.streams import AllGivenUp, BatchGate, CannotStart, RunningQuery, Streams
from edgert.central.tables.lease import TableLease, own_name
from edgert.central.tables.readers import Readers
from edgert.central.tables.table import CommitConflict, TableError, join, list_folders, list_tables, told
from edgert.central.training.publication import Publication
from edgert.core.errors import EdgertError
from edgert.core.settings.central import Alerts as Settings
from edgert.install_hint import command

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

log = logging.getLogger("edgert.central.alerts")
READER: Final = "alert:"
"""Prefix of the names of our readers."""
_PLACES: Final = "_spark/alerts"
MOST_FILES: Final = 200
AGAIN_S: Final = 60.0
MOST_UNSAID: Final = 10_000


def check_packages() -> None:
    """Raises `EdgertError` if Spark's Python workers cannot keep state here."""
    if importlib.util.find_spec("google") is None or importlib.util.find_spec("google.protobuf") is None:
        raise EdgertError(
            "alerts need the Python package protobuf, by which Spark's workers reach their state, and it is not "
            f"installed; install it with: {command('central')}"
        )


class AlertJob(Job):
    """One job writes the alerts of a root: others wait for its lease. It runs on a thread of its own. Without rules it
    ends when it has cleared what is open."""

    _waits_out: ClassVar = (*Job._waits_out, AllGivenUp)
    """The fleet job may go on, and then this one is not started again: each stream is tried once an hour."""

    def __init__(
        self,
        spark: SparkSession,
        root: str,
        rules: Sequence[AlertRule],
        settings: Settings,
        publication: Publication | None = None,
        lease: TableLease | None = None,
    ) -> None:
        own = lease or TableLease(root, "alerts", own_name())
        super().__init__(own, log, Streams(in_turn=True, on_failure=partial(forget_tables, spark)))
        self._spark = spark
        self._root = root
        self._rules = {READER + rule.name: rule for rule in rules}
        self._settings = settings
        self._publication = publication
        self._readers = {
            name: StreamReader(root, name, f"alerts/{_folder(rule)}") for name, rule in self._rules.items()
        }
        self._unsaid: deque[Alert] = deque()
        self.counts: Counter[tuple[str, str]] = Counter()
        """(rule, `raised` or `cleared`) -> alerts; ("", `unsaid`): messages that were given up."""
        self.ahead: Counter[str] = Counter()
        """Rule -> windows that it left out, or took for those of now, since they are more than a day ahead."""
        self._counting = threading.Lock()
        self._cleaned = False
        self._thread = threading.Thread(target=self._guarded, name="alerts", daemon=True)

    def start(self) -> None:
        if self._publication is not None:
            self._publication.start()
        self._thread.start()

    def close(self, patience_s: float = 60.0) -> None:
        """Ends after the batches under way."""
        self.stop()
        self._thread.join(patience_s)
        if self._publication is not None:
            self._publication.close()

    def _guarded(self) -> None:
        """Runs the job until it is stopped; no content of a table ends it for good."""
        while not self._stopping.is_set():
            try:
                self.run()
            except Exception:
                log.exception("alerts: beginning again in %.0f s", AGAIN_S)
                self._stopping.wait(AGAIN_S)

    def follow(self) -> None:
        self.say()
        if not self._cleaned:
            self._strike_off()
            self._cleaned = True
        elif not self._rules and not self._unsaid:
            self.stop()
        there = list_tables(self._root, "landing")
        for name, rule in self._rules.items():
            for table in of_flow(there, rule.flow):
                self.streams.add(_stream_name(rule, table), partial(self._start, name, rule, table))

    def _strike_off(self) -> None:
        """Removes the remains of rules that are gone or were replaced: open alerts, which nothing would clear; readers,
        for which upkeep would wait; positions of streams, as a rule that is put back has to read all of its tables."""
        about = {(rule.name, rule.flow, rule.kind) for rule in self._rules.values()}
        self._end(Alerts(self._root), lambda alert: (alert.rule, alert.flow, alert.kind) not in about)
        readers = Readers(self._root)
        for name in {r.reader for r in readers.all() if r.reader.startswith(READER)} - self._rules.keys():
            readers.remove(name)
            log.info("%s: no rule is left; the reader is removed from the registry", name)
        for folder in set(list_folders(self._root, _PLACES)) - {_folder(rule) for rule in self._rules.values()}:
            place = join(self._root, _PLACES, folder)
            with told(place, "the checkpoints of a rule that is gone could not be deleted"):
                filesystem, path = opened(place)
                filesystem.delete_dir(path)

    def _register(self, queries: Mapping[str, StreamingQuery]) -> Collection[str]:
        running: dict[str, dict[str, StreamingQuery]] = {}
        for stream, query in queries.items():
            name, _, table = stream.partition("/")
            running.setdefault(name, {})[table or self._rules[name].flow] = query
        left = []
        for name, tables in running.items():
            try:
                left += [_stream_name(self._rules[name], table) for table in self._readers[name].tell(tables)]
            except (TableError, CommitConflict) as error:  # others are told
                log.warning("%s: the register was not told how far it has read: %s", name, error)
        return left

    def _start(self, name: str, rule: AlertRule, table: str) -> RunningQuery:
        at = FlowTable(self._root, table)
        at.refresh()
        if at.schema is None:
            raise CannotStart(f"landing/{table}: expected an opening row, found none")
        alerts = Alerts(self._root)
        stream = rule_stream(rule, table, at.schema, self._root, alerts)
        reader = self._readers[name]
        if why := reader.ready(table):
            log.warning("%s: %s, reading all of landing/%s again", name, why, table)
        self._end_other_keys(alerts, rule)
        self.note(alerts.open(rule.name))
        landing = (
            self._spark.readStream.format("delta")
            .option("skipChangeCommits", "true")
            .option("maxFilesPerTrigger", MOST_FILES)
            .load(join(self._root, "landing", table))
        )
        door = BatchGate()

        def update(batch: DataFrame, _batch_id: int) -> None:
            door.run(lambda: self._take(stream, alerts, batch))

        writer = (
            stream.frame(landing)
            .writeStream.queryName(_stream_name(rule, table))
            .option("checkpointLocation", reader.checkpoint(table))
            .foreachBatch(update)
        )
        return RunningQuery(writer.trigger(processingTime=f"{self._settings.trigger_s} seconds").start(), door)

    def _take(self, stream: RuleStream, alerts: Alerts, batch: DataFrame) -> None:
        """On the thread of a stream."""
        self._lease.hold()
        verdicts = stream.verdicts(batch)
        if stream.ahead:
            with self._counting:
                self.ahead[stream.rule.name] += stream.ahead
        if not verdicts:
            return
        self._lease.hold()
        self._changed(alerts.take(stream.rule, verdicts))

    def _end_other_keys(self, alerts: Alerts, rule: AlertRule) -> None:
        """Ends the alerts that were open when the rule had other keys."""
        known = {rule.keys}
        if not rule.keys:
            there = of_flow(list_tables(self._root, "landing"), rule.flow)
            known = {t.key_names() for t in map(partial(FlowTable, self._root), there) if t.refresh()}
        self._end(alerts, lambda alert: alert.rule == rule.name and tuple(json.loads(alert.key)) not in known)

    def _end(self, alerts: Alerts, is_over: Callable[[Alert], bool]) -> None:
        """Clears open alerts that no stream clears any more."""
        ended = alerts.end(is_over)
        if ended:
            log.warning("open alerts that no rule is about any more are cleared: %d", len(ended))
        self._changed(ended)

    def _changed(self, alerts: Sequence[Alert]) -> None:
        for alert in alerts:
            with self._counting:  # a rule may have several streams
                self.counts[alert.rule, alert.state] += 1
            log.warning("%s %s: %s, since %s", alert.rule, alert.key, alert.state, alert.since.isoformat())
        self.note(alerts)

    def note(self, alerts: Sequence[Alert]) -> None:
        """To be published by the job's own thread; what is open is said again at a start."""
        if self._publication is not None:
            self._unsaid.extend(alerts)

    def say(self) -> None:
        """Tells the broker what is unsaid, as far as it is there. What it refuses is given up, with what waits of the
        same rule: no rule's alerts wait for another's."""
        refused: set[str] = set()
        while self._publication is not None and self._unsaid and not self._stopping.is_set():
            alert = self._unsaid[0]
            why = ""
            if len(self._unsaid) <= MOST_UNSAID and alert.rule not in refused:
                why = self._publication.tell_alert(alert.rule, json.dumps(alert.plain()).encode())
                if not why:
                    self._unsaid.popleft()
                    continue
                if not self._publication.connected:
                    return
                refused.add(alert.rule)
            self._unsaid.popleft()
            self.counts["", "unsaid"] += 1
            if why:
                log.error("alerts of %s could not be published: %s; the table `alerts` has them", alert.rule, why)


def _stream_name(rule: AlertRule, table: str) -> str:
    """Name of the stream of a rule's reader; on a later table of the flow: with the table's name, after a slash."""
    return READER + rule.name + ("" if table == rule.flow else f"/{table}")


def _folder(rule: AlertRule) -> str:
    """Returns the folder of the checkpoints of a rule's streams. Its name has in it what their state depends on, in
    short: with other keys or columns they begin anew."""
    state = json.dumps([rule.kind, rule.flow, rule.keys, rule.column, rule.windows])
    return f"{rule.name}-{hashlib.blake2s(state.encode(), digest_size=4).hexdigest()}"
