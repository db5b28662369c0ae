"""One training with Spark: rows of a fleet table, the newest of them held out, a model, and how good it is.

The holdout is the newest part in time, not a part by chance: what a sensor says now is nearly what it said a moment
before, so rows by chance would ask the model what it has all but seen; and it is to predict what comes.
"""

from __future__ import annotations

import datetime as dt
import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pyspark import StorageLevel
from pyspark.sql import functions as F  # noqa: N812

from edgert.central.spark.errors import told_by_spark
from edgert.central.tables import show
from edgert.central.tables.table import join
from edgert.central.training import mllib
from edgert.central.training.document import Training
from edgert.central.training.mllib import LABEL, Fitted
from edgert.core.errors import DocumentError, EdgertError, Problem

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_TIME: Final = "time"
_NUMBERS: Final = ("byte", "short", "integer", "long", "float", "double", "decimal")


@dataclass(frozen=True, slots=True)
class TrainingFigures:
    """How good predictions are. `rmse` and `r2` of numbers, `accuracy` of classes; the others are None."""

    rows: int
    rmse: float | None = None
    r2: float | None = None
    accuracy: float | None = None

    @property
    def told(self) -> str:
        return f"rmse {self.rmse:.6g}" if self.accuracy is None else f"accuracy {self.accuracy:.6g}"

    def at_least_as_good_as(self, other: TrainingFigures) -> bool:
        """False also where a figure is no number."""
        if self.accuracy is not None and other.accuracy is not None:
            return self.accuracy >= other.accuracy
        return self.rmse is not None and other.rmse is not None and self.rmse <= other.rmse


@dataclass(frozen=True, slots=True)
class Trained:
    """Result of a training. Spark keeps its rows until `close`."""

    training: Training
    fitted: Fitted
    rows: DataFrame
    columns: Mapping[str, Column]
    """Field → column of `rows`."""
    cut: float
    """Time of the oldest row that was held out, s since the epoch."""
    since: dt.datetime
    until: dt.datetime
    left_out: int
    on_training: TrainingFigures
    on_holdout: TrainingFigures
    tables: Mapping[str, int]
    """Table → its version that was read."""
    kept: DataFrame
    """The frame that Spark keeps in memory."""

    def compare(self, other: Mapping[str, Any]) -> tuple[TrainingFigures, TrainingFigures] | None:
        """(the new model's figures, those of a model in its JSON form), both on the rows held out for which the other
        tells something. None: it cannot be compared, by the columns that it looks at or by what it tells.

        Raises `EdgertError`.
        """
        if not mllib.fields_of(other) <= self.columns.keys():
            return None
        with told_by_spark(f"training {self.training.name}"):
            mine, theirs = (mllib.prediction(d, self.columns) for d in (self.fitted.document, other))
            if (self.rows.select(theirs).dtypes[0][1] == "string") != bool(self.fitted.classes):
                return None
            tried = (F.col(_TIME) >= F.lit(self.cut)) & theirs.isNotNull()
            _, (new, old) = _figures(self.rows, [(mine, tried), (theirs, tried)])
            return (new, old) if new.rows else None

    def close(self) -> None:
        """Lets Spark forget the rows."""
        self.kept.unpersist()


def train(spark: SparkSession, root: str, training: Training, now: dt.datetime, also: Sequence[str] = ()) -> Trained:
    """Trains a model. `also`: columns that are wanted too, where there are such, to compare with another model.

    Raises `DocumentError` for what does not fit the table, `EdgertError` with what Spark says of anything else.
    """
    with told_by_spark(f"training {training.name}"):
        # Views have names of the user's: they are for this training alone.
        return _train(spark.newSession() if training.sql else spark, root, training, now, also)


