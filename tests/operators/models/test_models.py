"""The JSON form of models: what is taken, what is refused and how, and that the expression is the model."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgert.core.errors import DocumentError
from edgert.expr.compile import compile_expression
from edgert.operators.models.models import MAX_TREE_DEPTH, model_untrusted

ALLOWED = frozenset({"t", "h"})
LEAF = {"value": "GOOD"}


def predicted(document: dict[str, Any], row: dict[str, Any]) -> Any:
    return compile_expression(model_untrusted(document, ALLOWED).expression)(row)


def regression(**settings: Any) -> dict[str, Any]:
    return {"kind": "linear_regression", "intercept": 1.5, "coefficients": {"t": 2.0, "h": -0.5}} | settings


def test_a_regression_is_its_sum_and_null_where_a_field_is() -> None:
    assert predicted(regression(), {"t": 3.0, "h": 1.0}) == 7.0
    assert predicted(regression(), {"t": 3.0}) is None
    assert predicted(regression(intercept=0, coefficients={"t": 1}), {"t": 4}) == 4.0


TREES = st.recursive(
    st.builds(lambda v: {"value": v}, st.floats(-9, 9) | st.sampled_from("ab") | st.booleans()),
    lambda inner: st.builds(
        lambda f, x, a, b: {"field": f, "threshold": x, "at_most": a, "above": b},
        st.sampled_from(["t", "h"]), st.integers(-3, 3), inner, inner,
    ),
    max_leaves=12,
)  # fmt: skip
VALUES = st.integers(-4, 4).map(float) | st.none()


def walked(tree: dict[str, Any], row: dict[str, Any]) -> Any:
    while "value" not in tree:
        tree = tree["at_most"] if row[tree["field"]] <= tree["threshold"] else tree["above"]
    return tree["value"]


def fields_of(tree: dict[str, Any]) -> set[str]:
    return set() if "value" in tree else {tree["field"]} | fields_of(tree["at_most"]) | fields_of(tree["above"])


@given(TREES, VALUES, VALUES)
def test_a_tree_is_walked_and_null_where_a_field_of_it_is(
    tree: dict[str, Any], t: float | None, h: float | None
) -> None:
    row = {"t": t, "h": h}
    expected = None if any(row[name] is None for name in fields_of(tree)) else walked(tree, row)
    assert predicted({"kind": "decision_tree", "tree": tree}, row) == expected


@pytest.mark.parametrize("other", ["warm", True])
def test_a_value_of_another_type_matters_on_the_way_to_the_leaf_only_and_null_comes_first(other: Any) -> None:
    tree = {"field": "t", "threshold": 1, "at_most": LEAF, "above": {"field": "h", "threshold": 1,
            "at_most": LEAF, "above": LEAF}}  # fmt: skip
    document = {"kind": "decision_tree", "tree": tree}
    assert predicted(document, {"t": 0, "h": other}) == "GOOD"
    for model in (document, regression()):
        with pytest.raises(TypeError):
            predicted(model, {"t": 2, "h": other})
        assert predicted(model, {"t": None, "h": other}) is None
        assert predicted(model, {"t": other, "h": None}) is None


def deep(levels: int) -> dict[str, Any]:
    tree: dict[str, Any] = LEAF
    for _ in range(levels):
        tree = {"field": "t", "threshold": 1, "at_most": tree, "above": LEAF}
    return tree


def test_the_deepest_tree_allowed_can_be_used() -> None:
    assert predicted({"kind": "decision_tree", "tree": deep(MAX_TREE_DEPTH)}, {"t": 0}) == "GOOD"
    many = {f"f{n}": 1.0 for n in range(MAX_TREE_DEPTH)}
    model = model_untrusted({"kind": "linear_regression", "coefficients": many}, frozenset(many))
    assert compile_expression(model.expression)(dict.fromkeys(many, 1)) == MAX_TREE_DEPTH


def bushy(depth: int) -> dict[str, Any]:
    return LEAF if not depth else {"field": "t", "threshold": 1, "at_most": bushy(depth - 1), "above": bushy(depth - 1)}


@pytest.mark.parametrize(
    ("document", "paths"),
    [
        ({}, ["kind"]),
        ({"kind": "neural"}, ["kind"]),
        (regression(version=-1, intercept="1"), ["version", "intercept"]),
        (regression(version=True), ["version"]),
        (regression(coefficients={}), ["coefficients"]),
        (regression(coefficients={"x": 1, "t": float("nan")}), ["coefficients.x", "coefficients.t"]),
        (regression(coefficients={"t": 10**400}), ["coefficients.t"] * 2),
        (regression(about={"id": 10**30, "at": [dt.date(2024, 1, 1)]}), ["about.id", "about.at[0]"]),
        (regression(about={"who": "\ud800", "to": {"\udfff": 1}}), ["about.who", "about.to"]),
        (regression(tree=LEAF), ["tree"]),
        ({"kind": "decision_tree"}, ["tree"]),
        ({"kind": "decision_tree", "tree": {"value": None}}, ["tree"]),
        ({"kind": "decision_tree", "tree": {"value": 1, "field": "t"}}, ["tree"]),
        ({"kind": "decision_tree", "tree": {"value": "\ud800"}}, ["tree.value"] * 2),
        (
            {"kind": "decision_tree", "tree": {"field": ["t"], "threshold": "x", "at_most": 1, "above": {}, "more": 1}},
            ["tree.more", "tree.threshold", "tree.field", "tree.at_most", "tree.above.threshold", "tree.above.field",
             "tree.above.at_most", "tree.above.above"],
        ),
        ({"kind": "decision_tree", "tree": deep(MAX_TREE_DEPTH + 1)}, ["tree" + ".at_most" * MAX_TREE_DEPTH]),
        ({"kind": "decision_tree", "tree": bushy(10)}, ["tree"]),
    ],
)  # fmt: skip
def test_every_fault_is_told_with_its_path(document: dict[str, Any], paths: list[str]) -> None:
    with pytest.raises(DocumentError) as refused:
        model_untrusted(document, ALLOWED)
    assert [problem.path for problem in refused.value.problems] == paths
    assert all(problem.expected and problem.got for problem in refused.value.problems)
