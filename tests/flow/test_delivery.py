"""`delivery` of a document: what may stand there, in TOML, JSON and Python."""

from __future__ import annotations

from typing import Any

import pytest

from edgert.core.errors import DocumentError
from edgert.core.toml import to_toml
from edgert.flow.document import from_plain, load, to_json
from edgert.flow.options.delivery import DELIVERIES
from edgert.flow.schema import json_schema
from edgert.operators.builder import stream
from edgert.operators.registry import REGISTRY


def document(**top: Any) -> dict[str, Any]:
    operators = {
        "in": {"type": "mqtt_source", "topic": "x/{source}"},
        "out": {"type": "publish", "input": "in", "topic": "y"},
    }
    return {"name": "f", **top, "operators": operators}


@pytest.mark.parametrize("choice", DELIVERIES)
def test_the_choice_is_read_and_written(choice: str) -> None:
    plain = document(delivery=choice)
    assert load(to_toml(plain), REGISTRY).delivery == choice
    assert load(to_json(plain), REGISTRY).delivery == choice
    built = stream("f", delivery=choice).mqtt_source("x/{source}").publish("y").build()
    assert (built.delivery, built.document["delivery"]) == (choice, choice)


def test_unsaid_each_result_arrives_once() -> None:
    assert from_plain(document(), REGISTRY).delivery == "exactly-once"


@pytest.mark.parametrize("given", ["at-most-once", "", None, 1, ["at-least-once"], {"at-least-once": True}])
def test_what_is_wrong_is_named(given: Any) -> None:
    with pytest.raises(DocumentError) as caught:
        from_plain(document(delivery=given), REGISTRY)
    (problem,) = caught.value.problems
    assert problem.path == "delivery"
    assert str(problem).startswith("delivery: expected one of exactly-once, at-least-once, got ")


def test_editors_know_the_choices() -> None:
    properties = json_schema(REGISTRY)["properties"]
    assert properties["delivery"] == {"enum": ["exactly-once", "at-least-once"], "default": "exactly-once"}
    assert properties["outbox"]["properties"]["full"]["default"] == "shed-oldest"
