"""The document (TOML) of a training: the model, its table and columns, and its schedule."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from edgert.boards import files
from edgert.central.documents import Bounds, instead_of
from edgert.core.errors import DocumentError, Problem, show
from edgert.core.ids import GATEWAY_NAME
from edgert.flow.document import read_untrusted
from edgert.operators.base.fields import field_name, field_names
from edgert.operators.models.models import KINDS, MAX_TREE_DEPTH

MOST_FEATURES: Final = 100


PARAMETERS: Final[Mapping[str, Mapping[str, Bounds]]] = {
    "linear_regression": {
        "regularization": Bounds(0.0, 1e6),
        "elastic_net": Bounds(0.0, 1.0),
        "max_iterations": Bounds(1, 10_000, whole=True, default=100),
    },
    "decision_tree": {
        "max_depth": Bounds(1, MAX_TREE_DEPTH, whole=True, default=5),
        "max_bins": Bounds(2, 10_000, whole=True, default=32),
        "least_rows_per_leaf": Bounds(1, 1_000_000, whole=True, default=1),
    },
}
"""Parameters that `[parameters]` may hold, by kind of model."""
_NUMBERS: Final = {
    "days": Bounds(1e-6, 36_525.0),
    "holdout": Bounds(0.01, 0.9, default=0.2),
    "least_rows": Bounds(2, 1_000_000_000, whole=True, default=100),
    "every_s": Bounds(60.0, 31_622_400.0),
}
_TEXTS: Final = ("table", "sql", "where", "time", "label")
_KEYS: Final = ("name", "kind", *_TEXTS, "features", "since", "until", *_NUMBERS, "parameters", "gateways")


@dataclass(frozen=True, slots=True)
class Training:
    """A document that was checked. Times are aware, in UTC."""

    name: str
    """The model's name, as `predict` has it."""
    kind: str
    label: str
    """The column to predict. A tree of a column of strings tells a class, one of numbers a number."""
    features: tuple[str, ...]
    table: str = ""
    """The table's name as `edgert central tables` lists it; empty: `sql`."""
    sql: str = ""
    where: str = ""
    """An SQL condition on the rows."""
    time: str = "window_start"
    """The column of times: of the range, and of what is newest."""
    since: dt.datetime | None = None
    until: dt.datetime | None = None
    days: float = 0.0
    """Length of the range, back from `until` or now; 0: from `since`."""
    holdout: float = 0.2
    """The part of the rows, the newest, on which the model is tried."""
    least_rows: int = 100
    every_s: float = 0.0
    """0: trained by hand only."""
    gateways: tuple[str, ...] = ()
    """For whom; empty: the whole fleet."""
    parameters: Mapping[str, float] = field(default_factory=dict)
    """All of the kind's."""

    def range(self, now: dt.datetime) -> tuple[dt.datetime | None, dt.datetime]:
        """(since, until) at a time."""
        until = self.until or now
        return (until - dt.timedelta(days=self.days) if self.days else self.since), until


def load(path: Path | str) -> Training:
    """The training that a file describes. Raises `DocumentError` with every fault, `EdgertError` if it is no file."""
    return parse(files.read(path), str(path))


def parse(text: str | bytes, what: str = "training") -> Training:
    """Works as `load`, from TOML that was read from `what`."""
    document = read_untrusted(text, format="toml", what=what)
    reader = _TrainingReader(document)
    training = reader.read()
    if reader.problems:
        raise DocumentError(what, reader.problems)
    return training


