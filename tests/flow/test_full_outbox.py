"""`[outbox]` of a document: what may stand there, in TOML, JSON and Python."""

from __future__ import annotations

from typing import Any

import pytest

from edgert.core.errors import DocumentError
from edgert.core.toml import to_toml
from edgert.flow.document import from_plain, load
from edgert.flow.options.full_outbox import of_document
from edgert.operators.builder import stream
from edgert.operators.registry import REGISTRY


def document(**top: Any) -> dict[str, Any]:
    operators = {
        "in": {"type": "mqtt_source", "topic": "x/{source}"},
        "out": {"type": "publish", "input": "in", "topic": "y"},
    }
    return {"name": "f", **top, "operators": operators}


@pytest.mark.parametrize("choice", ["shed-oldest", "stop-acknowledging"])
def test_the_choice_is_read_and_written(choice: str) -> None:
    plain = document(outbox={"full": choice})
    assert load(to_toml(plain), REGISTRY).when_full == choice
    assert of_document(plain) == choice
    built = stream("f", outbox={"full": choice}).mqtt_source("x/{source}").publish("y").build()
    assert (built.when_full, built.document["outbox"]) == (choice, {"full": choice})


def test_unsaid_the_oldest_makes_way() -> None:
    assert from_plain(document(), REGISTRY).when_full == "shed-oldest"
    assert from_plain(document(outbox={}), REGISTRY).when_full == "shed-oldest"


@pytest.mark.parametrize(
    ("outbox", "path", "said"),
    [
        ("shed-oldest", "outbox", "a table, got 'shed-oldest'"),
        ({"full": "block"}, "outbox.full", "one of shed-oldest, stop-acknowledging, got 'block'"),
        ({"full": ["shed-oldest"]}, "outbox.full", "one of shed-oldest, stop-acknowledging, got"),
        ({"ful": "shed-oldest"}, "outbox.ful", "one of full (did you mean full?), got an unknown key"),
    ],
)
def test_what_is_wrong_is_named(outbox: Any, path: str, said: str) -> None:
    with pytest.raises(DocumentError) as caught:
        from_plain(document(outbox=outbox), REGISTRY)
    (problem,) = caught.value.problems
    assert problem.path == path
    assert said in str(problem)
