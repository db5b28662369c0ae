"""The values of one operator's table, checked and parsed by the operator's own description."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any, Final

from edgert.core.errors import DocumentError, Problem, show
from edgert.core.plain import not_plain
from edgert.flow.spec import REQUIRED, OperatorSpec, Parameter

MAX_ITEMS: Final = 1000
KINDS: Final = {
    "string": "a string",
    "integer": "an integer",
    "number": "a number",
    "boolean": "true or false",
    "strings": "a list of strings",
    "string_map": "a table whose values are strings",
    "table": "a table",
}


class _Fault(Exception):
    """A value that is not right; `path` is relative to the parameter."""

    def __init__(self, path: str, expected: str, got: str) -> None:
        self.problem = (path, expected, got)


def parse_parameters(
    path: str, table: Mapping[str, Any], spec: OperatorSpec
) -> tuple[list[Problem], Mapping[str, Any]]:
    """The problems, and the parsed values of all parameters that are right (defaults filled in)."""
    return parse_values(path, table, spec.parameters)


def parse_values(
    path: str, table: Mapping[str, Any], parameters: Iterable[Parameter]
) -> tuple[list[Problem], Mapping[str, Any]]:
    """The problems, and the parsed values of those of `parameters` that are right."""
    problems: list[Problem] = []
    values: dict[str, Any] = {}
    for parameter in parameters:
        where = f"{path}.{parameter.name}"
        if parameter.name not in table and parameter.default is REQUIRED:
            problems.append(Problem(where, described(parameter), "nothing"))
            continue
        try:
            faults, value = _parse(parameter, table.get(parameter.name, parameter.default))
        except _Fault as fault:
            faults, value = [fault.problem], None
        except DocumentError as error:
            faults, value = [(f".{p.path}" if p.path else "", p.expected, p.got) for p in error.problems], None
        problems += [Problem(where + at, expected, got) for at, expected, got in faults]
        if not faults:
            values[parameter.name] = value
    return problems, MappingProxyType(values)


def described(parameter: Parameter) -> str:
    """The accepted values, in words: type, choices, bounds, unit."""
    text = f"one of {', '.join(parameter.choices)}" if parameter.choices else KINDS[parameter.kind]
    low, high = parameter.minimum, parameter.maximum
    if low is not None and high is not None:
        text += f" from {low:.16g} to {high:.16g}"
    elif low is not None:
        text += f" of at least {low:.16g}"
    elif high is not None:
        text += f" of at most {high:.16g}"
    return f"{text} ({parameter.unit})" if parameter.unit else text


Faults = list[tuple[str, str, str]]


def _parse(parameter: Parameter, value: Any) -> tuple[Faults, Any]:
    value = _typed(parameter, value)
    faults: Faults = []
    if parameter.parse_item is not None or parameter.parse_entry is not None:
        value, faults = _items(parameter, value)
    if parameter.parse is not None and not faults:
        value = _called(parameter.parse, value, "")
    return faults, value


def _items(parameter: Parameter, value: Any) -> tuple[Any, Faults]:
    """Every item parsed, by itself, so that one fault hides no other."""
    faults: Faults = []
    parsed: dict[Any, Any] = {}
    pairs = value.items() if isinstance(value, dict) else enumerate(value)
    for key, item in pairs:
        try:
            parsed[key] = _called(_parser(parameter, key), item, f".{key}" if isinstance(value, dict) else f"[{key}]")
        except _Fault as fault:
            faults.append(fault.problem)
    return (parsed if isinstance(value, dict) else list(parsed.values())), faults


def _parser(parameter: Parameter, key: Any) -> Callable[[Any], Any]:
    if parameter.parse_entry is not None:
        return partial(parameter.parse_entry, key)
    assert parameter.parse_item is not None
    return parameter.parse_item


def _called(parse: Callable[[Any], Any], value: Any, at: str) -> Any:
    try:
        return parse(value)
    except ValueError as error:
        expected, found, got = str(error).partition(", got ")
        raise _Fault(at, expected.removeprefix("expected "), got if found else show(value)) from None


def _typed(parameter: Parameter, value: Any) -> Any:
    match parameter.kind:
        case "string" if isinstance(value, str) and (not parameter.choices or value in parameter.choices):
            return value
        case "boolean" if isinstance(value, bool):
            return value
        case "integer" | "number" if (number := _number(parameter, value)) is not None:
            return number
        case "strings":
            return _strings(value)
        case "string_map":
            return _string_map(value)
        case "table" if isinstance(value, Mapping):
            if problems := list(not_plain(value)):
                raise DocumentError(parameter.name, problems)
            return value
    raise _Fault("", described(parameter), show(value))


def _number(parameter: Parameter, value: Any) -> int | float | None:
    """The number if it is one, finite and within bounds. JSON from elsewhere may write the integer 1 as 1.0."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= 1e308:
        return None
    number: int | float = value
    if parameter.kind == "integer":
        if not float(number).is_integer():
            return None
        number = int(number)
    low = -math.inf if parameter.minimum is None else parameter.minimum
    high = math.inf if parameter.maximum is None else parameter.maximum
    if not low <= number <= high:
        return None
    return number if parameter.kind == "integer" else float(number)


def _strings(value: Any) -> list[str]:
    if not isinstance(value, list | tuple) or len(value) > MAX_ITEMS:
        raise _Fault("", f"a list of at most {MAX_ITEMS} strings", show(value))
    for i, item in enumerate(value):
        if not isinstance(item, str):
            raise _Fault(f"[{i}]", "a string", show(item))
    return list(value)


def _string_map(value: Any) -> dict[str, str]:
    if not isinstance(value, Mapping) or len(value) > MAX_ITEMS:
        raise _Fault("", f"a table of at most {MAX_ITEMS} strings", show(value))
    for key, item in value.items():
        if not isinstance(key, str) or not isinstance(item, str):
            raise _Fault(f".{key}", "a string", show(item))
    return dict(value)
