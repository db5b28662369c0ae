"""`train_regression`: a linear regression of every n rows, as a model that `predict` takes; and what operators share
that train models.

Per key this one keeps sums and sums of products, so a row costs the square of the fields and none is kept. They are
about the first row, and then about the mean so far, taken anew whenever there are twice as many rows: a first row that
is far from all others costs no digits. The coefficients solve the normal equations of least squares, in the form of
correlations; a field that is constant, or that others already tell, gets 0.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from sys import float_info
from typing import Any, Final

from edgert.core.batch import GREATEST, NO_WATERMARK, Batch, RawBatch, Row
from edgert.core.errors import Problem, show
from edgert.core.text.long_text import SHORT
from edgert.flow.graph import Flow, Node
from edgert.flow.spec import FieldUse, OperatorSpec, Parameter
from edgert.operators.base.fields import field_name, field_names, key_reader, new_field
from edgert.operators.base.logic import Build, Emission, Logic, Now
from edgert.operators.state.aggregates import compile_function, plain_sum
from edgert.operators.state.bounded_keys import SLOT_BYTES, ByKey, forgets
from edgert.operators.state.columns import key_names
from edgert.operators.state.partitioning import as_they_are

EPSILON: Final = float_info.epsilon
MAX_KEYS: Final = 10_000
MAX_FIELDS: Final = 24
"""Most fields that a model may have."""
_TOLD: Final = 1000.0
"""A field of which the others leave less than this many times what rounding may have made of it is told by them."""
_CENTRED_FIRST: Final = 16
"""Rows: a window that is smaller loses less than the time is worth."""
_CENTRED_AT: Final = frozenset((0, *(_CENTRED_FIRST << times for times in range(20))))
"""Rows at which the sums are brought to the mean: so many, and each time twice as many, beyond the largest window."""
_LEAST: Final = 1e-280
"""Least variance: a smaller one has lost digits, or would make infinite coefficients."""


class Sums:
    """Sums over rows of values: the fields', then the target's.

    `slots`: models made so far, rows, then per column what its sum is about, per column the sum, per pair the product.
    """

    __slots__ = ("size", "slots")

    def __init__(self, size: int, version: int = 0) -> None:
        self.size = size
        self.slots: list[Any] = [version, 0] + [0.0] * (2 * size + size * (size + 1) // 2)

    @property
    def version(self) -> int:
        """Models that were made."""
        return int(self.slots[0])

    @property
    def count(self) -> int:
        """Rows."""
        return int(self.slots[1])

    def means(self) -> list[float]:
        """Returns the mean of each column."""
        size, slots = self.size, self.slots
        return [slots[2 + a] + slots[2 + size + a] / slots[1] for a in range(size)]

    def covariances(self) -> list[list[float]]:
        """Σ (a - mean a)(b - mean b), the whole square matrix."""
        size, n = self.size, self.slots[1]
        sums, products = self.slots[2 + size : 2 + 2 * size], iter(self.slots[2 + 2 * size :])
        matrix = [[0.0] * size for _ in range(size)]
        for a in range(size):
            for b in range(a + 1):
                matrix[a][b] = matrix[b][a] = next(products) - sums[a] * (sums[b] / n)
        return matrix

    @property
    def rounding(self) -> float:
        """The part of a column's variance that rounding may have made: it grows with the root of the rows, and with how
        many times the squares about the mean those were from which it is what remains (see `_centre`)."""
        first = min(self.count, _CENTRED_FIRST)
        return EPSILON * (first * math.sqrt(first) + 2 * math.sqrt(self.count - first))

    @classmethod
    def of(cls, slots: Sequence[Any], size: int) -> Sums:
        """From the `slots` of a checkpoint. Raises ValueError for those of another number of columns."""
        made = cls(size)
        if len(slots) != len(made.slots):
            raise ValueError(f"expected {len(made.slots)} sums of {size} columns, got {len(slots)}")
        made.slots = list(slots)
        return made


@cache
def adder(size: int) -> Callable[[list[Any], Sequence[Any]], int]:
    """A function that adds a row of so many columns to the `slots` of their `Sums`, and returns how many rows there are
    in them: 0, and nothing is added, if not all are numbers within bounds. It is written out, since a row costs the
    square of the columns."""
    columns = range(size)
    pairs = list(enumerate([(a, b) for a in columns for b in range(a + 1)], 2 + 2 * size))
    numbers = " and ".join(f"(type(v{a}) is float or type(v{a}) is int)" for a in columns)
    squares = " + ".join(f"v{a} * v{a}" for a in columns)
    lines = [
        *_centre(size, pairs),
        "def add(slots, values):",
        f"    {''.join(f'v{a}, ' for a in columns)}= values",
        "    try:",
        f"        if not ({squares} < {GREATEST**2!r} if {numbers} else False):",
        "            return 0",
        "    except OverflowError:",  # an integer that no float can hold
        "        return 0",
        "    n = slots[1]",
        "    if n in centred_at:",
        "        if n:",
        "            centre(slots, n)",
        "        else:",
        f"            slots[2:{2 + size}] = map(float, values)",
        "    slots[1] = n = n + 1",
        *(f"    d{a} = v{a} - slots[{2 + a}]" for a in columns),
        *(f"    slots[{2 + size + a}] += d{a}" for a in columns),
        *(f"    slots[{at}] += d{a} * d{b}" for at, (a, b) in pairs),
        "    return n\n",
    ]
    return compile_function("add", "\n".join(lines), centred_at=_CENTRED_AT)


def _centre(size: int, pairs: Iterable[tuple[int, tuple[int, int]]]) -> list[str]:
    """Source lines of a function that brings the `slots` of n rows to their mean.

    About a first row that is far from all others the squares of n rows are n times those about the mean at most. About
    the mean of m rows those of these and as many others are twice that at most, however far the others are.
    """
    lines = ["def centre(slots, n):"]
    for a in range(size):
        lines += [
            f"    old, s{a} = slots[{2 + a}], slots[{2 + size + a}]",
            f"    slots[{2 + a}] = mean = old + s{a} / n",
            f"    m{a} = mean - old",
            f"    slots[{2 + size + a}] = r{a} = s{a} - n * m{a}",  # as the mean is rounded
        ]
    return [*lines, *(f"    slots[{at}] -= m{a} * s{b} + r{a} * m{b}" for at, (a, b) in pairs)]


def fit(sums: Sums) -> tuple[float, list[float], float]:
    """Intercept, coefficients, and the root of the mean squared error, of the last column on the others. The error may
    be what remains of nearly equal numbers: it is not told as less than what rounding may have made of that."""
    matrix, means = sums.covariances(), sums.means()
    size = len(means) - 1
    variances = [matrix[a][a] if matrix[a][a] > _LEAST else 0.0 for a in range(size + 1)]
    rounding = sums.rounding
    scale = [math.sqrt(variance) for variance in variances]
    left = [[matrix[a][b] / scale[a] / scale[b] if scale[a] and scale[b] else 0.0 for b in range(size + 1)]
            for a in range(size)]  # fmt: skip
    used = _eliminate(left, size, _TOLD * rounding)
    coefficients = [0.0] * size
    for a in reversed(used):
        known = plain_sum([left[a][b] * coefficients[b] for b in used if b > a])
        coefficients[a] = (left[a][size] - known) / left[a][a]
    told = plain_sum([left[a][size] * left[a][size] / left[a][a] for a in used])
    error = max(1 - told, rounding * (1 + told))
    coefficients = [c * scale[size] / scale[a] if scale[a] else 0.0 for a, c in enumerate(coefficients)]
    intercept = means[size] - plain_sum([c * mean for c, mean in zip(coefficients, means[:size], strict=True)])
    return intercept, coefficients, scale[size] * math.sqrt(error / sums.count)


def _eliminate(left: list[list[float]], size: int, told: float) -> list[int]:
    """Brings the rows to upper triangular form in place; which columns were used. Of the others a part of at most
    `told` is not told by those."""
    used = []
    for a in range(size):
        if left[a][a] <= told:
            continue
        used.append(a)
        for b in range(a + 1, size):
            factor = left[b][a] / left[a][a]
            left[b] = [x - factor * y for x, y in zip(left[b], left[a], strict=True)]
    return used


class TrainingLogic(Logic, ABC):
    """A row with a model for every so many rows of a key: with the time and the source of the last of them."""

    def __init__(self, output: str, keys: Sequence[str]) -> None:
        super().__init__()
        self._output, self._keys = output, tuple(keys)
        self._key_of = key_reader(keys)

    @abstractmethod
    def _trained(self, rows: Sequence[Row]) -> list[Row]:
        """Takes rows in; the results of those that complete a window."""

    def process(self, batch: Batch | RawBatch, source: int, now: Now) -> Sequence[Emission]:
        assert isinstance(batch, Batch)
        rows = self._trained(batch.rows) if batch.rows else []
        if not rows and batch.watermark == NO_WATERMARK:
            return ()
        return (Emission(0, Batch(rows, batch.arrival, batch.watermark)),)

    def _result(self, row: Row, key: Any, model: Mapping[str, Any]) -> Row:
        values = (key,) if len(self._keys) == 1 else key or ()
        return {**row_head(row), **dict(zip(self._keys, values, strict=True)), self._output: model}

    def _count(self, absent: int, bad: int) -> None:
        """Values for which rows were left out."""
        if absent:
            self.drops["absent (values)"] += absent
        if bad:
            self.drops["bad_value (values)"] += bad


class TrainRegression(TrainingLogic):
    """State: the sums of each key's window, and how many models it has had."""

    def __init__(
        self, target: str, fields: Sequence[str], size: int, output: str = "model", keys: Sequence[str] = ()
    ) -> None:
        super().__init__(output, keys)
        sums_bytes = len(Sums(len(fields) + 1).slots) * SLOT_BYTES
        self._by_key: ByKey[Sums] = ByKey("windows", sums_bytes, most_keys=MAX_KEYS)
        self.memory = self._by_key.memory
        self.windows = self._by_key.kept
        self._columns, self._size = (*fields, target), size

    def _trained(self, rows: Sequence[Row]) -> list[Row]:
        columns, windows, key_of, dirty = self._columns, self.windows, self._key_of, self._by_key.changed
        out = []
        absent = bad = 0
        size = self._size
        add = adder(len(columns))
        for row in rows:
            get = row.get
            values = [get(column) for column in columns]
            if None in values:
                absent += values.count(None)
                continue
            key = key_of(row)
            sums = windows.get(key)
            if sums is None:
                if type(key) is not str or len(key) > SHORT:
                    self._by_key.weighs(key)
                sums = windows[key] = Sums(len(columns))
            count = add(sums.slots, values)
            if not count:
                bad += sum([not is_number(value) for value in values]) or 1  # none alone: together they are too great
                continue
            dirty[key] = None
            if count == size:
                out.append(self._result(row, key, self._model(row, sums)))
                windows[key] = Sums(len(columns), sums.version + 1)
        self._count(absent, bad)
        self._by_key.forget_beyond(self.drops)
        return out

    def _model(self, row: Row, sums: Sums) -> dict[str, Any]:
        intercept, coefficients, error = fit(sums)
        return {
            "kind": "linear_regression",
            "version": sums.version + 1,
            "intercept": intercept,
            "coefficients": dict(zip(self._columns, coefficients, strict=False)),
            "about": {"target": self._columns[-1], "rows": sums.count, "until": row["time"], "rmse": error},
        }

    def delta(self) -> Any | None:
        return self._by_key.delta(lambda sums: (sums.slots[:],))

    def snapshot(self) -> Any | None:
        return self._by_key.snapshot(lambda sums: (sums.slots[:],))

    def restore(self, state: Any) -> None:
        for key, slots in self._by_key.told(state):
            self.windows[key] = Sums.of(slots, len(self._columns))


