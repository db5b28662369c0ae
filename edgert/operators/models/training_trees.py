"""`train_tree`: a classification tree (`edgert.operators.models.cart`) of every n rows: a model that `predict` takes.

Per key it keeps the numbers of a window's rows, 8 bytes for each, and makes nothing of them until all are there. Where
a window has come by many checkpoints, each tells the rows that were new.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import Any, Final

from edgert.core.batch import GREATEST, Row
from edgert.core.errors import Problem
from edgert.core.plain import is_text
from edgert.flow.graph import Flow, Node
from edgert.flow.spec import OperatorSpec, Parameter
from edgert.operators.base.fields import field_name, hashable
from edgert.operators.base.logic import Build
from edgert.operators.models.cart import grow
from edgert.operators.models.training import (
    FIELDS,
    MAX_KEYS,
    OUTPUT,
    TrainingLogic,
    check_training,
    fields_used,
    is_number,
)
from edgert.operators.state.aggregates import compile_function
from edgert.operators.state.bounded_keys import ByKey, forgets
from edgert.operators.state.partitioning import as_they_are

MAX_DEPTH: Final = 9
"""With 511 splits, as many as `predict` takes however they lie."""
MAX_CLASSES: Final = 100
MAX_LETTERS: Final = 64
"""Letters of a class's name: a window keeps each class that it has met."""
MAX_LOOKS: Final = 300_000
"""rows · fields · depth: as often a fit looks at a row's field. At the bound it takes a fifth of a second on a fast
machine, and 30 MB meanwhile; a thousand rows of three fields to a depth of three take 4 ms."""
WINDOW_BYTES: Final = 300
CLASS_BYTES: Final = 400
"""Size of the longest name of a class, as measured."""
NUMBER_BYTES: Final = 9
"""With the room that an array makes beforehand."""
_INTEGER: Final = 2**63
"""A leaf's integers are below."""


class TrainingWindow:
    """`values`: of each row the fields', then the index of its class in `classes`."""

    __slots__ = ("classes", "told", "values", "version")

    def __init__(self, version: int = 0) -> None:
        self.version = version
        """Models that were made."""
        self.classes: dict[Any, int] = {}
        """Their indexes. Of true and false (true,) and (false,): to a dictionary they are 1 and 0."""
        self.values = array("d")
        self.told = 0
        """Number of the values that are in checkpoints."""

    def entry(self, width: int, first: int) -> list[Any]:
        """For a checkpoint: the values from `first` on, little-endian."""
        values = self.values[first:]
        if sys.byteorder == "big":
            values.byteswap()
        return [self.version, width, first, list(self.classes), values.tobytes()]

    def take(self, version: int, classes: Sequence[Any], packed: bytes) -> None:
        """Appends rows that `entry` packed."""
        values = array("d")
        values.frombytes(packed)
        if sys.byteorder == "big":
            values.byteswap()
        self.version, self.classes = version, {hashable(value): index for index, value in enumerate(classes)}
        self.values += values
        self.told = len(self.values)


@cache
def all_numbers(size: int) -> Callable[[Sequence[Any]], bool]:
    """A function that says of so many values whether each is a number within bounds, written out as it is for each
    row."""
    names = [f"v{at}" for at in range(size)]
    tests = [f"(type({v}) is float or type({v}) is int) and {-GREATEST!r} <= {v} <= {GREATEST!r}" for v in names]
    lines = ["def are(values):", f"    {''.join(f'{v}, ' for v in names)}= values", f"    return {' and '.join(tests)}"]
    return compile_function("are", "\n".join([*lines, ""]))


def is_class(value: Any) -> bool:
    """True if a leaf can tell it."""
    if type(value) is str:
        return len(value) <= MAX_LETTERS and is_text(value)
    return type(value) is bool or (is_number(value) and (type(value) is float or -_INTEGER <= value < _INTEGER))


