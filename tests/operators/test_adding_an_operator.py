"""Adding an operator takes one file with its specification and logic: this one. Document, Python, checks, schema and
docs follow from the specification."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from edgert.core.batch import Batch, RawBatch, Row
from edgert.core.checkpoint.position import Position
from edgert.core.errors import DocumentError
from edgert.core.toml import to_toml
from edgert.flow.document import load
from edgert.flow.graph import Flow, Node
from edgert.flow.schema import json_schema, operators_markdown
from edgert.flow.spec import FieldUse, OperatorSpec, Parameter
from edgert.flow.structure import keys_above
from edgert.operators.base.fields import field_name, new_field
from edgert.operators.base.logic import Build, Emission, Logic, Now
from edgert.operators.builder import Stream, agg, stream
from edgert.operators.registry import REGISTRY, registry_of
from edgert.runtime.checkpoint.progress import Progress
from edgert.runtime.flow_run import FlowRun
from edgert.runtime.instance.queue import Entry
from edgert.runtime.run_out import run_out

NOW = Now(0.0, 1_000.0)


class Total(Logic):
    """The sum of a field per source."""

    def __init__(self, field: str, output: str) -> None:
        super().__init__()
        self._field, self._output = field, output
        self._totals: dict[str, float] = {}
        self._changed: set[str] = set()

    def process(self, batch: Any, source: int, now: Now) -> Sequence[Emission]:
        return (Emission(0, Batch([self._added(row) for row in batch.rows], batch.arrival, batch.watermark)),)

    def _added(self, row: Row) -> Row:
        source = row["source"]
        self._totals[source] = self._totals.get(source, 0.0) + row[self._field]
        self._changed.add(source)
        return {**row, self._output: self._totals[source]}

    def delta(self) -> Any | None:
        changed, self._changed = self._changed, set()
        return {source: self._totals[source] for source in changed} or None

    def snapshot(self) -> Any | None:
        return dict(self._totals)

    def restore(self, state: Any) -> None:
        self._totals.update(state)


def fields(node: Node) -> FieldUse:
    return FieldUse(frozenset((node.parameters["field"],)), frozenset((node.parameters["output"],)))


def total(build: Build) -> Logic:
    return Total(build.node.parameters["field"], build.node.parameters["output"])


SPEC = OperatorSpec(
    "running_total",
    "Adds the sum of a field, per source.",
    (
        Parameter("field", "string", "The field to add up.", parse=field_name),
        Parameter("output", "string", "Field for the sum.", "total", parse=new_field),
    ),
    fields=fields,
    logic=total,
)
EXTENDED = registry_of([*REGISTRY.values(), SPEC])
DOCUMENT = """
name = "rain"

[operators.in]
type = "mqtt_source"
topic = "rain/{source}"
time_earliest = "1970-01-01"

[operators.so-far]
type = "running_total"
input = "in"
field = "mm"

[operators.wet]
type = "filter"
input = "so-far"
where = "total >= 3"

[operators.out]
type = "publish"
input = "wet"
topic = "wet/{source}"
"""


def test_it_works_from_document_to_result_and_goes_on_from_its_state() -> None:
    first = flow_run(load(DOCUMENT, EXTENDED))
    assert results(first, [("a", 1), ("a", 2), ("b", 5)]) == [("wet/a", 3.0), ("wet/b", 5.0)]
    deltas: dict[str, Any] = {}
    first.take_deltas(deltas)
    second = flow_run(load(DOCUMENT, EXTENDED))
    second.stages["so-far"].logic.restore(deltas["so-far"])
    assert results(second, [("a", 4)]) == [("wet/a", 7.0)]


def test_it_is_a_method_in_python_and_makes_the_same_document() -> None:
    readings = stream("rain", registry=EXTENDED).mqtt_source("rain/{source}", time_earliest="1970-01-01", name="in")
    total = readings.running_total("mm", name="so-far")
    made = total.filter("total >= 3", name="wet").publish("wet/{source}", name="out").build()
    assert made.document == load(DOCUMENT, EXTENDED).document
    assert load(to_toml(made.document), EXTENDED).document == made.document
    assert readings.running_total.__doc__ == SPEC.doc
    assert "running_total" in dir(readings)


def test_what_its_specification_does_not_allow_is_a_fault_of_the_document() -> None:
    with pytest.raises(DocumentError) as caught:
        load(DOCUMENT.replace('"mm"', "5") + "[operators.more]\ntype = 'running_totl'\ninput = 'in'\n", EXTENDED)
    assert {p.path for p in caught.value.problems} == {"operators.so-far.field", "operators.more.type"}


def test_the_schema_and_the_tables_of_the_docs_have_it() -> None:
    assert "running_total" in json.dumps(json_schema(EXTENDED))
    assert "The field to add up." in operators_markdown(EXTENDED)


def test_the_key_of_a_window_passes_operators_of_the_registry_that_are_stateless_and_no_others() -> None:
    def keyed() -> Stream:
        return stream("f", registry=EXTENDED).mqtt_source("x/{source}").key_by("room")

    with pytest.raises(DocumentError, match="a name that is not also a key"):
        keyed().select("room", "mm").tumbling_window(60, {"room": agg.count()}).publish("x").build()
    flow = keyed().running_total("mm").tumbling_window(60, {"room": agg.count()}).publish("x").build()
    assert keys_above(flow, EXTENDED, "tumbling-window") == ()


def flow_run(flow: Flow) -> FlowRun:
    return FlowRun(flow, EXTENDED, 1, 1, Progress(Position()))


def results(run: FlowRun, messages: Sequence[tuple[str, float]]) -> list[tuple[str, float]]:
    """(topic, total) of what the flow publishes for (source, mm)."""
    payloads = [json.dumps({"time": 1_000.0 + n, "mm": mm}).encode() for n, (_, mm) in enumerate(messages)]
    ((_, (source,)),) = run.sources()
    source.queue.append(Entry(0, RawBatch([f"rain/{name}" for name, _ in messages], payloads, 0.0, 1_000.0)))
    sent = [message for _, messages in run_out(run, NOW) for message in messages]
    return [(topic, json.loads(payload)["total"]) for topic, payload, *_ in sent]