def _train(spark: SparkSession, root: str, training: Training, now: dt.datetime, also: Sequence[str]) -> Trained:
    source, tables = _source(spark, root, training)
    _check(training, source)
    since, until = training.range(now)
    rows, columns = _rows(_in_range(source, training, since, until), training, also)
    rows.persist(StorageLevel.MEMORY_AND_DISK)
    try:
        good = rows.where(_usable(rows, len(training.features)))
        divided = _divided(rows, training)
        before, after = F.col(_TIME) < F.lit(divided.cut), F.col(_TIME) >= F.lit(divided.cut)
        fitted = mllib.fit(good.where(before), training.kind, training.features, training.parameters)
        on_training, on_holdout = tried(fitted, good, columns, before, after)
        return Trained(
            training, fitted, good, columns, divided.cut, _moment(divided.since), _moment(divided.until),
            divided.left_out, on_training, on_holdout, tables, rows,
        )  # fmt: skip
    except BaseException:
        rows.unpersist()
        raise


def tried(fitted: Fitted, rows: DataFrame, columns: Mapping[str, Column], *parts: Column) -> list[TrainingFigures]:
    """Figures on each part of the rows. Raises `EdgertError` if the JSON does not tell what MLlib tells on all of them:
    it must never be published then."""
    told = mllib.prediction(fitted.document, columns)
    wrong = F.count_if(~mllib.same(fitted, columns))
    (others,), figures = _figures(fitted.transform(rows), [(told, part) for part in parts], wrong)
    if others:
        raise EdgertError(f"the model's JSON form: expected MLlib's predictions, got others on {others:,} rows")
    return figures


def _source(spark: SparkSession, root: str, training: Training) -> tuple[DataFrame, dict[str, int]]:
    """The table or the query, each table at the version that it has now."""
    tables: dict[str, int] = {}

    def opened(name: str) -> DataFrame:
        tables[name] = show.version(root, name)
        return spark.read.format("delta").option("versionAsOf", tables[name]).load(join(root, name))

    if training.table:
        return opened(show.find(root, training.table)), tables
    for plain, name in show.tables_in(training.sql, show.names(root)).items():
        opened(name).createOrReplaceTempView(plain)
    return spark.sql(training.sql), tables


def _check(training: Training, source: DataFrame) -> None:
    """Raises `DocumentError` with every column that is not there, or of another type than it has to be."""
    types = {f.name: f.dataType.typeName().split("(")[0] for f in source.schema.fields}
    problems: list[Problem] = []

    def want(path: str, name: str, kinds: Sequence[str], expected: str) -> None:
        kind = types.get(name)
        if kind is None:
            near = difflib.get_close_matches(name, types, n=1)
            there = f"nearest: {near[0]}" if near else ", ".join(types)
            problems.append(Problem(path, f"a column of the table ({there})", name))
        elif kind not in kinds:
            problems.append(Problem(path, expected, f"{name}, a {kind}"))

    want("time", training.time, ("timestamp", "timestamp_ntz", "date", *_NUMBERS), "a column of times")
    tells = (*_NUMBERS, "string") if training.kind == "decision_tree" else _NUMBERS
    want("label", training.label, tells, f"a column of numbers{' or strings' if 'string' in tells else ''}")
    numbers = "a column of numbers: a model compares and adds (make one by sql, such as IF(kind = 'indoor', 1, 0) AS x)"
    for name in training.features:
        want("features", name, _NUMBERS, numbers)
    if problems:
        raise DocumentError(f"training {training.name}", problems)


def _in_range(source: DataFrame, training: Training, since: dt.datetime | None, until: dt.datetime) -> DataFrame:
    frame = source.where(_seconds(source, training.time) < F.lit(until.timestamp()))
    if since:
        frame = frame.where(_seconds(source, training.time) >= F.lit(since.timestamp()))
        if training.table and training.time == "window_start" and ("day", "date") in source.dtypes:
            frame = frame.where(F.col("day") >= F.lit(since.date()))  # other days' files are not opened
    return frame.where(training.where) if training.where else frame


