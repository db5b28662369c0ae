"""Tree to Python source. Only constants (through `repr`) and generated names enter it, never text of a user.

Nulls cost little: each strict part of an expression becomes *guards* (`(v0 := g('temperature')) is not None`) and
*code* that is right when all guards hold; a field guarded once is not looked up again where the first guard dominates.
Conditions are generated twice-sided: `true(e)` is truthy when `e` is true, `false(e)` when it is false, so that
three-valued logic needs no third value. Each part appears once in the code, whose length is linear in the tree.
"""

from __future__ import annotations

import math
from typing import Any, Final

from edgert.expr.functions import FUNCTIONS, Type
from edgert.expr.tree import (
    Arithmetic,
    Call,
    Comparison,
    Expression,
    Field,
    Literal,
    Logic,
    Membership,
    Negation,
    Not,
)
from edgert.expr.types import type_of

Known = frozenset[str]
"""Local variables that are certainly bound and not None at this place of the code."""
NULL: Final = "None"


class Scope:
    """Names of one generated function: which local variable, or none, holds which field."""

    def __init__(self, getter: str = "g") -> None:
        self.getter = getter
        """What the code calls for a field of the row: a local `g`, or `r.get`."""
        self.variables: dict[str, str] = {}
        """Fields of the incoming row, by the local variable that a guard binds."""
        self.computed: dict[str, str] = {}
        """Fields that an earlier step made: variable, or `None` where the step took the field away."""
        self.only: frozenset[str] | None = None
        """Fields of the incoming row that are left after a selection; None: all."""
        self.globals: dict[str, Any] = {"power": _power, "truth": _truth, "boolean": _truth, "bounded": bounded}
        self.counter = 0

    def fresh(self) -> str:
        self.counter += 1
        return f"t{self.counter}"

    def load(self, name: str, known: Known) -> tuple[list[str], str]:
        """Guards and code of a field."""
        if name in self.computed:
            variable = self.computed[name]
            return ([] if variable in known else [f"{variable} is not None"]), variable
        if self.only is not None and name not in self.only:
            return ["False"], NULL
        variable = self.variables.setdefault(name, f"v{len(self.variables)}")
        return ([] if variable in known else [f"({variable} := {self.getter}({name!r})) is not None"]), variable

    def value(self, name: str, known: Known) -> str:
        """Code of a field's value or None."""
        if name in self.computed:
            return self.computed[name]
        if self.only is not None and name not in self.only:
            return NULL
        variable = self.variables.get(name, "")
        return variable if variable in known else f"{self.getter}({name!r})"

    def true(self, e: Expression, known: Known) -> tuple[str, Known]:
        """Code that is truthy exactly when `e` is true, and what is known where it is."""
        return self._side(e, known, True)

    def false(self, e: Expression, known: Known) -> tuple[str, Known]:
        """Code that is truthy exactly when `e` is false, and what is known where it is."""
        return self._side(e, known, False)

    def _side(self, e: Expression, known: Known, side: bool) -> tuple[str, Known]:
        match e:
            case Literal():
                return str(e.value is side), known
            case Not():
                return self._side(e.operand, known, not side)
            case Logic():
                return self._all(e, known, side) if (e.operator == "and") is side else self._one(e, known, side)
            case Call(function="is_null"):
                return self._null_side(e.arguments[0], known, side)
            case Call(function="if"):
                test, inside = self.true(e.arguments[0], known)
                a, _ = self._side(e.arguments[1], inside, side)
                b, _ = self._side(e.arguments[2], known, side)
                return f"({a} if {test} else {b})", known
        if type_of_shallow(e) is Type.BOOLEAN:
            guards, code, known = self.strict(e, known)
            return _every([*guards, code if side else f"not {code}"]), known
        return f"(truth({self.value_of(e, known)}) is {side})", known

    def _all(self, e: Logic, known: Known, side: bool) -> tuple[str, Known]:
        parts = []
        for operand in e.operands:
            code, known = self._side(operand, known, side)
            parts.append(code)
        return _every(parts), known

    def _one(self, e: Logic, known: Known, side: bool) -> tuple[str, Known]:
        parts = [self._side(operand, known, side)[0] for operand in e.operands]
        return "(" + " or ".join(parts) + ")", known

    def _null_side(self, e: Expression, known: Known, side: bool) -> tuple[str, Known]:
        if isinstance(e, Field):
            guards, variable = self.load(e.name, known)
            present = guards[0] if guards else "True"
            after = known if side or present == "False" else known | {variable}
            return (f"(not {present})" if side else present), after
        if isinstance(e, Literal):
            return str((e.value is None) is side), known
        return f"({self.value_of(e, known)} is {'' if side else 'not '}None)", known

    def _otherwise(self, e: Expression, known: Known) -> Known:
        """What is known where the code of `true(e)` was falsy: fields that were tested for null, and are not."""
        match e:
            case Logic(operator="or"):
                for operand in e.operands:
                    known = self._otherwise(operand, known)
            case Call(function="is_null", arguments=(Field(),)):
                return self._null_side(e.arguments[0], known, False)[1]
        return known

    def strict(self, e: Expression, known: Known) -> tuple[list[str], str, Known]:
        """Guards, and code of the value that is right when they all hold; what is known then."""
        match e:
            case Literal():
                return (["False"] if e.value is None else []), f"({e.value!r})", known
            case Field():
                guards, code = self.load(e.name, known)
                return guards, code, known if code == NULL else known | {code}
            case Negation():
                guards, code, known = self.strict(e.operand, known)
                return guards, f"(-{code})", known
            case Arithmetic():
                guards, (a, b), known = self._operands((e.left, e.right), known)
                return guards, _arithmetic(e, a, b), known
            case Comparison():
                guards, codes, known = self._operands(e.operands, known)
                chain = "".join(f" {op} {code}" for op, code in zip(e.operators, codes[1:], strict=True))
                return guards, f"({codes[0]}{chain})", known
            case Membership():
                guards, code, known = self.strict(e.operand, known)
                options = "".join(f"{o.value!r}, " for o in e.options)
                return guards, f"({code} {'not in' if e.negated else 'in'} ({options}))", known
            case Call() if not FUNCTIONS[e.function].special:
                guards, codes, known = self._operands(e.arguments, known)
                self.globals[f"f_{e.function}"] = FUNCTIONS[e.function].call
                return guards, f"f_{e.function}({', '.join(codes)})", known
        variable = self.fresh()
        return [f"({variable} := {self.value_of(e, known)}) is not None"], variable, known

    def _operands(self, parts: tuple[Expression, ...], known: Known) -> tuple[list[str], list[str], Known]:
        guards, codes = [], []
        for part in parts:
            more, code, known = self.strict(part, known)
            guards += more
            codes.append(code)
        return guards, codes, known

    def value_of(self, e: Expression, known: Known) -> str:
        """Code of the value of `e`, None when it is null."""
        match e:
            case Literal():
                return f"({e.value!r})"
            case Field():
                return self.value(e.name, known)
            case Not():
                variable = self.fresh()
                return f"(None if ({variable} := {self.boolean_of(e.operand, known)}) is None else not {variable})"
            case Logic():
                return self._logic_value(e, known)
            case Call(function="is_null"):
                return self._null_side(e.arguments[0], known, True)[0]
            case Call(function="coalesce"):
                *first, last = e.arguments
                code = self.value_of(last, known)
                for part in reversed(first):
                    variable = self.fresh()
                    code = f"({variable} if ({variable} := {self.value_of(part, known)}) is not None else {code})"
                return code
            case Call(function="if"):
                test, inside = self.true(e.arguments[0], known)
                a = self.value_of(e.arguments[1], inside)
                b = self.value_of(e.arguments[2], self._otherwise(e.arguments[0], known))
                return f"({a} if {test} else {b})"
        guards, code, _ = self.strict(e, known)
        return f"({code} if {_every(guards)} else None)" if guards else code

    def _logic_value(self, e: Logic, known: Known) -> str:
        """Kleene's `and`/`or`: the deciding value if any operand has it, else null if any is null."""
        decides, other = ("False", "True") if e.operator == "and" else ("True", "False")
        variables, tests = [], []
        for operand in e.operands:
            variables.append(self.fresh())
            tests.append(f"({variables[-1]} := {self.boolean_of(operand, known)}) is {decides}")
        nulls = " or ".join(f"{v} is None" for v in variables)
        return f"({decides} if {' or '.join(tests)} else None if {nulls} else {other})"

    def boolean_of(self, e: Expression, known: Known) -> str:
        """Like `value_of`, for a place where a boolean must stand: anything else raises at run time."""
        code = self.value_of(e, known)
        return code if type_of_shallow(e) is Type.BOOLEAN else f"boolean({code})"


