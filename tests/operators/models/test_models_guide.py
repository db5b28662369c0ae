"""docs/models.md: the flows can be deployed, and every model is one."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from edgert.core.batch import Batch
from edgert.flow.document import load
from edgert.operators.base.logic import Build, Now
from edgert.operators.fusion.chain import Chain
from edgert.operators.models.models import MAX_TREE_DEPTH, model_untrusted
from edgert.operators.registry import REGISTRY

TEXT = (Path(__file__).parents[3] / "docs" / "models.md").read_text(encoding="utf-8")


def examples(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", TEXT, re.DOTALL | re.MULTILINE)


def test_the_flows_and_the_models_are_good() -> None:
    using, training, _ = (load(example, REGISTRY) for example in examples("toml")[:3])
    guess = using.nodes["guess"]
    models = [json.loads(example) for example in examples("json")]
    assert [m["kind"] for m in models] == ["linear_regression", "decision_tree"]
    for plain in (*models, guess.parameters["initial"]):
        model_untrusted(plain, frozenset(guess.parameters["fields"]))
    assert TEXT.count(f"{MAX_TREE_DEPTH} at most") == TEXT.count(f"{MAX_TREE_DEPTH} splits") == 1
    assert training.nodes["tell"].parameters["topic"].text.endswith(f"/models/{guess.parameters['model']}")


def test_the_tree_that_is_trained_can_be_used() -> None:
    flow = load(examples("toml")[2], REGISTRY)
    fit = flow.nodes["fit"]
    make = REGISTRY["train_tree"].logic
    assert make is not None
    made = make(Build(fit, flow, None, (), 1, frozenset({0})))
    classify = Chain([flow.nodes["classify"]])
    rows: list[dict[str, Any]] = [
        {"time": float(n), "source": "a", "temperature": n % 40, "humidity": 50.0, "airquality_raw": n % 40}
        for n in range(fit.parameters["size"])
    ]
    for operator in (classify, made):
        (emission,) = operator.process(Batch(rows, 0.0), 0, Now(0.0, 0.0))
        rows = emission.batch.rows
    (row,) = rows
    model = row["model"]
    assert model["tree"] == {
        "field": "temperature", "threshold": 19.5, "at_most": {"value": "GOOD"}, "above": {"value": "BAD"},
    }  # fmt: skip
    assert model["about"]["accuracy"] == 1.0
    model_untrusted(json.loads(json.dumps(model)), frozenset(fit.parameters["fields"]))
