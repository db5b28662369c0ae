"""Tree to Python source. Only constants (through `repr`) and generated names enter it, never text of a user.

Nulls cost little: each strict part of an expression becomes *guards* (`(v0 := r.get('temperature')) is not None`) and
*code* that is right when all guards hold; a field guarded once is not looked up again where the first guard dominates.
Conditions are generated twice-sided: `true(e)` is truthy when `e` is true, `false(e)` when it is false, so that
three-valued logic needs no third value. Each part appears once in the code, whose length is linear in the tree.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, Final

from edgert.expr.functions import FUNCTIONS, Type
from edgert.expr.operations import (
    EQUALITY,
    NULL,
    Bound,
    arithmetic,
    as_numbers,
    equality,
    in_order,
    is_number,
    membership,
    proven_by,
    variables,
)
from edgert.expr.tree import (
    Arithmetic,
    Call,
    Comparison,
    Expression,
    Field,
    InList,
    Literal,
    LogicalOperation,
    Negation,
    Not,
)
from edgert.expr.types import type_of_shallow


class Scope:
    """Names of one generated function: which local variable, or none, holds which field."""

    def __init__(self) -> None:
        self.variables: dict[str, str] = {}
        """Fields of the incoming row, by the local variable that a guard binds."""
        self.computed: dict[str, str] = {}
        """Fields that an earlier step made: variable, or `None` where the step took the field away."""
        self.only: frozenset[str] | None = None
        """Fields of the incoming row that are left after a selection; None: all."""
        self.globals: dict[str, Any] = {
            "power": _power, "truth": _truth, "boolean": _truth, "bounded": bounded, "wrong": _wrong,
        }  # fmt: skip
        self.counter = 0

    def fresh(self) -> str:
        self.counter += 1
        return f"t{self.counter}"

    def load(self, name: str, known: Bound) -> tuple[list[str], str]:
        """Guards and code of a field."""
        if name in self.computed:
            variable = self.computed[name]
            return ([] if variable in known else [f"{variable} is not None"]), variable
        if self.only is not None and name not in self.only:
            return ["False"], NULL
        variable = self.variables.setdefault(name, f"v{len(self.variables)}")
        return ([] if variable in known else [f"({variable} := r.get({name!r})) is not None"]), variable

    def value(self, name: str, known: Bound) -> str:
        """Code of a field's value or None."""
        if name in self.computed:
            return self.computed[name]
        if self.only is not None and name not in self.only:
            return NULL
        variable = self.variables.get(name, "")
        return variable if variable in known else f"r.get({name!r})"

    def true(self, e: Expression, known: Bound) -> tuple[str, Bound]:
        """Code that is truthy exactly when `e` is true, and what is known where it is."""
        return self._side(e, known, True)

    def false(self, e: Expression, known: Bound) -> tuple[str, Bound]:
        """Code that is truthy exactly when `e` is false, and what is known where it is."""
        return self._side(e, known, False)

    def _side(self, e: Expression, known: Bound, side: bool) -> tuple[str, Bound]:
        match e:
            case Literal():
                return str(e.value is side), known
            case Not():
                return self._side(e.operand, known, not side)
            case LogicalOperation():
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

    def _all(self, e: LogicalOperation, known: Bound, side: bool) -> tuple[str, Bound]:
        parts = []
        for operand in e.operands:
            code, known = self._side(operand, known, side)
            parts.append(code)
        return _every(parts), known

    def _one(self, e: LogicalOperation, known: Bound, side: bool) -> tuple[str, Bound]:
        parts = [self._side(operand, known, side)[0] for operand in e.operands]
        return "(" + " or ".join(parts) + ")", known

    def _null_side(self, e: Expression, known: Bound, side: bool) -> tuple[str, Bound]:
        if isinstance(e, Field):
            guards, variable = self.load(e.name, known)
            present = guards[0] if guards else "True"
            after = known if side or present == "False" else known | {variable}
            return (f"(not {present})" if side else present), after
        if isinstance(e, Literal):
            return str((e.value is None) is side), known
        return f"({self.value_of(e, known)} is {'' if side else 'not '}None)", known

    def _otherwise(self, e: Expression, known: Bound) -> Bound:
        """Knowledge where the code of `true(e)` was falsy: fields that were tested for null, and are not."""
        match e:
            case LogicalOperation(operator="or"):
                for operand in e.operands:
                    known = self._otherwise(operand, known)
            case Call(function="is_null", arguments=(Field(),)):
                return self._null_side(e.arguments[0], known, False)[1]
        return known

    def strict(self, e: Expression, known: Bound) -> tuple[list[str], str, Bound]:
        """Guards, and code of the value that is right when they all hold; what is known then."""
        match e:
            case Literal():
                return (["False"] if e.value is None else []), f"({e.value!r})", known
            case Field():
                guards, code = self.load(e.name, known)
                return guards, code, known if code == NULL else known | {code}
            case Negation():
                guards, code, known = self.strict(e.operand, known)
                (code,), known = as_numbers((e.operand,), (code,), known)
                return guards, f"(-{code})", known
            case Arithmetic():
                guards, codes, known = self._operands(e.children(), known)
                numbers = [is_number(part, code, known) for part, code in zip(e.children(), codes, strict=True)]
                codes, known = as_numbers(e.children(), codes, known)
                return guards, arithmetic(e, codes, numbers), known
            case Comparison():
                return self._comparison(e, known)
            case InList():
                guards, code, known = self.strict(e.operand, known)
                return guards, membership(e, code), known
            case Call() if not FUNCTIONS[e.function].special:
                guards, codes, known = self._operands(e.arguments, known)
                takes = FUNCTIONS[e.function].parameters
                wanted = [takes[min(at, len(takes) - 1)] is Type.NUMBER for at in range(len(codes))]
                codes, known = as_numbers(e.arguments, codes, known, wanted)
                self.globals[f"f_{e.function}"] = FUNCTIONS[e.function].call
                return guards, f"f_{e.function}({', '.join(codes)})", known
        variable = self.fresh()
        # guards run before the code beside them, which is what proves that something is a number
        return [f"({variable} := {self.value_of(e, variables(known))}) is not None"], variable, known

    def _operands(self, parts: Sequence[Expression], known: Bound) -> tuple[list[str], list[str], Bound]:
        guards, codes = [], []
        for part in parts:
            more, code, known = self.strict(part, known)
            guards += more
            codes.append(code)
        return guards, codes, known

    def _comparison(self, e: Comparison, known: Bound) -> tuple[list[str], str, Bound]:
        guards, codes, known = self._operands(e.operands[:2], known)
        more, others, later = self._operands(e.operands[2:], known)
        proven = proven_by(e, codes)
        code = " and ".join(self._pairs(e, [*codes, *others], later))
        # a chain goes no further than to what does not hold: the types of the rest are not proven
        return [*guards, *more], f"({code})", known | proven | variables(later)

    def _pairs(self, e: Comparison, codes: list[str], known: Bound) -> Iterator[str]:
        """The comparisons of a chain one by one, each operand computed once."""
        for at, operator in enumerate(e.operators):
            two, pair = e.operands[at : at + 2], codes[at : at + 2]
            if at + 2 < len(codes) and not isinstance(two[1], Literal) and not pair[1].isidentifier():
                codes[at + 1] = self.fresh()
                pair[1] = f"({codes[at + 1]} := {pair[1]})"
            if operator in EQUALITY:
                yield equality(operator, two, pair, known)
            else:
                code, known = in_order(operator, two, pair, known)
                yield code

    def value_of(self, e: Expression, known: Bound) -> str:
        """Code of the value of `e`, None when it is null."""
        match e:
            case Literal():
                return f"({e.value!r})"
            case Field():
                return self.value(e.name, known)
            case Not():
                variable = self.fresh()
                return f"(None if ({variable} := {self.boolean_of(e.operand, known)}) is None else not {variable})"
            case LogicalOperation():
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

    def _logic_value(self, e: LogicalOperation, known: Bound) -> str:
        """Kleene's `and`/`or`: the deciding value if any operand has it, else null if any is null."""
        decides, other = ("False", "True") if e.operator == "and" else ("True", "False")
        variables, tests = [], []
        for operand in e.operands:
            variables.append(self.fresh())
            tests.append(f"({variables[-1]} := {self.boolean_of(operand, known)}) is {decides}")
        nulls = " or ".join(f"{v} is None" for v in variables)
        return f"({decides} if {' or '.join(tests)} else None if {nulls} else {other})"

    def boolean_of(self, e: Expression, known: Bound) -> str:
        """Like `value_of`, for a place where a boolean must stand: anything else raises at run time."""
        code = self.value_of(e, known)
        return code if type_of_shallow(e) is Type.BOOLEAN else f"boolean({code})"


def _every(parts: list[str]) -> str:
    return parts[0] if len(parts) == 1 else "(" + " and ".join(parts) + ")"


def _power(a: float, b: float) -> float:
    return math.pow(a, b)  # always of floats: powers of integers could have any number of digits


def _wrong(value: Any) -> Any:
    raise TypeError(f"expected a number, got {value}")


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
