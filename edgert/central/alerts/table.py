"""The table `alerts`: what was raised, and what of it was cleared. It decides what is new, not who judged it.

A stream's batch may come again, and one that lost its checkpoint begins anew. So what is judged is held against the
table: a rule has one open alert per key, and none that began before its last one was cleared.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Final

import pyarrow as pa

from edgert.central.alerts.rules import AlertRule
from edgert.central.tables.query import literal
from edgert.central.tables.table import TIME, Table, join

TABLE: Final = "alerts"
RAISED: Final = "raised"
CLEARED: Final = "cleared"
_AT_ONCE: Final = 500
"""Keys, or alerts, that one condition names."""
_TYPES: Final = {"str": pa.string(), "float | None": pa.float64(), "dt.datetime": TIME, "dt.datetime | None": TIME}


@dataclass(frozen=True, slots=True)
class Alert:
    """A row of the table. Times are event times, UTC."""

    id: str
    """Identifier of the alert: rule, key and `since` determine it."""
    rule: str
    flow: str
    kind: str
    key: str
    """The key columns as a JSON object."""
    state: str
    """`raised` or `cleared`."""
    since: dt.datetime
    """Silent: the end of the last window. Outside: the start of the first window that was."""
    raised: dt.datetime
    """How far the stream was when it said so."""
    cleared: dt.datetime | None = None
    """The end of the window that cleared it; `since`, if no window ever can: its rule is gone, or has other keys."""
    value: float | None = None
    low: float | None = None
    high: float | None = None
    """The bounds then, where there were such."""

    def plain(self) -> dict[str, Any]:
        """Returns the row in JSON types, for a message."""
        told = {f: v.isoformat().replace("+00:00", "Z") if isinstance(v, dt.datetime) else v
                for f, v in asdict(self).items()}  # fmt: skip
        return {**told, "key": json.loads(self.key)}


@dataclass(frozen=True, slots=True)
class KeyVerdict:
    """The last verdict of a batch on a key. Times are microseconds since the epoch."""

    key: str
    at: int
    """How far the stream is; of one that is well: the end of the window that says so."""
    since: int | None = None
    """Since when something is wrong; None: all is well."""
    value: float | None = None
    low: float | None = None
    high: float | None = None


def settle(rule: AlertRule, last: Mapping[str, Alert], verdicts: Iterable[KeyVerdict]) -> list[Alert]:
    """The alerts that are new or changed. `last`: the newest alert of each key of which there is one. At most one
    verdict a key."""
    changed = []
    for verdict in verdicts:
        known = last.get(verdict.key)
        open_ = known is not None and known.state == RAISED
        if verdict.since is None:
            if known is not None and open_ and _time(verdict.at) > known.since:
                changed.append(replace(known, state=CLEARED, cleared=_time(verdict.at)))
            continue
        since = _time(verdict.since)
        if open_ or (known is not None and known.cleared is not None and since < known.cleared):
            continue
        changed.append(
            Alert(
                id=_id(rule.name, verdict.key, verdict.since), rule=rule.name, flow=rule.flow, kind=rule.kind,
                key=verdict.key, state=RAISED, since=since, raised=_time(verdict.at), value=verdict.value,
                low=verdict.low, high=verdict.high,
            )
        )  # fmt: skip
    return changed


class Alerts:
    """The table under a root. Not for more than one thread. Everything raises `TableError`."""

    def __init__(self, root: str, at_once: int = _AT_ONCE) -> None:
        self._table, self._at_once = Table(join(root, TABLE)), at_once

    def open(self, rule: str) -> list[Alert]:
        """Alerts of a rule that are not cleared."""
        self._table.refresh()
        return self._read(f"rule = {literal(rule)} AND state = {literal(RAISED)}")

    def end(self, is_over: Callable[[Alert], bool]) -> list[Alert]:
        """Clears open alerts of which this holds, since no rule says anything of their keys any more; returns those.
        Cleared at `since`: a rule that is put back raises the same alert again, if its key is still as it was."""

        def decided() -> list[Alert]:
            found = [alert for alert in self._read(f"state = {literal(RAISED)}") if is_over(alert)][: self._at_once]
            ended = [replace(alert, state=CLEARED, cleared=alert.since) for alert in found]
            self._write(ended)
            return ended

        every: list[Alert] = []
        while ended := self._table.decide(decided):
            every += ended
        return every

    def take(self, rule: AlertRule, verdicts: Sequence[KeyVerdict]) -> list[Alert]:
        """Writes what `verdicts` (at most one a key) change, each alert once; returns that."""
        changed: list[Alert] = []
        for at in range(0, len(verdicts), self._at_once):
            changed += self._take(rule, verdicts[at : at + self._at_once])
        return changed

    def _take(self, rule: AlertRule, verdicts: Sequence[KeyVerdict]) -> list[Alert]:
        keys = ", ".join(literal(v.key) for v in verdicts)

        def decided() -> list[Alert]:
            last: dict[str, Alert] = {}
            for alert in self._read(f"rule = {literal(rule.name)} AND key IN ({keys})"):
                if alert.key not in last or last[alert.key].since < alert.since:
                    last[alert.key] = alert
            changed = settle(rule, last, verdicts)
            self._write(changed)
            return changed

        return self._table.decide(decided)

    def _write(self, changed: Sequence[Alert]) -> None:
        """In one commit. Raises `CommitConflict` if alerts of these rules were written since the last refresh."""
        if changed:
            ids = ", ".join(literal(a.id) for a in changed)
            applications = {f"alerts/{a.rule}" for a in changed}
            versions = {name: self._table.version(name) + 1 for name in applications}
            self._table.replace(_rows(changed), versions, f"id IN ({ids})")

    def _read(self, where: str) -> list[Alert]:
        return [Alert(**row) for row in self._table.read([f.name for f in fields(Alert)], where)]


def _rows(alerts: Sequence[Alert]) -> pa.Table:
    columns = {f.name: pa.array([getattr(a, f.name) for a in alerts], _TYPES[str(f.type)]) for f in fields(Alert)}
    return pa.table({**columns, "day": pa.array([a.since.date() for a in alerts], pa.date32())})


def _id(rule: str, key: str, since: int) -> str:
    return hashlib.blake2s(json.dumps([rule, key, since]).encode(), digest_size=12).hexdigest()


def _time(micros: int) -> dt.datetime:
    return dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(microseconds=micros)