def _rows(frame: DataFrame, training: Training, also: Sequence[str]) -> tuple[DataFrame, dict[str, Column]]:
    """(time, label, f0, f1, ...; field → its column)."""
    types = {f.name: f.dataType.typeName().split("(")[0] for f in frame.schema.fields}
    more = [name for name in also if types.get(name) in _NUMBERS and name not in training.features]
    fields = (*training.features, *more)
    label = _column(training.label)
    label = label if types[training.label] == "string" else label.cast("double")
    # A cast also drops what the column's metadata may say of categories.
    picked = [_column(name).cast("double").alias(f"f{at}") for at, name in enumerate(fields)]
    rows = frame.select(_seconds(frame, training.time).alias(_TIME), label.alias(LABEL), *picked)
    return rows, {name: F.col(f"f{at}") for at, name in enumerate(fields)}


def _usable(rows: DataFrame, features: int) -> Column:
    """A condition: time, label and features of a row are there, and are numbers where they have to be."""
    usable = F.col(_TIME).isNotNull() & F.col(LABEL).isNotNull()
    numbers = [f"f{at}" for at in range(features)]
    for name in numbers if _tells_class(rows) else [LABEL, *numbers]:
        usable = usable & F.col(name).isNotNull() & (F.abs(F.col(name)) < F.lit(1e300))  # NaN is greater than all
    return F.coalesce(usable, F.lit(False))


@dataclass(frozen=True, slots=True)
class _Divided:
    """Where the holdout begins, and the bounds of what is before it. Times in s since the epoch."""

    cut: float
    since: float
    until: float
    left_out: int


def _divided(rows: DataFrame, training: Training) -> _Divided:
    """Raises `EdgertError` if there are too few rows on a side of the cut."""
    usable = _usable(rows, len(training.features))
    times = F.when(usable, F.col(_TIME))
    first = rows.agg(F.count_if(~usable), F.percentile_approx(times, 1 - training.holdout, 10_000)).first()
    assert first is not None
    left_out, cut = first
    cut = cut or 0.0
    before = F.when(times < F.lit(cut), times)
    counts = rows.agg(F.count(before), F.count(times), F.min(before), F.max(before)).first()
    assert counts is not None
    trains, usable_rows, since, until = counts
    least = max(training.least_rows, len(training.features) + 2)
    if trains < least:
        raise EdgertError(
            f"training {training.name}: expected at least {least:,} rows to train on and newer ones to try it on, got "
            f"{trains:,} and {usable_rows - trains:,} ({left_out:,} more have a null, or no number); take a longer "
            "range, or a smaller least_rows"
        )
    return _Divided(cut, since, until, left_out)


def _figures(
    rows: DataFrame, tries: Sequence[tuple[Column, Column]], *more: Column
) -> tuple[list[Any], list[TrainingFigures]]:
    """In one pass: aggregates, and the figures of each (prediction, condition on the rows that count). A prediction is
    null on none of them."""
    label, classes = F.col(LABEL), _tells_class(rows)
    wanted = list(more)
    for told, where in tries:
        square = (label - told) * (label - told)
        how = F.when(where, (label == told).cast("double") if classes else square)
        spread = F.lit(None) if classes else F.var_pop(F.when(where, label))
        wanted += [F.count_if(where), F.avg(how), spread]
    found = rows.agg(*(column.alias(f"_{at}") for at, column in enumerate(wanted))).first()
    assert found is not None
    values = iter(found)
    told_more = [next(values) for _ in more]
    figures = []
    for count, mean, variance in zip(values, values, values, strict=True):
        if not count:
            figures.append(TrainingFigures(0))
        elif classes:
            figures.append(TrainingFigures(count, accuracy=mean))
        else:
            figures.append(TrainingFigures(count, rmse=mean**0.5, r2=1 - mean / variance if variance else None))
    return told_more, figures


def _tells_class(rows: DataFrame) -> bool:
    return dict(rows.dtypes)[LABEL] == "string"


def _column(name: str) -> Column:
    return F.col(f"`{name}`")


def _seconds(frame: DataFrame, name: str) -> Column:
    """A time in seconds since the epoch."""
    kind = dict(frame.dtypes)[name]
    column = _column(name)
    if kind in ("timestamp", "timestamp_ntz", "date"):
        column = column.cast("timestamp")
    return column.cast("double")


def _moment(seconds: float) -> dt.datetime:
    return dt.datetime.fromtimestamp(seconds, dt.UTC)
