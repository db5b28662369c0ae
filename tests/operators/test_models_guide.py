"""docs/models.md: the flows can be deployed, and every model is one."""

from __future__ import annotations

import json
import re
from pathlib import Path

from edgert.flow.document import load
from edgert.operators.models import MAX_TREE_DEPTH, model_untrusted
from edgert.operators.registry import REGISTRY

TEXT = (Path(__file__).parents[2] / "docs" / "models.md").read_text(encoding="utf-8")


def examples(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", TEXT, re.DOTALL | re.MULTILINE)


def test_the_flows_and_the_models_are_good() -> None:
    using, training = (load(example, REGISTRY) for example in examples("toml")[:2])
    guess = using.nodes["guess"]
    models = [json.loads(example) for example in examples("json")]
    assert [m["kind"] for m in models] == ["linear_regression", "decision_tree"]
    for plain in (*models, guess.parameters["initial"]):
        model_untrusted(plain, frozenset(guess.parameters["fields"]))
    assert TEXT.count(f"{MAX_TREE_DEPTH} at most") == TEXT.count(f"{MAX_TREE_DEPTH} splits") == 1
    assert training.nodes["tell"].parameters["topic"].text.endswith(f"/models/{guess.parameters['model']}")
