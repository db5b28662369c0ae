"""The table `models`: every version of every model, of which one at most is published.

It decides; what stands at the broker says the same (`publication`). A change takes all versions of a model and puts the
changed ones in their place, in one commit under Delta's transaction identifier `models/<name>`: of two that change
the same model at the same time one looks again.
"""

from __future__ import annotations

import datetime as dt
import difflib
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Final

import pyarrow as pa

from edgert.central.tables.query import literal
from edgert.central.tables.table import TIME, Table, join
from edgert.core.errors import EdgertError

TABLE: Final = "models"
KEPT: Final = 100
"""Versions of a model that are kept, of the rejected and of all others so many each: the newest, and the published one.
Each schedule may reject for months, and what was published before is what a rollback goes to."""
PUBLISHED: Final = "published"
REPLACED: Final = "replaced"
REJECTED: Final = "rejected"
ROLLED_BACK: Final = "rolled back"
_TYPES: Final = {
    "str": pa.string(), "int": pa.int64(), "bool": pa.bool_(), "float | None": pa.float64(), "dt.datetime": TIME,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class ModelVersion:
    """A row of the table. Figures are null where they have no meaning: a class has no RMSE, a number no accuracy."""

    name: str
    version: int
    state: str
    """`published`, `replaced` (by a newer one), `rejected` or `rolled back` (to an older one)."""
    reason: str
    """Why it is in this state."""
    pinned: bool
    """A rollback chose it: no training on a schedule replaces it."""
    kind: str
    label: str
    trained: dt.datetime
    since: dt.datetime
    """Time of the oldest row that it was trained on, and `until` of the newest; from there on is the holdout."""
    until: dt.datetime
    rows: int
    holdout_rows: int
    left_out: int
    """Rows of the range with a value that is null or no number."""
    rmse: float | None
    r2: float | None
    accuracy: float | None
    holdout_rmse: float | None
    holdout_r2: float | None
    holdout_accuracy: float | None
    gateways: str
    """For whom, separated by commas; empty: the whole fleet."""
    document: str
    """Its JSON form, as gateways get it."""


def current(versions: Sequence[ModelVersion]) -> ModelVersion | None:
    """The published one."""
    return next((v for v in versions if v.state == PUBLISHED), None)


def with_new(versions: Sequence[ModelVersion], new: ModelVersion) -> list[ModelVersion]:
    """`versions` of one model and a new one, newest first. One that is published replaces the one that was."""
    told = f"version {new.version}: {new.reason}"
    others = [
        replace(v, state=REPLACED, reason=told, pinned=False) if new.state == v.state == PUBLISHED else v
        for v in versions
    ]
    whole = sorted((new, *others), key=lambda v: -v.version)
    seen: Counter[bool] = Counter()
    kept = []
    for v in whole:
        seen[v.state == REJECTED] += 1
        if seen[v.state == REJECTED] <= KEPT or v.state == PUBLISHED:
            kept.append(v)
    return kept


def rolled_back(versions: Sequence[ModelVersion], to: int | None, when: dt.datetime) -> list[ModelVersion]:
    """`versions` of one model with another one published: number `to`, or the older one that was in use before.

    Whatever is newer than that counts as rolled back, also what had been replaced; so the newest that is `replaced` is
    what was in use before the present one. Raises `EdgertError` saying which there are.
    """
    now = current(versions)
    listed = ", ".join(f"{v.version} ({v.state})" for v in versions)
    name = versions[0].name
    if to is None:
        older = [v.version for v in versions if v.state == REPLACED and (now is None or v.version < now.version)]
        if not older:
            raise EdgertError(f"model {name}: expected an older version that was published, got {listed}")
        to = max(older)
    if to not in [v.version for v in versions]:
        raise EdgertError(f"model {name}: expected --to with one of its versions, got {to}; there are {listed}")
    at = f"{when:%Y-%m-%d %H:%M:%S} UTC"
    changed = []
    for v in versions:
        if v.version == to:
            v = replace(v, state=PUBLISHED, reason=f"rolled back to at {at}", pinned=True)
        elif v.state in (PUBLISHED, REPLACED) and v.version > to:
            v = replace(v, state=ROLLED_BACK, reason=f"to version {to} at {at}", pinned=False)
        elif v.state == PUBLISHED:
            v = replace(v, state=REPLACED, reason=f"version {to}: rolled back to at {at}", pinned=False)
        changed.append(v)
    return changed


class ModelRegistry:
    """The table under a root. Not for more than one thread; several processes may race."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._table = Table(join(root, TABLE), partition_by="name")

    def names(self) -> list[str]:
        """Returns the names of all models. Raises `TableError`, as all that follows does."""
        self._table.refresh()
        return sorted({row["name"] for row in self._table.read(["name"], "true")})

    def versions(self, name: str) -> list[ModelVersion]:
        """Returns the versions of a model, newest first; none if it is unknown."""
        self._table.refresh()
        return self._read(name)

    def current(self, name: str) -> ModelVersion | None:
        """The published version of a model."""
        return current(self.versions(name))

    def known(self, name: str) -> list[ModelVersion]:
        """Works as `versions`. Raises `EdgertError` for a model that is unknown."""
        versions = self.versions(name)
        if not versions:
            names = self.names()
            near = difflib.get_close_matches(name, names, n=1)
            hint = f" (nearest: {near[0]})" if near else ""
            listed = ", ".join(names) or "none yet: train one by `edgert central train`"
            raise EdgertError(f"model {name!r}: expected one of those in {self._root}{hint}: {listed}")
        return versions

    def add(self, name: str, make: Callable[[list[ModelVersion]], ModelVersion]) -> ModelVersion:
        """Adds what `make` returns for the versions that there are (called again if another came first)."""
        made: list[ModelVersion] = []

        def change(versions: list[ModelVersion]) -> list[ModelVersion]:
            made[:] = [make(versions)]
            return with_new(versions, made[0])

        self._change(name, change)
        return made[0]

    def roll_back(self, name: str, to: int | None, when: dt.datetime) -> ModelVersion:
        """Rolls a model back, as `rolled_back` does; returns the version that is published now. Raises
        `EdgertError`."""
        self.known(name)
        now = current(self._change(name, lambda versions: rolled_back(versions, to, when)))
        assert now is not None
        return now

    def _change(self, name: str, change: Callable[[list[ModelVersion]], list[ModelVersion]]) -> list[ModelVersion]:
        application = f"models/{name}"

        def decided() -> list[ModelVersion]:
            changed = change(self._read(name))
            versions = {application: self._table.version(application) + 1}
            self._table.replace(_rows(changed), versions, f"name = {literal(name)}")
            return changed

        return self._table.decide(decided)

    def _read(self, name: str) -> list[ModelVersion]:
        rows = self._table.read([f.name for f in fields(ModelVersion)], f"name = {literal(name)}")
        return sorted((ModelVersion(**row) for row in rows), key=lambda v: -v.version)


def _rows(versions: Sequence[ModelVersion]) -> pa.Table:
    def column(name: str, kind: Any) -> pa.Array:
        return pa.array([getattr(v, name) for v in versions], kind)

    types = {f.name: _TYPES[str(f.type)] for f in fields(ModelVersion)}
    return pa.table({name: column(name, kind) for name, kind in types.items()})