class _TrainingReader:
    """Collects faults, so that one hides no other."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self.problems: list[Problem] = []
        self._document = document

    def _fault(self, path: str, expected: str, got: str) -> None:
        self.problems.append(Problem(path, expected, got))

    def read(self) -> Training:
        given = self._document
        for key in given.keys() - set(_KEYS):
            self._fault(key, f"a known key ({instead_of(key, _KEYS)})", "an unknown one")
        kind = given.get("kind")
        if kind not in KINDS:
            self._fault("kind", f"one of {', '.join(KINDS)}", show(kind))
        texts = {key: self._text(key) for key in _TEXTS}
        if bool(texts["table"]) == bool(texts["sql"]):
            self._fault("table", "either a table or sql", "both" if texts["sql"] else "neither")
        if texts["sql"] and not re.match(r"\s*(select|with)\b", texts["sql"], re.IGNORECASE):
            self._fault("sql", "a query that begins with SELECT or WITH", show(texts["sql"]))
        if not texts["label"]:
            self._fault("label", "the column to predict", show(given.get("label")))
        features = self._names("features", _features)
        if texts["label"] in features:
            self._fault("features", "columns other than the label", texts["label"])
        if kind == "linear_regression" and len(features) > MAX_TREE_DEPTH:
            self._fault("features", f"at most {MAX_TREE_DEPTH} for a linear regression", str(len(features)))
        numbers = {key: self._number(given, key, bounds, key) for key, bounds in _NUMBERS.items()}
        since, until = self._moment("since"), self._moment("until")
        if since and numbers["days"]:
            self._fault("since", "either since or days", "both")
        if since and until and since >= until:
            self._fault("until", f"a time after {since:%Y-%m-%dT%H:%M:%SZ}", f"{until:%Y-%m-%dT%H:%M:%SZ}")
        if until and numbers["every_s"]:
            self._fault("until", "no end of the range for a training on a schedule (days bounds it)", str(until))
        return Training(
            name=self._name(), kind=str(kind), label=texts["label"], features=features, table=texts["table"],
            sql=texts["sql"], where=texts["where"], time=texts["time"] or "window_start", since=since, until=until,
            days=numbers["days"], holdout=numbers["holdout"], least_rows=int(numbers["least_rows"]),
            every_s=numbers["every_s"], gateways=self._names("gateways", _gateways) if "gateways" in given else (),
            parameters=self._parameters(kind),
        )  # fmt: skip

    def _name(self) -> str:
        name = self._document.get("name")
        if not isinstance(name, str) or not GATEWAY_NAME.fullmatch(name):
            self._fault("name", "1 to 63 letters, digits, '_', '.' or '-', a letter or digit first", show(name))
        return str(name)

    def _text(self, key: str) -> str:
        value = self._document.get(key, "")
        if not isinstance(value, str) or (key in self._document and not value.strip()):
            self._fault(key, "a string, not empty", show(value))
            return ""
        return value

    def _names(self, key: str, check: Callable[[Sequence[str]], tuple[str, ...]]) -> tuple[str, ...]:
        value = self._document.get(key)
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            self._fault(key, "a list of names", show(value))
            return ()
        try:
            return check(value)
        except ValueError as error:
            self._fault(key, *str(error).removeprefix("expected ").split(", got ", 1))
            return ()

    def _number(self, table: Mapping[str, Any], key: str, bounds: Bounds, path: str) -> float:
        value = table.get(key, bounds.default)
        if key in table and not bounds.holds(value):
            self._fault(path, str(bounds), show(value))
            return bounds.default
        number: float = value
        return number

    def _moment(self, key: str) -> dt.datetime | None:
        value = self._document.get(key)
        if value is None:
            return None
        if isinstance(value, dt.datetime):
            return value.astimezone(dt.UTC) if value.tzinfo else value.replace(tzinfo=dt.UTC)
        if isinstance(value, dt.date):
            return dt.datetime(value.year, value.month, value.day, tzinfo=dt.UTC)
        self._fault(key, "a date or a time (2026-01-31, 2026-01-31T12:00:00Z), without quotes", show(value))
        return None

    def _parameters(self, kind: Any) -> Mapping[str, float]:
        given = self._document.get("parameters", {})
        known = PARAMETERS.get(str(kind), {})
        if not isinstance(given, Mapping):
            self._fault("parameters", "a table [parameters]", show(given))
            return {}
        for key in given.keys() - known.keys() if known else ():
            self._fault(f"parameters.{key}", f"one of {', '.join(known)}", "an unknown one")
        return {key: self._number(given, key, bounds, f"parameters.{key}") for key, bounds in known.items()}


def _features(names: Sequence[str]) -> tuple[str, ...]:
    if len(names) > MOST_FEATURES:
        raise ValueError(f"expected at most {MOST_FEATURES} columns, got {len(names)}")
    return tuple(map(field_name, field_names(names)))


def _gateways(names: Sequence[str]) -> tuple[str, ...]:
    for name in names:
        if not GATEWAY_NAME.fullmatch(name):
            raise ValueError(f"expected names of gateways, got {show(name)}")
    return tuple(dict.fromkeys(names))
