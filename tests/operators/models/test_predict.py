"""`predict`: a model's value for each row; another model while it runs; what a checkpoint keeps of it."""

from __future__ import annotations

import datetime as dt
import threading
from typing import Any

import pytest

from edgert.core.batch import Batch
from edgert.core.errors import DocumentError
from edgert.core.packing import pack, unpack
from edgert.expr.parse import parse
from edgert.flow.document import from_plain
from edgert.flow.graph import Node
from edgert.operators.base.logic import Now
from edgert.operators.fusion.chain import Chain
from edgert.operators.registry import REGISTRY

NOW = Now(0.0, 0.0)
DOUBLE = {"kind": "linear_regression", "coefficients": {"t": 2}, "version": 1}
SIGN = {"kind": "decision_tree", "version": 2,
        "tree": {"field": "t", "threshold": 0, "at_most": {"value": "low"}, "above": {"value": "high"}}}  # fmt: skip


def predict(initial: dict[str, Any] | None = None, *behind: Node) -> Chain:
    parameters = {"model": "m", "fields": ("t",), "output": "p", "initial": initial or {}}
    return Chain([Node("guess", "predict", parameters, ("in",)), *behind])


def given(made: Chain, *values: Any) -> list[Any]:
    rows = [{"time": 1.0, "source": "a", "t": v} for v in values]
    (emission,) = made.process(Batch(rows, 0.0, 1.0), 0, NOW)
    assert all("p" not in row for row in rows), "a row that was given is never changed"
    return [row["p"] for row in emission.batch.rows]


def offer(made: Chain, document: dict[str, Any]) -> None:
    made.predictions.offer("guess", made.predictions.checked_untrusted("guess", document))


def test_a_model_is_replaced_with_the_next_batch() -> None:
    made = predict(DOUBLE)
    assert given(made, 2.0, None) == [4.0, None]
    offer(made, SIGN)
    assert given(made, 2.0, -1) == ["high", "low"]


def test_of_models_that_nobody_takes_only_the_newest_is_kept() -> None:
    """The daemon's copy of a flow whose operators run in slots never works on a row."""
    made = predict(DOUBLE)
    for number in range(1_000):
        offer(made, DOUBLE | {"intercept": float(number)})
    assert len(made.predictions._offered) == 1
    assert given(made, 1.0) == [1001.0]
    assert not made.predictions.take()


def test_what_one_thread_offers_while_another_takes_is_not_lost() -> None:
    made = predict(DOUBLE)
    models = [made.predictions.checked_untrusted("guess", DOUBLE | {"version": n}) for n in range(2_000)]

    def offer_all() -> None:
        for model in models:
            made.predictions.offer("guess", model)

    thread = threading.Thread(target=offer_all)
    thread.start()
    while thread.is_alive():
        made.predictions.take()
    made.predictions.take()
    assert made.predictions.models["guess"] is models[-1]


def test_it_is_a_step_of_a_chain() -> None:
    made = predict(DOUBLE, Node("few", "filter", {"where": parse("p > 3", condition=True)}, ("guess",)))
    assert given(made, 1.0, 2.0) == [4.0]
    offer(made, DOUBLE | {"intercept": 2.0})
    assert given(made, 1.0, 2.0) == [4.0, 6.0]


def test_without_a_model_predictions_are_null_and_counted() -> None:
    made = predict()
    assert given(made, 1.0, 2.0) == [None, None]
    assert made.drops == {"no model yet for guess (predictions)": 2}


def test_a_row_that_the_model_cannot_work_on_is_lost_alone_and_counted() -> None:
    made = predict(DOUBLE)
    assert given(made, "warm", True, 2.0) == [4.0]
    assert made.drops == {"wrong type in guess": 2}


def test_a_model_that_came_by_message_is_in_the_checkpoint_and_comes_back() -> None:
    made, again = predict(DOUBLE), predict(DOUBLE)
    assert made.delta() is None, "the document has the first one"
    offer(made, SIGN)
    delta = unpack(pack(made.delta()))
    assert made.delta() is None
    again.restore(delta)
    assert given(again, 1.0) == ["high"]
    assert again.snapshot() == made.snapshot()
    assert again.delta() is None


def test_a_stored_model_that_does_not_fit_is_an_error_of_the_state() -> None:
    with pytest.raises(ValueError, match="kind"):
        predict().restore({"guess": {"kind": "?"}})


@pytest.mark.parametrize("name", ["", "a/b", "#", "air+", "a\0", "n" * 256])
def test_a_model_that_no_message_could_reach_is_refused(name: str) -> None:
    plain: dict[str, Any] = {"name": "f", "operators": {
        "in": {"type": "mqtt_source", "topic": "x/{source}"},
        "p": {"type": "predict", "input": "in", "model": name, "fields": ["t"]},
        "out": {"type": "publish", "input": "p", "topic": "y"},
    }}  # fmt: skip
    with pytest.raises(DocumentError, match=r"p.model: expected a name that can be one level of a topic"):
        from_plain(plain, REGISTRY)
    plain["operators"]["p"]["model"] = "Luftgüte 2.5"
    from_plain(plain, REGISTRY)


def test_a_document_is_refused_with_the_faults_of_its_model() -> None:
    plain: dict[str, Any] = {"name": "f", "operators": {
        "in": {"type": "mqtt_source", "topic": "x/{source}"},
        "p": {"type": "predict", "input": "in", "model": "m", "fields": ["t"], "output": "time",
              "initial": {"kind": "linear_regression", "coefficients": {"h": "1"}}},
        "out": {"type": "publish", "input": "p", "topic": "y"},
    }}  # fmt: skip
    with pytest.raises(DocumentError) as refused:
        from_plain(plain, REGISTRY)
    paths = [problem.path for problem in refused.value.problems]
    assert "operators.p.output" in paths
    plain["operators"]["p"]["output"] = "p"
    with pytest.raises(DocumentError) as refused:
        from_plain(plain, REGISTRY)
    found = [problem.path for problem in refused.value.problems]
    assert found == ["operators.p.initial.coefficients.h"] * 2, "not a number, and not a field of the operator"
    plain["operators"]["p"]["initial"] = {**DOUBLE, "about": {"on": dt.date(2024, 1, 1), "id": 10**30}}
    with pytest.raises(DocumentError) as refused:
        from_plain(plain, REGISTRY)
    paths = [problem.path for problem in refused.value.problems]
    assert paths == ["operators.p.initial.about.on", "operators.p.initial.about.id"], "TOML has them, JSON has not"
    plain["operators"]["p"]["initial"] = "a text"
    with pytest.raises(DocumentError, match="initial: expected a table"):
        from_plain(plain, REGISTRY)
