"""Between MLlib and the JSON form of a model (docs/models.md): what MLlib fitted as JSON, and the JSON as a column.

The working frame has the features as `f0`, `f1`, ... (doubles), so that no name of a user's meets Spark's syntax.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pyspark.ml import Pipeline
from pyspark.ml.classification import DecisionTreeClassifier
from pyspark.ml.feature import StringIndexer, VectorAssembler
from pyspark.ml.regression import DecisionTreeRegressor, LinearRegression
from pyspark.sql import functions as F  # noqa: N812

from edgert.core.errors import DocumentError, Problem

if TYPE_CHECKING:
    from pyspark.ml import PipelineModel
    from pyspark.sql import Column, DataFrame

LABEL: Final = "label"
PREDICTION: Final = "mllib"
"""The column that `Fitted.transform` adds: a double, or the class."""
_VECTOR: Final = "_features"
_INDEX: Final = "_index"
_NUMBER: Final = "_prediction"


@dataclass(frozen=True, slots=True)
class Fitted:
    """A model that MLlib fitted to a frame."""

    pipeline: PipelineModel
    classes: tuple[str, ...]
    """Classes that a tree predicts, by MLlib's number; empty: the tree predicts a number."""
    document: Mapping[str, Any]
    """Its JSON form, without version and `about`."""

    def transform(self, frame: DataFrame) -> DataFrame:
        """`frame` with MLlib's own prediction."""
        # The step that numbers the labels is for training alone: a class that is new is none of the model's business.
        steps = [stage for stage in self.pipeline.stages if not hasattr(stage, "labels")]
        for step in steps:
            frame = step.transform(frame)
        told: Column = F.col(_NUMBER)
        if self.classes:
            told = F.element_at(F.array(*map(F.lit, self.classes)), told.cast("int") + 1)
        return frame.withColumn(PREDICTION, told).drop(_VECTOR, _NUMBER, "rawPrediction", "probability")


def fit(frame: DataFrame, kind: str, features: Sequence[str], parameters: Mapping[str, float]) -> Fitted:
    """Trains on a frame with `label` and `f0`, `f1`, ... for `features`. Raises `EdgertError` for what has no JSON."""
    classifies = dict(frame.dtypes)[LABEL] == "string"
    assembler = VectorAssembler(inputCols=[f"f{at}" for at in range(len(features))], outputCol=_VECTOR)
    columns: dict[str, Any] = {
        "featuresCol": _VECTOR,
        "labelCol": _INDEX if classifies else LABEL,
        "predictionCol": _NUMBER,
    }
    estimator: Any
    if kind == "linear_regression":
        estimator = LinearRegression(
            **columns, regParam=parameters["regularization"], elasticNetParam=parameters["elastic_net"],
            maxIter=int(parameters["max_iterations"]),
        )  # fmt: skip
    else:
        tree = DecisionTreeClassifier if classifies else DecisionTreeRegressor
        estimator = tree(
            **columns, maxDepth=int(parameters["max_depth"]), maxBins=int(parameters["max_bins"]),
            minInstancesPerNode=int(parameters["least_rows_per_leaf"]), seed=1,
        )  # fmt: skip
    indexer = [StringIndexer(inputCol=LABEL, outputCol=_INDEX, stringOrderType="alphabetAsc")] if classifies else []
    pipeline = Pipeline(stages=[*indexer, assembler, estimator]).fit(frame)
    model: Any = pipeline.stages[-1]
    classes = tuple(pipeline.stages[0].labels) if classifies else ()  # type: ignore[attr-defined]
    document: dict[str, Any] = {"kind": kind}
    if kind == "linear_regression":
        coefficients = map(float, model.coefficients)
        document |= {
            "intercept": float(model.intercept),
            "coefficients": dict(zip(features, coefficients, strict=True)),
        }
    else:
        document["tree"] = _node(model._java_obj.rootNode(), features, classes)
    return Fitted(pipeline, classes, document)


def _node(node: Any, features: Sequence[str], classes: Sequence[str]) -> dict[str, Any]:
    """A node of MLlib's, from Java. MLlib goes left where the feature is at most the threshold, as `at_most` says."""
    if node.getClass().getSimpleName() == "LeafNode":
        value = float(node.prediction())
        return {"value": classes[int(value)] if classes else value}
    split = node.split()
    name = features[split.featureIndex()]
    if split.getClass().getSimpleName() != "ContinuousSplit":
        expected = "a feature that is compared with a threshold"
        raise DocumentError("model", [Problem(f"features.{name}", expected, "one that has categories")])
    return {
        "field": name,
        "threshold": float(split.threshold()),
        "at_most": _node(node.leftChild(), features, classes),
        "above": _node(node.rightChild(), features, classes),
    }


def fields_of(document: Mapping[str, Any]) -> set[str]:
    """The fields that a model in its JSON form looks at."""

    def below(node: Mapping[str, Any]) -> set[str]:
        return {node["field"]} | below(node["at_most"]) | below(node["above"]) if "field" in node else set()

    return below(document["tree"]) if "tree" in document else set(document["coefficients"])


def prediction(document: Mapping[str, Any], columns: Mapping[str, Column]) -> Column:
    """The result of the operator `predict`, as a column over those of the fields; null where a field is null."""
    if "tree" not in document:
        total = F.lit(document["intercept"])
        for name, factor in document["coefficients"].items():
            total = total + F.lit(factor) * columns[name]
        return total
    known = F.lit(True)
    for name in sorted(fields_of(document)):
        known = known & columns[name].isNotNull()
    return F.when(known, _branch(document["tree"], columns))


def _branch(node: Mapping[str, Any], columns: Mapping[str, Column]) -> Column:
    if "value" in node:
        return F.lit(node["value"])
    split = columns[node["field"]] <= F.lit(node["threshold"])
    return F.when(split, _branch(node["at_most"], columns)).otherwise(_branch(node["above"], columns))


def same(fitted: Fitted, columns: Mapping[str, Column]) -> Column:
    """Over what `Fitted.transform` returns: whether the JSON tells what MLlib tells, a tree exactly, a regression
    within rounding."""
    document = fitted.document
    ours, theirs = prediction(document, columns), F.col(PREDICTION)
    if "tree" in document:
        equal = ours == theirs
    else:
        # What rounding may change grows with the parts of the sum, not with the sum.
        parts = F.abs(F.lit(document["intercept"]))
        for name, factor in document["coefficients"].items():
            parts = parts + F.abs(F.lit(factor) * columns[name])
        equal = F.abs(ours - theirs) <= F.lit(1e-12) * parts
    return F.coalesce(equal, F.lit(False))
