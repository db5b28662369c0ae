"""The document (TOML) of alert rules, each about one flow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from edgert.boards import files
from edgert.central.documents import Bounds, instead_of
from edgert.core.errors import DocumentError, EdgertError, Problem, show
from edgert.core.ids import TABLE_NAME
from edgert.core.results.result_schema import COLUMN_NAME
from edgert.flow.document import read_untrusted

SILENT: Final = "silent"
OUTSIDE: Final = "outside-quantile"
GATEWAY: Final = "gateway"
"""The key of a rule about gateways."""
MOST_RULES: Final = 100
MOST_WINDOWS: Final = 100
_DAY_S: Final = 86_400.0


@dataclass(frozen=True, slots=True)
class AlertRule:
    """A rule that was checked."""

    name: str
    flow: str
    kind: str
    """`SILENT` or `OUTSIDE`."""
    keys: tuple[str, ...] = ()
    """Keys that may fall silent (for `SILENT`), such as a source; empty: all of the flow's keys."""
    after_s: float = 0.0
    """Silence after which the rule fires (for `SILENT`), seconds."""
    patience_s: float = 3600.0
    """An outage that is shorter is no sensor's silence; windows that land later than this raise nothing."""
    column: str = ""
    """Aggregate whose value is checked (for `OUTSIDE`)."""
    of: str = ""
    """Aggregate of kind `quantiles` that gives the quantiles (for `OUTSIDE`); empty: the column's own values."""
    low: float | None = None
    high: float | None = None
    margin: float = 0.0
    """The bounds are wider on each side by this part of what lies between the two quantiles."""
    days: float = 1.0
    """The quantiles are those of the newest days."""
    windows: int = 3
    """Number of windows of a key in a row."""
    least: int = 100
    """With fewer values there are no quantiles."""


_NUMBERS: Final[Mapping[str, Bounds]] = {
    "after_s": Bounds(1, 366 * _DAY_S),
    "patience_s": Bounds(1, 366 * _DAY_S),
    "low": Bounds(0, 1),
    "high": Bounds(0, 1),
    "margin": Bounds(0, 1e6),
    "days": Bounds(1 / 1440, 3660),
    "windows": Bounds(1, MOST_WINDOWS, whole=True),
    "least": Bounds(2, 1e12, whole=True),
}
_KEYS: Final[Mapping[str, tuple[str, ...]]] = {
    SILENT: ("flow", "kind", "keys", "after_s", "patience_s"),
    OUTSIDE: ("flow", "kind", "column", "of", "low", "high", "margin", "days", "windows", "least", "patience_s"),
}


def load(paths: Sequence[Path | str]) -> list[AlertRule]:
    """The rules of some files. Raises `DocumentError` with every fault of the first wrong one, `EdgertError` for one
    that is no file, and for two rules of one name."""
    rules: dict[str, AlertRule] = {}
    for path in paths:
        for rule in parse(files.read(path), str(path)):
            if rule.name in rules:
                raise EdgertError(f"{path}: rules.{rule.name}: expected a name of its own, got one of another file")
            rules[rule.name] = rule
    return list(rules.values())


def parse(text: str | bytes, what: str = "alert rules") -> list[AlertRule]:
    """The rules of a document that was read from `what`. Raises `DocumentError` with every fault."""
    document = read_untrusted(text, format="toml", what=what)
    problems = [Problem(key, "only rules", "an unknown key") for key in document.keys() - {"rules"}]
    given = document.get("rules")
    if not isinstance(given, dict) or not 0 < len(given) <= MOST_RULES:
        problems.append(Problem("rules", f"1 to {MOST_RULES} tables [rules.NAME]", show(given)))
        raise DocumentError(what, problems)
    rules = [_RuleReader(name, table, problems).read() for name, table in given.items()]
    if problems:
        raise DocumentError(what, problems)
    return [rule for rule in rules if rule is not None]


class _RuleReader:
    """One rule. Collects faults, so that one hides no other."""

    def __init__(self, name: str, given: Any, problems: list[Problem]) -> None:
        self._name = name
        self._given: Mapping[str, Any] = given if isinstance(given, dict) else {}
        self._problems = problems
        if not TABLE_NAME.fullmatch(name):
            self._fault("", "a name of 1 to 63 of a-z, 0-9, '_', '-', a letter or digit first", show(name))
        if not isinstance(given, dict):
            self._fault("", "a table", show(given))

    def _fault(self, key: str, expected: str, got: str) -> None:
        self._problems.append(Problem(f"rules.{self._name}{'.' if key else ''}{key}", expected, got))

    def read(self) -> AlertRule | None:
        kind = self._given.get("kind")
        if not isinstance(kind, str) or kind not in _KEYS:
            self._fault("kind", f"one of {', '.join(_KEYS)}", show(kind))
            return None
        for key in self._given.keys() - set(_KEYS[kind]):
            self._fault(key, f"a known key of {kind} ({instead_of(key, _KEYS[kind])})", "an unknown one")
        flow = self._given.get("flow")
        if not isinstance(flow, str) or not TABLE_NAME.fullmatch(flow):
            self._fault("flow", "a flow's name", show(flow))
        numbers = {key: value for key in _NUMBERS if (value := self._number(key)) is not None}
        rule = AlertRule(
            self._name, str(flow), kind, keys=self._columns("keys"), column=self._column("column"),
            of=self._column("of"), **numbers,
        )  # fmt: skip
        if kind == SILENT:
            self._check_silent(rule)
        else:
            self._check_outside(rule)
        return rule

    def _check_silent(self, rule: AlertRule) -> None:
        if "after_s" not in self._given:
            self._fault("after_s", str(_NUMBERS["after_s"]), "none")

    def _check_outside(self, rule: AlertRule) -> None:
        if "column" not in self._given:
            self._fault("column", "the aggregate that is looked at", "none")
        if rule.low is None and rule.high is None:
            self._fault("high", "low, high or both", "neither")
        if rule.low is not None and rule.high is not None and rule.low >= rule.high:
            self._fault("high", f"a number above low ({rule.low:g})", f"{rule.high:g}")
        if rule.margin and (rule.low is None or rule.high is None):
            self._fault("margin", "a margin only where there are low and high", f"{rule.margin:g}")

    def _number(self, key: str) -> Any:
        value = self._given.get(key)
        if key not in self._given or _NUMBERS[key].holds(value):
            return value
        self._fault(key, str(_NUMBERS[key]), show(value))
        return None

    def _column(self, key: str) -> str:
        value = self._given.get(key, "")
        if key in self._given and not (isinstance(value, str) and COLUMN_NAME.fullmatch(value)):
            self._fault(key, "the name of an aggregate", show(value))
        return str(value)

    def _columns(self, key: str) -> tuple[str, ...]:
        if key not in self._given:
            return ()
        value = self._given[key]
        if not isinstance(value, list) or not value or not all(isinstance(v, str) for v in value):
            self._fault(key, "a list of names of keys", show(value))
            return ()
        if any(not COLUMN_NAME.fullmatch(v) for v in value) or len(set(value)) < len(value):
            self._fault(key, "different names of keys of the flow, or gateway", show(value))
        return tuple(value)
