"""`join_latest`: rows of one input, each with fields of the newest row of another that has the same key."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from edgert.core.batch import NO_WATERMARK, Batch, RawBatch, Row
from edgert.core.errors import Problem
from edgert.flow.graph import Flow, Node
from edgert.flow.spec import FieldUse, OperatorSpec, Parameter
from edgert.operators.fields import field_name, field_names, hashable, key_reader
from edgert.operators.logic import Build, Emission, Logic, Now

MAX_KEYS = 100_000
"""Keys that are remembered; beyond it the one that was new longest ago is forgotten, and counted."""


class JoinLatest(Logic):
    """State: per key the fields taken from the second input, and the time of their row."""

    def __init__(self, on: Sequence[str], fields: Sequence[str], missing: str = "null", max_age_s: float = 0.0) -> None:
        super().__init__()
        self.latest: dict[Any, tuple[float, dict[str, Any]]] = {}
        self._fields = tuple(fields)
        self._key_of = key_reader(on)
        self._drops_missing = missing == "drop"
        self._max_age_s = max_age_s
        self._nothing = dict.fromkeys(fields)
        self._marks = [NO_WATERMARK, NO_WATERMARK]
        self._dirty: dict[Any, None] = {}
        self._forgotten: list[Any] = []

    def process(self, batch: Batch | RawBatch, source: int, now: Now) -> Sequence[Emission]:
        assert isinstance(batch, Batch)
        before = min(self._marks)
        if batch.watermark > self._marks[source]:
            self._marks[source] = batch.watermark
        if source:
            self._remember(batch.rows)
            rows: list[Row] = []
        else:
            rows = self._join(batch.rows)
        watermark = min(self._marks)
        if not rows and watermark == before:
            return ()
        size = batch.size * len(rows) // len(batch.rows) if rows else 0
        return (Emission(0, Batch(rows, batch.arrival, watermark, size)),)

    def _remember(self, rows: Sequence[Row]) -> None:
        fields, key_of, latest, dirty = self._fields, self._key_of, self.latest, self._dirty
        for row in rows:
            key = key_of(row)
            kept = latest.get(key)
            if kept is None or row["time"] >= kept[0]:
                latest[key] = (row["time"], {name: row.get(name) for name in fields})
                dirty[key] = None
        while len(latest) > MAX_KEYS:
            key = next(iter(latest))
            del latest[key]
            self._forgotten.append(key)
            self.drops["too many keys (keys)"] += 1

    def _join(self, rows: Sequence[Row]) -> list[Row]:
        get, key_of, nothing, oldest = self.latest.get, self._key_of, self._nothing, self._max_age_s
        out = []
        missing = 0
        for row in rows:
            kept = get(key_of(row))
            if kept is None or (oldest and row["time"] - kept[0] > oldest):
                missing += 1
                if self._drops_missing:
                    continue
                out.append({**row, **nothing})
            else:
                out.append({**row, **kept[1]})
        if missing and self._drops_missing:
            self.drops["nothing to join"] += missing
        return out

    def delta(self) -> Any | None:
        if not self._dirty and not self._forgotten:
            return None
        latest = self.latest
        state = {"gone": self._forgotten, "latest": [[k, *latest[k]] for k in self._dirty if k in latest]}
        self._dirty, self._forgotten = {}, []
        return {**state, "marks": list(self._marks)}

    def snapshot(self) -> Any | None:
        if not self.latest:
            return None
        return {"gone": [], "latest": [[k, *kept] for k, kept in self.latest.items()], "marks": list(self._marks)}

    def restore(self, state: Any) -> None:
        for key in state["gone"]:
            self.latest.pop(hashable(key), None)
        for key, time, kept in state["latest"]:
            self.latest[hashable(key)] = (time, kept)
        self._marks = list(state["marks"])


def _check(node: Node, flow: Flow) -> Iterable[Problem]:
    path = f"operators.{node.name}"
    if len(node.inputs) != 2 or node.inputs[0] == node.inputs[1]:
        expected = "two operators: whose rows go through, and whose newest row is joined to them"
        yield Problem(f"{path}.inputs", expected, ", ".join(node.inputs))
    for name in node.parameters.get("fields") or ():
        if name in ("time", "source", *(node.parameters.get("on") or ())):
            yield Problem(f"{path}.fields", "fields that the rows of the first input keep for themselves", name)


def _fields(node: Node) -> FieldUse:
    return FieldUse(frozenset((*node.parameters["on"], *node.parameters["fields"])), frozenset())


def _make(build: Build) -> JoinLatest:
    p = build.node.parameters
    return JoinLatest(p["on"], p["fields"], p["missing"], p["max_age_s"])


SPECS = (
    OperatorSpec(
        type="join_latest",
        doc="Rows of the first input, each with fields of the newest row of the second that has the same key.",
        many_inputs=True,
        check=_check,
        fields=_fields,
        keyed=False,
        logic=_make,
        parameters=(
            Parameter(
                "on", "strings", "The fields that must be equal.", ["source"], parse_item=field_name, parse=field_names
            ),
            Parameter(
                "fields", "strings", "Fields to take from the second input.", parse_item=field_name, parse=field_names
            ),
            Parameter(
                "missing",
                "string",
                "A row for which there is none yet: its fields are null, or it is dropped, and counted.",
                "null",
                choices=("null", "drop"),
            ),
            Parameter("max_age_s", "number", "Older ones are not joined; 0: any age.", 0.0, "s", minimum=0.0),
        ),
    ),
)