class TrainTree(TrainingLogic):
    """State: each key's window, and how many models it has had."""

    def __init__(
        self,
        target: str,
        fields: Sequence[str],
        size: int,
        *,
        depth: int = 3,
        least: int = 5,
        classes: int = 20,
        output: str = "model",
        keys: Sequence[str] = (),
    ) -> None:
        super().__init__(output, keys)
        self._columns, self._size, self._width = (*fields, target), size, len(fields) + 1
        self._depth, self._least, self._classes = depth, least, classes
        # reckoned as if full: how many keys there may be does not depend on how far each has come
        window_bytes = WINDOW_BYTES + CLASS_BYTES * min(classes, size) + NUMBER_BYTES * size * self._width
        self._by_key: ByKey[TrainingWindow] = ByKey("windows", window_bytes, most_keys=MAX_KEYS)
        self.memory = self._by_key.memory
        self.windows = self._by_key.kept

    def _trained(self, rows: Sequence[Row]) -> list[Row]:
        columns, windows, key_of, dirty = self._columns, self.windows, self._key_of, self._by_key.changed
        out = []
        absent = bad = beyond = 0
        full, most = self._size * self._width, self._classes
        numbers = all_numbers(len(columns) - 1)
        for row in rows:
            get = row.get
            values: list[Any] = [get(column) for column in columns]
            if None in values:
                absent += values.count(None)
                continue
            label = values.pop()
            if not (numbers(values) and is_class(label)):
                bad += sum([not is_number(value) for value in values]) + (not is_class(label))
                continue
            key = key_of(row)
            window = windows.get(key)
            if window is None:
                self._by_key.weighs(key)
                window = windows[key] = TrainingWindow()
            known = window.classes
            if type(label) is bool:
                label = (label,)
            index = known.get(label)
            if index is None:
                if len(known) >= most:  # a window of before there were so few has more
                    beyond += 1
                    continue
                index = known[label] = len(known)
            values.append(index)
            window.values.extend(values)
            dirty[key] = None
            if len(window.values) >= full:
                out.append(self._result(row, key, self._model(row, window)))
                windows[key] = TrainingWindow(window.version + 1)
        self._count(absent, bad)
        if beyond:
            self.drops["too many classes"] += beyond
        self._by_key.forget_beyond(self.drops)
        return out

    def _model(self, row: Row, window: TrainingWindow) -> dict[str, Any]:
        *names, target = self._columns
        columns = [window.values[at :: self._width] for at in range(self._width)]
        labels = list(map(int, columns.pop()))
        fields = dict(zip(names, columns, strict=True))
        classes = [value[0] if isinstance(value, tuple) else value for value in window.classes]
        tree, right = grow(fields, labels, classes, self._depth, self._least)
        return {
            "kind": "decision_tree",
            "version": window.version + 1,
            "tree": tree,
            "about": {
                "target": target, "rows": len(labels), "until": row["time"], "accuracy": right / len(labels),
            },
        }  # fmt: skip

    def delta(self) -> Any | None:
        return self._by_key.delta(self._news)

    def _news(self, window: TrainingWindow) -> list[Any]:
        first, window.told = window.told, len(window.values)
        return window.entry(self._width, first)

    def snapshot(self) -> Any | None:
        return self._by_key.snapshot(lambda window: window.entry(self._width, 0))

    def restore(self, state: Any) -> None:
        for key, version, width, first, classes, packed in self._by_key.told(state):
            if width != self._width:
                raise ValueError(f"expected rows of {self._width} columns, got {width}")
            if not first:
                self.windows[key] = TrainingWindow()
            window = self.windows.get(key)
            if window is None or len(window.values) != first:
                raise ValueError(f"expected rows behind those that are there, got them from value {first} on")
            window.take(version, classes, packed)


def _check(node: Node, flow: Flow) -> Iterable[Problem]:
    p, path = node.parameters, f"operators.{node.name}"
    yield from check_training(node, flow)
    if p["size"] < 2 * p["least"]:
        yield Problem(f"{path}.size", f"at least {2 * p['least']} (the rows of two leaves)", str(p["size"]))
    if p["size"] > (most := MAX_LOOKS // (len(p["fields"]) * p["depth"])):
        expected = (
            f"at most {most} (of {len(p['fields'])} fields to a depth of {p['depth']}, or one fit takes too long)"
        )
        yield Problem(f"{path}.size", expected, str(p["size"]))


def _make(build: Build) -> TrainTree:
    p = build.node.parameters
    return TrainTree(
        p["target"], p["fields"], p["size"], depth=p["depth"], least=p["least"], classes=p["classes"],
        output=p["output"], keys=[name for name, _ in build.keys],
    )  # fmt: skip


SPECS = (
    OperatorSpec(
        type="train_tree",
        doc="Fits a classification tree (CART, by Gini impurity) to every `size` rows of a key, and gives a row with "
        "the model, in the form that `predict` takes (docs/models.md). Rows without a value in one of the fields are "
        "left out, and counted. " + forgets(MAX_KEYS) + " Windows are reckoned as if they were full.",
        check=_check,
        fields=fields_used,
        logic=_make,
        divides_by=as_they_are,
        parameters=(
            Parameter(
                "target", "string", f"The field whose class (text of up to {MAX_LETTERS} letters, a number, true or "
                "false) to predict.", parse=field_name,
            ),
            FIELDS,
            Parameter(
                "size", "integer", f"Rows of a model; times fields and depth at most {MAX_LOOKS:,}.", 1_000,
                unit="rows", minimum=2, maximum=50_000,
            ),
            Parameter(
                "depth", "integer", "Splits from the root to a leaf, at most.", 3, minimum=1, maximum=MAX_DEPTH
            ),
            Parameter("least", "integer", "Rows of a leaf, at least.", 5, minimum=1, maximum=25_000),
            Parameter(
                "classes", "integer", "Classes of a window, at most; rows of others are left out, and counted.", 20,
                minimum=2, maximum=MAX_CLASSES,
            ),
            OUTPUT,
        ),
    ),
)  # fmt: skip
