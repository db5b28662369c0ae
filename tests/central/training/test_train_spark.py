"""Trainings with real Spark: which rows, what is refused, on which rows two models are compared; and on a schedule."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from edgert.central.training import mllib
from edgert.central.training.document import parse
from edgert.central.training.mllib import LABEL
from edgert.central.training.train import Trained, train, tried
from edgert.core.errors import DocumentError, EdgertError
from edgert.operators.models.models import model_untrusted
from tests.central.worlds import START, line, write

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900), pytest.mark.xdist_group("spark")]
NOW = START + dt.timedelta(days=10)
BASE = (
    'name = "m"\nkind = "linear_regression"\ntable = "fleet/air"\nlabel = "y"\nfeatures = ["a", "b"]\nleast_rows = 5\n'
)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "tables"


@pytest.fixture
def spark_train(spark: SparkSession, root: Path) -> Iterator[Any]:
    """Trains by a text; frees what Spark keeps after the test."""
    made: list[Trained] = []

    def run(text: str, also: Sequence[str] = ()) -> Trained:
        made.append(train(spark, str(root), parse(text), NOW, also))
        return made[-1]

    yield run
    for trained in made:
        trained.close()


def test_the_newest_part_is_held_out_and_rows_that_cannot_be_used_are_counted(root: Path, spark_train: Any) -> None:
    rows = [line(at) for at in range(100)]
    rows[3]["y"], rows[4]["a"], rows[5]["b"], rows[6]["y"] = None, None, math.nan, math.inf
    for row in rows[80:]:
        row["y"] += 10  # what came later is another line: a holdout by chance would not find out
    write(root, rows)
    trained = spark_train(BASE + "holdout = 0.2")
    assert trained.left_out == 4
    assert (trained.on_training.rows, trained.on_holdout.rows) == (76, 20)
    assert trained.since == START
    assert trained.until == START + dt.timedelta(hours=79)
    assert trained.on_training.rmse == pytest.approx(0, abs=1e-9)
    assert trained.on_training.r2 == pytest.approx(1)
    assert trained.on_holdout.rmse == pytest.approx(10)
    assert trained.fitted.document["intercept"] == pytest.approx(3)
    assert trained.fitted.document["coefficients"] == pytest.approx({"a": 2, "b": -1})
    assert trained.tables == {"fleet/air": 0}


def test_the_range_bounds_what_is_read(root: Path, spark_train: Any) -> None:
    write(root, [line(at, y=at % 7 * (100.0 if at < 100 else 1.0)) for at in range(240)])
    trained = spark_train(BASE + "days = 4")
    assert trained.since == NOW - dt.timedelta(days=4)
    assert trained.on_training.rows + trained.on_holdout.rows == 96
    assert trained.fitted.document["coefficients"] == pytest.approx({"a": 1, "b": 0}, abs=1e-9)
    trained = spark_train(BASE + 'since = 2026-03-06\nuntil = 2026-03-08\nwhere = "a < 6"')
    assert trained.since >= dt.datetime(2026, 3, 6, tzinfo=dt.UTC)
    assert 40 < trained.on_training.rows + trained.on_holdout.rows < 48


def test_a_query_may_name_columns_and_make_numbers(root: Path, spark_train: Any) -> None:
    write(root, [line(at) for at in range(60)])
    text = BASE.replace(
        'table = "fleet/air"',
        """sql = "SELECT window_start AS at, y, a * 2 AS a, IF(kind = 'x', 1, 0) AS b \
FROM fleet_air" """,
    )
    trained = spark_train(text.strip() + '\ntime = "at"')
    assert trained.fitted.document["coefficients"]["a"] != 0
    assert trained.tables == {"fleet/air": 0}


def test_what_does_not_fit_the_table_is_told(root: Path, spark_train: Any) -> None:
    write(root, [line(at) for at in range(60)])

    def faults(text: str) -> list[tuple[str, str, str]]:
        with pytest.raises(DocumentError) as caught:
            spark_train(text)
        return [(p.path, p.expected, p.got) for p in caught.value.problems]

    text = BASE.replace('["a", "b"]', '["kind", "flag", "hum"]').replace('label = "y"', 'label = "kind2"')
    found = faults(text + 'time = "kind"')
    assert [(path, got) for path, _, got in found] == [
        ("time", "kind, a string"), ("label", "kind2"), ("features", "kind, a string"), ("features", "flag, a boolean"),
        ("features", "hum"),
    ]  # fmt: skip
    assert "IF(kind = 'indoor', 1, 0)" in found[2][1]
    assert faults(BASE.replace('"y"', '"kind"')) == [("label", "a column of numbers", "kind, a string")]
    with pytest.raises(EdgertError, match="one of those in"):
        spark_train(BASE.replace("fleet/air", "water"))
    with pytest.raises(EdgertError, match="at least 500 rows to train on"):
        spark_train(BASE.replace("least_rows = 5", "least_rows = 500"))
    with pytest.raises(EdgertError, match=r"training m: .*nosuch"):
        spark_train(BASE + 'where = "nosuch > 3"')


def test_two_models_are_compared_on_the_same_new_rows(root: Path, spark_train: Any) -> None:
    write(root, [line(at, c=float(at), c2=float(at) if at % 2 else None) for at in range(100)])
    trained = spark_train(BASE, also=["c", "c2", "kind", "gone"])

    def compared(coefficients: dict[str, float], intercept: float = 3.0) -> Any:
        found = trained.compare({"kind": "linear_regression", "intercept": intercept, "coefficients": coefficients})
        return found and (found[0].rows, found[0].rmse, found[1].rmse)

    assert compared({"a": 2.0, "b": -1.0}, 4.0) == (21, pytest.approx(0, abs=1e-9), pytest.approx(1))
    assert compared({"a": 2.0, "b": -1.0, "c": 0.0}) == (21, pytest.approx(0, abs=1e-9), pytest.approx(0, abs=1e-9))
    rows, *_ = compared({"c2": 1.0})
    assert rows == 11, "only where the other tells something"
    assert compared({"gone": 1.0}) is None
    assert trained.compare({"kind": "decision_tree", "tree": {"value": "GOOD"}}) is None


def test_a_class_that_only_the_holdout_has_is_a_mistake_and_no_failure(root: Path, spark_train: Any) -> None:
    write(root, [line(at, kind="new" if at >= 95 else "it's" if at % 7 > 3 else "x") for at in range(100)])
    trained = spark_train(BASE.replace("linear_regression", "decision_tree").replace('"y"', '"kind"'))
    assert trained.on_training.accuracy == 1
    assert trained.on_holdout.accuracy == pytest.approx(16 / 21)
    model_untrusted(trained.fitted.document, frozenset("ab"))


def test_a_model_with_categories_is_refused(spark: SparkSession) -> None:
    """None can come of a training (features are cast to numbers), but a threshold must never be made up."""
    from pyspark.ml import Pipeline
    from pyspark.ml.feature import VectorAssembler, VectorIndexer
    from pyspark.ml.regression import DecisionTreeRegressor

    frame = spark.createDataFrame([(float(n % 3), float(n % 3 == 1)) for n in range(30)], f"f0 double, {LABEL} double")
    steps: list[Any] = [
        VectorAssembler(inputCols=["f0"], outputCol="v"), VectorIndexer(inputCol="v", outputCol="w", maxCategories=5),
        DecisionTreeRegressor(featuresCol="w", labelCol=LABEL),
    ]  # fmt: skip
    model: Any = Pipeline(stages=steps).fit(frame).stages[-1]
    with pytest.raises(DocumentError, match=r"features\.colour: expected a feature that is compared.*categories"):
        mllib._node(model._java_obj.rootNode(), ["colour"], ())


def test_a_json_form_that_says_something_else_is_never_published(
    spark: SparkSession, root: Path, spark_train: Any
) -> None:
    write(root, [line(at) for at in range(60)])
    trained = spark_train(BASE)
    trained.fitted.document["coefficients"]["a"] += 1e-9
    with pytest.raises(EdgertError, match="expected MLlib's predictions, got others"):
        tried(trained.fitted, trained.rows, trained.columns)
