"""`join_latest`: rows of one input, each with fields of the newest row of another that has the same key."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, Final

from edgert.core.batch import CLOCK_IS_SET, Batch, RawBatch, Row, great_bytes
from edgert.core.errors import Problem
from edgert.flow.graph import Flow, Node
from edgert.flow.spec import ANY, FieldUse, OperatorSpec, Parameter
from edgert.operators.base.fields import field_name, field_names, key_reader
from edgert.operators.base.inline import Fields, Inlinable, Lines, TimeUse, indented
from edgert.operators.base.logic import NOTHING_TO_JOIN, Build, Emission, Now, emission_of
from edgert.operators.state.bounded_keys import ByKey, forgets
from edgert.operators.state.wrong_clock import AHEAD_S, SLACK_S

ROW_BYTES: Final = 100
FIELD_BYTES: Final = 60
"""Bytes of a remembered key, and bytes per field, as measured; long text and lists add to that."""


class JoinLatest(Inlinable):
    """State: per key the fields taken from the second input, and the time of their row."""

    repeatable = True  # to remember a row twice changes nothing
    at_once = True

    def __init__(self, on: Sequence[str], fields: Sequence[str], missing: str = "null", max_age_s: float = 0.0) -> None:
        super().__init__()
        self._by_key: ByKey[tuple[Any, ...]] = ByKey("latest", ROW_BYTES + FIELD_BYTES * len(fields))
        self.memory = self._by_key.memory
        self.latest = self._by_key.kept
        """The time, then the fields: one object rather than a dict within another, since for each row another key's is
        looked at, which the processor's caches do not hold."""
        self._on, self._fields = tuple(on), tuple(fields)
        self._key_of = key_reader(on)
        self._drops_missing = missing == "drop"
        self._max_age_s = max_age_s

    def process(self, batch: Batch | RawBatch, source: int, now: Now) -> Sequence[Emission]:
        assert isinstance(batch, Batch)
        if source:
            self._remember(batch.rows, now.wall + AHEAD_S if now.wall > CLOCK_IS_SET else math.inf)
            return ()  # what leaves are rows of the first input, so its watermark is theirs
        return emission_of(batch, self._join(batch.rows))

    def _remember(self, rows: Sequence[Row], limit: float) -> None:
        """`limit`: a time beyond it counts as it, or one wrong clock would keep out all that come after. So does a time
        that is kept from when our own clock was ahead."""
        fields, key_of, latest, dirty = self._fields, self._key_of, self.latest, self._by_key.changed
        weighs, heavy = self._by_key.weighs, self._by_key.heavy
        for row in rows:
            key = key_of(row)
            kept = latest.get(key)
            time = min(row["time"], limit)
            if kept is None or time >= kept[0] or kept[0] > limit + SLACK_S:
                values = [row.get(name) for name in fields]
                latest[key] = (time, *values)
                dirty[key] = None
                great = great_bytes(values)
                if kept is None or great or heavy:
                    weighs(key, great)
        self._by_key.forget_beyond(self.drops)

    def _join(self, rows: Sequence[Row]) -> list[Row]:
        get, key_of, fields, oldest = self.latest.get, self._key_of, self._fields, self._max_age_s
        nothing = dict.fromkeys(fields)
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
                out.append({**row, **dict(zip(fields, kept[1:], strict=True))})
        if self._drops_missing:
            self._lacked(missing)
        return out

    def _lacked(self, rows: int) -> None:
        if rows:
            self.drops[NOTHING_TO_JOIN] += rows

    def inlines(self, source: int) -> bool:
        return source == 0

    def inline(self, row: Fields, source: int) -> Lines:
        key = ", ".join(row.of(name) for name in self._on)
        find = f"kept = find({key})" if len(self._on) == 1 else f"kept = find(({key}))"
        old = f" or {row.of('time')} - kept[0] > {self._max_age_s!r}" if self._max_age_s else ""
        made = {name: f"j{number}" for number, name in enumerate(self._fields)}
        take = [f"_, {', '.join(made.values())}, = kept"]
        if self._drops_missing:
            check = [find, f"if kept is None{old}:", "    break", *take]
        else:
            nothing = "".join(f"{variable} = " for variable in made.values())
            check = [find, f"if kept is None{old}:", f"    {nothing}None", "else:", *indented(take)]
        counts = Lines(gone=["missing += 1"], setup=["missing = 0"], finish=["lacked(missing)"])
        return replace(
            counts if self._drops_missing else Lines(),
            check=check,
            row=replace(row, variables={**row.variables, **made}),
            constants={"find": self.latest.get, "lacked": self._lacked},
        )

    def time_by(self, source: int) -> TimeUse:
        return "ignores" if source else "passes"

    def delta(self) -> Any | None:
        return self._by_key.delta(self._stored)

    def snapshot(self) -> Any | None:
        return self._by_key.snapshot(self._stored)

    def _stored(self, kept: Sequence[Any]) -> tuple[float, dict[str, Any]]:
        return kept[0], dict(zip(self._fields, kept[1:], strict=True))

    def restore(self, state: Any) -> None:
        for key, time, stored in self._by_key.told(state):
            values = list(map(stored.get, self._fields))
            self.latest[key] = (time, *values)
            self._by_key.weighs(key, great_bytes(values))


def _behind_markers(name: str, flow: Flow) -> str:
    """A marker vanishes: who reads it reads what it stands behind."""
    while name in flow.nodes and flow.nodes[name].type == "key_by" and flow.nodes[name].inputs:
        name = flow.nodes[name].inputs[0]
    return name


def _check(node: Node, flow: Flow) -> Iterable[Problem]:
    path = f"operators.{node.name}"
    if len({_behind_markers(name, flow) for name in node.inputs}) != 2 or len(node.inputs) != 2:
        expected = "two operators: whose rows go through, and whose newest row is joined to them"
        yield Problem(f"{path}.inputs", expected, ", ".join(node.inputs))
    for name in node.parameters.get("fields") or ():
        if name in ("time", "source", *(node.parameters.get("on") or ())):
            yield Problem(f"{path}.fields", "fields that the rows of the first input keep for themselves", name)


def _fields(node: Node) -> FieldUse:
    """Use of fields: values of the first input's row in the joined fields are replaced."""
    return FieldUse(frozenset(node.parameters["on"]), frozenset(node.parameters["fields"]))


def _fields_beside(node: Node) -> FieldUse:
    return FieldUse(frozenset((*node.parameters["on"], *node.parameters["fields"])), keeps=frozenset())


def _make(build: Build) -> JoinLatest:
    p = build.node.parameters
    return JoinLatest(p["on"], p["fields"], p["missing"], p["max_age_s"])


SPECS = (
    OperatorSpec(
        type="join_latest",
        doc="Rows of the first input, each with fields of the newest row of the second that has the same key. It goes "
        "by batches (what was read at once, or had waited): a row meets what the second input had brought when the "
        "batch in which it stands had its turn; what the same batch of a common source brings there is, as a rule, met "
        "by the next one. So after a restart, or behind a backlog, a row may meet another than it would have met. What "
        "must be joined exactly, by key and time, is for `join_observations`. " + forgets(),
        many_inputs=True,
        check=_check,
        fields=_fields,
        fields_beside=_fields_beside,
        keyed=False,
        logic=_make,
        divides_by=lambda node, keys: tuple((name, ANY) for name in node.parameters["on"]),
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
