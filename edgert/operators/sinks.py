"""Where rows leave a flow: `publish` (MQTT, at once) and `ship` (the central tables, as `delivery` says)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import repeat
from typing import Any, Protocol, runtime_checkable

from edgert.codecs.registry import codec_name
from edgert.codecs.registry import make as make_codec
from edgert.codecs.shapes import row_display
from edgert.codecs.value import FieldAlone
from edgert.core.batch import Batch, RawBatch, Row
from edgert.core.errors import Problem
from edgert.core.text.topic_template import TopicTemplate
from edgert.flow.graph import Flow, Node
from edgert.flow.spec import ANY, FieldUse, OperatorSpec, Parameter
from edgert.operators.base.fields import field_name
from edgert.operators.base.inline import Fields, Inlinable, Lines, TimeUse
from edgert.operators.base.logic import Build, Emission, Logic, Now, PlainMessage


def _sink_topic(text: str) -> TopicTemplate:
    return TopicTemplate(text, sink=True)


def _payload_field(name: str) -> str:
    return field_name(name) if name else ""


def _check_ship(node: Node, flow: Flow) -> Iterable[Problem]:
    path = f"operators.{node.name}"
    for name in node.inputs:
        if name in flow.nodes and flow.nodes[name].type != "tumbling_window":
            expected = "a tumbling_window as input (its aggregates are what gateways can merge)"
            yield Problem(f"{path}.input", expected, f"{name!r}, which is a {flow.nodes[name].type}")
    others = [n.name for n in flow.nodes.values() if n.type == "ship" and n.name != node.name]
    if others:
        yield Problem(f"{path}.type", "one ship per flow (a flow has one landing table)", f"also {', '.join(others)}")


def _check_publish(node: Node, flow: Flow) -> Iterable[Problem]:
    if node.parameters["payload_field"] and node.parameters["codec"] != "json":
        yield Problem(f"operators.{node.name}.codec", "none beside payload_field", node.parameters["codec"])


def _publish_fields(node: Node) -> FieldUse:
    alone, topic = node.parameters["payload_field"], node.parameters["topic"]
    named = frozenset(topic.names)
    return FieldUse(reads=named | {alone} if alone else None, names=named)


_UNWRITABLE = (ValueError, TypeError, OverflowError)


class Encoder(Protocol):
    """The half of a codec that a sink needs."""

    def encode(self, rows: Sequence[Row]) -> list[bytes]:
        """One payload per row."""
        ...


@runtime_checkable
class RowEncoder(Protocol):
    """A codec of this library."""

    @property
    def encode_row(self) -> Callable[[Row], bytes]:
        """Function that makes the payload of one row."""
        ...


@runtime_checkable
class RecordEncoder(Protocol):
    """A `RowEncoder` that writes some records faster than rows."""

    def record(self, fields: Sequence[str]) -> Callable[..., Any] | None:
        """Makes of values of `fields`, in that order, what `encode_row` writes as it would the row; None if there is
        nothing of the kind for such names."""
        ...


class PublishSink(Inlinable):
    """One message per row; a row that cannot be written is counted and lost alone."""

    def __init__(self, topic: TopicTemplate, codec: Encoder, qos: int = 1, retain: bool = False) -> None:
        super().__init__()
        self.topic, self._codec, self._qos, self._retain = topic, codec, qos, retain

    def process(self, batch: Batch | RawBatch, source: int, now: Now) -> Sequence[Emission]:
        assert isinstance(batch, Batch)
        try:
            self.messages += self._written(batch.rows)
        except _UNWRITABLE:
            for row in batch.rows:
                try:
                    self.messages += self._written([row])
                except _UNWRITABLE as error:
                    self.drops["unwritable row"] += 1
                    self.lost.append((row, f"unwritable row: {error}"))
        return ()

    def _written(self, rows: list[Row]) -> list[PlainMessage]:
        payloads = self._codec.encode(rows)
        if len(payloads) != len(rows):  # a codec that an installed package adds
            raise ValueError(f"expected {len(rows)} payloads, got {len(payloads)}")
        same = (repeat(self._qos), repeat(self._retain), repeat(""))
        return list(zip(self.topic.fill(rows), payloads, *same, strict=False))

    def inlines(self, source: int) -> bool:
        return isinstance(self._codec, RowEncoder) and type(self._codec).__module__.startswith("edgert.")

    def inline(self, row: Fields, source: int) -> Lines:
        assert isinstance(self._codec, RowEncoder)
        codec = self._codec
        record = codec.record(tuple(row.variables)) if isinstance(codec, RecordEncoder) else None
        names: Mapping[str, Any] = {"record": record}
        shown = f"record({', '.join(row.variables.values())})"
        if record is None:
            shown, names = row_display(row.variables)
        given = {name: row.of(name) for name in self.topic.names}
        lines = Lines(
            check=[f"payload = encode({shown})"],
            effect=[f"say((topic, payload, {self._qos}, {self._retain}, ''))"],
            setup=["say = sink.messages.append"],
            constants={"sink": self, "encode": codec.encode_row, **names},
        )
        if not given:
            return replace(lines, constants={**lines.constants, "topic": self.topic.filled({})})
        if all(variable in row.captured for variable in given.values()):
            levels = {name: row.captured[variable] for name, variable in given.items()}
            filled = self.topic.filled
            return replace(lines, of_topic={"topic": lambda topic: filled({n: topic[at] for n, at in levels.items()})})
        topic, known = self.topic.inline(given)
        return replace(lines, check=[f"topic = {topic}", *lines.check], constants={**lines.constants, **known})

    def time_by(self, source: int) -> TimeUse:
        return "ignores"


class Ship(Logic):
    """Holds contributions until they are taken: by the checkpoint, or by another thread between two of them."""

    repeatable = False

    def __init__(self) -> None:
        super().__init__()
        self.rows: deque[Row] = deque()
        """Rows, added at one end and taken at the other in single steps, so that a turn may be under way meanwhile."""

    def process(self, batch: Batch | RawBatch, source: int, now: Now) -> Sequence[Emission]:
        assert isinstance(batch, Batch)
        self.rows.extend(batch.rows)
        return ()

    def take(self) -> list[Row]:
        """The contributions since the last call."""
        rows = self.rows
        return [rows.popleft() for _ in range(len(rows))]

    def give_back(self, rows: Sequence[Row]) -> None:
        """Takes back rows that could not be written."""
        self.rows.extendleft(reversed(rows))


def make_publish(build: Build) -> PublishSink:
    """The logic of one `publish`."""
    p = build.node.parameters
    alone = p["payload_field"]
    return PublishSink(p["topic"], FieldAlone(alone) if alone else make_codec(p["codec"]), p["qos"], p["retain"])


SPECS = (
    OperatorSpec(
        type="publish",
        role="sink",
        check=_check_publish,
        fields=_publish_fields,
        logic=make_publish,
        divides_by=lambda node, keys: tuple((name, ANY) for name in node.parameters["topic"].names),
        doc="Publishes each row over MQTT at once, to the broker that the flow reads from; may repeat after a crash.",
        parameters=(
            Parameter("topic", "string", "Topic; `{field}` is filled from the row.", parse=_sink_topic),
            Parameter(
                "codec",
                "string",
                "How a row is written: `json`, `senml`, `value` (the field `value` alone), or one that an installed "
                "package adds.",
                default="json",
                parse=codec_name,
            ),
            Parameter("qos", "integer", "MQTT quality of service.", 1, minimum=0, maximum=1),
            Parameter("retain", "boolean", "Ask the broker to retain the message.", False),
            Parameter(
                "payload_field",
                "string",
                "Send the value of this field and nothing else: a string as it is, another value as JSON.",
                "",
                parse=_payload_field,
            ),
        ),
    ),
    OperatorSpec(
        type="ship",
        role="sink",
        doc="Ships a window's contributions to the central tables, exactly once, or as the flow's `delivery` says.",
        check=_check_ship,
        fields=lambda node: FieldUse(),
        logic=lambda build: Ship(),
        divides_by=lambda node, keys: (),
        ordered=False,
        reads_port=1,
    ),
)
