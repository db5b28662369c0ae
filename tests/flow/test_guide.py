"""docs/flows.md: every example runs, and every table is what the code says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from edgert.core.errors import DocumentError
from edgert.flow.document import load
from edgert.flow.graph import Flow
from edgert.flow.schema import json_schema
from edgert.operators.reference import fill
from edgert.operators.registry import REGISTRY

GUIDE = Path(__file__).parents[2] / "docs" / "flows.md"
TEXT = GUIDE.read_text(encoding="utf-8")


def examples(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", TEXT, re.DOTALL | re.MULTILINE)


def run(code: str) -> Flow:
    space: dict[str, Any] = {}
    exec(code, space)  # noqa: S102 - our own guide
    flow = space["flow"]
    assert isinstance(flow, Flow)
    return flow


def test_the_page_begins_with_a_flow() -> None:
    assert "[operators.readings]" in "".join(TEXT.splitlines(keepends=True)[:20])


def test_the_tables_are_what_the_code_says() -> None:
    assert fill(TEXT) == TEXT, "run scripts/docs"


def test_the_first_flow_is_the_same_in_toml_json_and_python() -> None:
    (toml,), (json,) = examples("toml"), examples("json")
    first = run(examples("python")[0])
    assert load(toml, REGISTRY).document == load(json, REGISTRY).document == first.document


@pytest.mark.parametrize("code", examples("python"))
def test_every_python_example_builds_a_flow(code: str) -> None:
    assert run(code).nodes


def test_the_errors_shown_are_the_errors_that_come() -> None:
    (toml,) = examples("toml")
    broken = toml.replace('"senml"', '"senml"\nqos = 7').replace("-12.5 <= temperature <= 43.1", "temperature >=")
    with pytest.raises(DocumentError) as caught:
        load(broken.replace("size_s = 60.0", "size_s = 60.0\nsise_s = 1"), REGISTRY)
    assert str(caught.value) + "\n" in examples("text")


def test_the_schema_describes_every_operator_and_the_example() -> None:
    schema = json_schema(REGISTRY)
    operators = {
        s["properties"]["type"]["const"]: s for s in schema["properties"]["operators"]["additionalProperties"]["oneOf"]
    }
    assert set(operators) == set(REGISTRY)
    for node in load(examples("toml")[0], REGISTRY).document["operators"].values():
        described = operators[node["type"]]
        assert set(described["required"]) <= set(node) <= set(described["properties"])