def row_head(row: Row) -> Row:
    """The fields that every row has."""
    return {"time": row["time"], "source": row["source"]}


def is_number(value: Any) -> bool:
    """True if a model can be made of it."""
    return (type(value) is float or type(value) is int) and -GREATEST <= value <= GREATEST


def _inputs(names: Sequence[str]) -> tuple[str, ...]:
    if len(field_names(names)) > MAX_FIELDS:
        raise ValueError(f"expected at most {MAX_FIELDS} fields, got {len(names)}")
    return tuple(names)


def check_training(node: Node, flow: Flow) -> Iterable[Problem]:
    """Checks the parameters that every training has."""
    p, path = node.parameters, f"operators.{node.name}"
    if p["target"] in p["fields"]:
        yield Problem(f"{path}.fields", "fields other than the target", p["target"])
    if p["output"] in key_names(node, flow):
        yield Problem(f"{path}.output", "a name that is not also a key", show(p["output"]))


def fields_used(node: Node) -> FieldUse:
    """Fields that every training uses."""
    p = node.parameters
    return FieldUse(frozenset((p["target"], *p["fields"])), frozenset((p["output"],)), keeps=frozenset())


def _check(node: Node, flow: Flow) -> Iterable[Problem]:
    p = node.parameters
    yield from check_training(node, flow)
    if p["size"] < len(p["fields"]) + 2:
        expected = f"at least {len(p['fields']) + 2} (two more than there are fields)"
        yield Problem(f"operators.{node.name}.size", expected, str(p["size"]))


def _make(build: Build) -> TrainRegression:
    p = build.node.parameters
    return TrainRegression(p["target"], p["fields"], p["size"], p["output"], [name for name, _ in build.keys])


FIELDS: Final = Parameter("fields", "strings", "The fields to predict it from.", parse_item=field_name, parse=_inputs)
OUTPUT: Final = Parameter("output", "string", "Field for the model.", "model", parse=new_field)
SPECS = (
    OperatorSpec(
        type="train_regression",
        doc="Fits a linear regression (least squares) to every `size` rows of a key, and gives a row with the model, "
        "in the form that `predict` takes (docs/models.md). Rows without a value in one of the fields are left out, "
        "and counted. " + forgets(MAX_KEYS),
        check=_check,
        fields=fields_used,
        logic=_make,
        divides_by=as_they_are,
        parameters=(
            Parameter("target", "string", "The field to predict.", parse=field_name),
            FIELDS,
            Parameter("size", "integer", "Rows of a model.", unit="rows", minimum=3, maximum=10_000_000),
            OUTPUT,
        ),
    ),
)
