"""The JSON form of a model (docs/models.md), and the expression that it is.

    {"kind": "linear_regression", "version": 3, "intercept": 1.5, "coefficients": {"temperature": 0.25}}

    {"kind": "decision_tree", "version": 7,
     "tree": {"field": "temperature", "threshold": 20.5, "at_most": {"value": "GOOD"}, "above": {"value": "BAD"}}}

A model becomes an expression and so a part of a compiled function: what holds for `map` holds for it. Where a field
that it looks at is null, the prediction is null.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from edgert.core.errors import DocumentError, Problem, show
from edgert.core.plain import not_plain
from edgert.expr.tree import Arithmetic, Call, Comparison, Expression, Field, Literal, fields, join

KINDS: Final = ("linear_regression", "decision_tree")
MAX_TREE_DEPTH: Final = 24
"""Splits from the root to a leaf; with what is around it this stays below the bound of expressions."""
_COMMON: Final = ("kind", "version", "about")


@dataclass(frozen=True, slots=True)
class Model:
    """A model that was checked."""

    kind: str
    version: int
    document: Mapping[str, Any]
    """The document as published."""
    expression: Expression
    """The prediction for a row."""


def model_untrusted(document: Mapping[str, Any], allowed: frozenset[str] | None) -> Model:
    """The model that a document describes, which may look at the fields in `allowed` (None: at any).

    Raises `DocumentError` with every fault: a path within the document, what was expected, what came.
    """
    reader = _ModelReader(allowed)
    reader.problems += not_plain(document)
    kind, version = document.get("kind"), document.get("version", 0)
    if kind not in KINDS:
        reader.fault("kind", f"one of {', '.join(KINDS)}", show(kind))
    if type(version) is not int or not 0 <= version <= 2**53:
        reader.fault("version", "an integer from 0 to 2**53", show(version))
    own = {"linear_regression": ("intercept", "coefficients"), "decision_tree": ("tree",)}.get(str(kind), ())
    for key in document.keys() - {*_COMMON, *own} if own else ():
        reader.fault(str(key), f"only {', '.join((*_COMMON, *own))}", show(key))
    expression: Expression = Literal(None)
    if kind == "linear_regression":
        expression = reader.regression(document)
    elif kind == "decision_tree":
        expression = reader.node(document.get("tree"), "tree", 0)
    if not reader.problems:
        try:
            expression = _null_if_any_is(expression)
        except ValueError as error:
            reader.fault("", *str(error).removeprefix("expected ").split(", got ", 1))
    if reader.problems:
        raise DocumentError("model", reader.problems)
    return Model(str(kind), int(version), document, expression)


def _null_if_any_is(expression: Expression) -> Expression:
    """A tree would take the other branch for a null; a sum is null by itself."""
    used = sorted(fields(expression))
    if not used or isinstance(expression, Arithmetic):
        return expression
    nulls = tuple(Call("is_null", (Field(name),)) for name in used)
    return Call("if", (nulls[0] if len(nulls) == 1 else join("or", nulls), Literal(None), expression))


class _ModelReader:
    """Collects faults, so that one hides no other."""

    def __init__(self, allowed: frozenset[str] | None) -> None:
        self.problems: list[Problem] = []
        self._allowed = allowed

    def fault(self, path: str, expected: str, got: str) -> None:
        self.problems.append(Problem(path, expected, got))

    def regression(self, document: Mapping[str, Any]) -> Expression:
        """intercept + Σ coefficient · field."""
        total: Expression = Literal(self._number(document.get("intercept", 0.0), "intercept"))
        coefficients = document.get("coefficients")
        if not isinstance(coefficients, Mapping) or not coefficients:
            self.fault("coefficients", "a table of numbers by field", show(coefficients))
            return total
        if len(coefficients) > MAX_TREE_DEPTH:  # each is a level of the sum
            self.fault("coefficients", f"at most {MAX_TREE_DEPTH} fields", str(len(coefficients)))
            return total
        for name, value in coefficients.items():
            factor = Literal(self._number(value, f"coefficients.{name}"))
            total = Arithmetic("+", total, Arithmetic("*", factor, self._field(name, f"coefficients.{name}")))
        return total

    def node(self, plain: Any, path: str, depth: int) -> Expression:
        """A leaf (`value`) or a split: `at_most` where field ≤ threshold, else `above`."""
        if not isinstance(plain, Mapping):
            self.fault(path, 'a leaf {"value": ...} or a split {"field", "threshold", "at_most", "above"}', show(plain))
            return Literal(None)
        if "value" in plain:
            return self._leaf(plain, path)
        if depth >= MAX_TREE_DEPTH:
            self.fault(path, f"at most {MAX_TREE_DEPTH} splits from root to leaf", "more")
            return Literal(None)
        for key in plain.keys() - {"field", "threshold", "at_most", "above"}:
            self.fault(f"{path}.{key}", "only field, threshold, at_most and above", show(key))
        threshold = Literal(self._number(plain.get("threshold"), f"{path}.threshold"))
        split = Comparison(("<=",), (self._field(plain.get("field"), f"{path}.field"), threshold))
        low = self.node(plain.get("at_most"), f"{path}.at_most", depth + 1)
        high = self.node(plain.get("above"), f"{path}.above", depth + 1)
        try:
            return Call("if", (split, low, high))
        except ValueError as error:  # too many parts in all
            self.fault(path, *str(error).removeprefix("expected ").split(", got ", 1))
            return Literal(None)

    def _leaf(self, plain: Mapping[str, Any], path: str) -> Expression:
        value = plain["value"]
        if len(plain) > 1 or not isinstance(value, int | float | str):
            self.fault(path, 'a leaf {"value": a number, a string, true or false}', show(plain))
            return Literal(None)
        try:
            return Literal(value)
        except ValueError as error:
            self.fault(f"{path}.value", *str(error).removeprefix("expected ").split(", got ", 1))
            return Literal(None)

    def _number(self, value: Any, path: str) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= 1e308:
            self.fault(path, "a number", show(value))
            return 0.0
        return float(value)

    def _field(self, name: Any, path: str) -> Expression:
        allowed = self._allowed
        if not isinstance(name, str) or (allowed is not None and name not in allowed):
            told = (
                "a field's name" if allowed is None else f"one of the operator's fields ({', '.join(sorted(allowed))})"
            )
            self.fault(path, told, show(name))
            return Field("time")
        try:
            return Field(name)
        except ValueError as error:
            self.fault(path, *str(error).removeprefix("expected ").split(", got ", 1))
            return Field("time")