def type_of_shallow(e: Expression) -> Type:
    """BOOLEAN or NUMBER where the node alone says so; ANY otherwise (constant time, unlike `type_of`)."""
    match e:
        case Comparison() | Membership() | Logic() | Not():
            return Type.BOOLEAN
        case Negation() | Arithmetic():
            return Type.NUMBER
        case Literal():
            return type_of(e)
        case Call():
            return FUNCTIONS[e.function].returns
    return Type.ANY


def _every(parts: list[str]) -> str:
    return parts[0] if len(parts) == 1 else "(" + " and ".join(parts) + ")"


def _arithmetic(e: Arithmetic, a: str, b: str) -> str:
    """Python's operator, made safe where Python gives it another meaning for text.

    `"x" * 10**9` would fill the memory and `"%99999999d" % 1` too, so an operand whose type is not known passes
    through unary plus, which text does not have (about 10 ns; it raises TypeError as the other operators do).
    """
    unknown_a, unknown_b = (type_of_shallow(x) is not Type.NUMBER for x in (e.left, e.right))
    match e.operator:
        case "**":
            return f"power({a}, {b})"
        case "*":
            real = any(isinstance(x, Literal) and isinstance(x.value, float) for x in (e.left, e.right))
            a = f"(+{a})" if unknown_a and not real else a
            b = f"(+{b})" if unknown_b and not real else b
        case "%":
            a = f"(+{a})" if unknown_a else a
        case "+":
            a = f"(+{a})" if unknown_a and unknown_b else a
    return f"({a} {e.operator} {b})"


def _power(a: float, b: float) -> float:
    return math.pow(a, b)  # always of floats: powers of integers could have any number of digits


def _truth(value: Any) -> Any:
    if value is None or value is True or value is False:
        return value
    raise TypeError(f"expected a boolean, got {type(value).__name__}")


LIMIT: Final = 9.2e18


def bounded(value: Any) -> Any:
    """`value` if other parts can carry it: finite, and as an integer within 64 bits (a greater one becomes a float).

    Raises OverflowError for infinity and for what is not a number (NaN): one such value would spoil a whole window.
    """
    if isinstance(value, int):
        return value if -LIMIT < value < LIMIT else float(value)
    if isinstance(value, float) and not math.isfinite(value):
        raise OverflowError("result is not a finite number")
    return value
