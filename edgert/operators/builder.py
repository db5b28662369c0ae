"""Flows in Python: one method per operator of ours, on top of the generic `edgert.flow.builder`.

    from edgert.expr import field
    from edgert.operators.builder import agg, stream

    flow = (
        stream("city-air")
        .mqtt_source("city/{source}/sense", codec="senml", name="readings")
        .filter(field("temperature").between(-12.5, 43.1))
        .key_by("source")
        .tumbling_window(60, {"n": agg.count(), "mean_t": agg.mean("temperature")})
        .ship()
        .build()
    )

Every method takes `name=`; without it an operator is called like its type, numbered. A stream kept in a variable can
be read by several operators. Optional parameters of an operator are passed by keyword, as in the document.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from edgert.expr.build import Term
from edgert.expr.text import to_text
from edgert.expr.tree import Literal
from edgert.flow import builder
from edgert.flow.spec import Registry
from edgert.operators.registry import REGISTRY

Condition = Term | str | bool
Value = Term | str | float | bool | None


class agg:  # noqa: N801 - reads as a namespace
    """Aggregates of a window, as a document writes them."""

    @staticmethod
    def count(field: str = "") -> str:
        """Rows, or rows in which `field` has a value."""
        return f"count({field})"

    @staticmethod
    def sum(field: str) -> str:
        """Sum of a numeric field."""
        return f"sum({field})"

    @staticmethod
    def mean(field: str) -> str:
        """Arithmetic mean."""
        return f"mean({field})"

    @staticmethod
    def variance(field: str) -> str:
        """Sample variance."""
        return f"variance({field})"

    @staticmethod
    def min(field: str) -> str:
        """Smallest value."""
        return f"min({field})"

    @staticmethod
    def max(field: str) -> str:
        """Greatest value."""
        return f"max({field})"

    @staticmethod
    def distinct(field: str) -> str:
        """How many different values, estimated."""
        return f"distinct({field})"

    @staticmethod
    def distinct_set(field: str) -> str:
        """The same of a set that can be intersected and subtracted later."""
        return f"distinct_set({field})"

    @staticmethod
    def quantiles(field: str) -> str:
        """5 %, 50 % and 95 % quantile, estimated."""
        return f"quantiles({field})"


@dataclass(frozen=True, slots=True)
class Stream(builder.Stream):
    """The output of one operator; each method adds an operator that reads it."""

    def filter(self, where: Condition, *, name: str = "", **parameters: Any) -> Stream:
        """Keep the rows for which `where` (an expression, or its text) is true."""
        return self.apply("filter", name=name, where=_text(where), **parameters)

    def map(self, set: Mapping[str, Value] | None = None, /, *, name: str = "", **fields: Value) -> Stream:  # noqa: A002
        """Add or replace fields, by keyword or (for names that Python lacks) in a mapping."""
        settings = {key: _text(value) for key, value in {**(set or {}), **fields}.items()}
        return self.apply("map", name=name, set=settings)

    def select(self, *fields: str, name: str = "") -> Stream:
        """Keep only these fields, and `time` and `source`."""
        return self.apply("select", name=name, fields=fields)

    def annotate(self, table: Mapping[str, Mapping[str, Any]], *, name: str = "", **parameters: Any) -> Stream:
        """Add the fields that `table` has for the value of a field (unsaid: `source`)."""
        return self.apply("annotate", name=name, table=table, **parameters)

    def key_by(self, *keys: str, name: str = "", key_types: Mapping[str, str] | None = None) -> Stream:
        """Keep the next window apart by these fields."""
        types = {"key_types": dict(key_types)} if key_types else {}
        return self.apply("key_by", name=name, keys=keys, **types)

    def tumbling_window(
        self, size_s: float, aggregates: Mapping[str, str], *, name: str = "", **parameters: Any
    ) -> Stream:
        """Aggregate per key over event-time windows of `size_s` seconds."""
        return self.apply("tumbling_window", name=name, size_s=size_s, aggregates=aggregates, **parameters)

    def count_window(self, size: int, aggregates: Mapping[str, str], *, name: str = "") -> Stream:
        """Aggregate every `size` rows of a key."""
        return self.apply("count_window", name=name, size=size, aggregates=aggregates)

    def predict(self, model: str, *fields: str, name: str = "", **parameters: Any) -> Stream:
        """Add the prediction of a model that looks at `fields`."""
        return self.apply("predict", name=name, model=model, fields=fields, **parameters)

    def train_regression(self, target: str, *fields: str, size: int, name: str = "", **parameters: Any) -> Stream:
        """Fit a model that predicts `target` from `fields` to every `size` rows of a key."""
        return self.apply("train_regression", name=name, target=target, fields=fields, size=size, **parameters)

    def train_tree(self, target: str, *fields: str, name: str = "", **parameters: Any) -> Stream:
        """Fit a tree that tells the class `target` from `fields` to every so many rows of a key."""
        return self.apply("train_tree", name=name, target=target, fields=fields, **parameters)

    def join_latest(self, other: Stream, *fields: str, name: str = "", **parameters: Any) -> Stream:
        """Add `fields` of the newest row of `other` that has the same key."""
        return self.apply("join_latest", other, name=name, fields=fields, **parameters)

    def join_observations(self, *others: Stream, fields: Sequence[str], name: str = "", **parameters: Any) -> Stream:
        """Make one row of the rows of this stream and `others` that have the same key and time."""
        return self.apply("join_observations", *others, name=name, fields=fields, **parameters)

    def kalman(self, field: str, *, name: str = "", **parameters: Any) -> Stream:
        """Add `field` with the noise of its sensor taken out."""
        return self.apply("kalman", name=name, field=field, **parameters)

    def sliding_regression(self, field: str, *, name: str = "", **parameters: Any) -> Stream:
        """Add where the line through the last values of `field` will be."""
        return self.apply("sliding_regression", name=name, field=field, **parameters)

    def interpolate(self, field: str, *, name: str = "", **parameters: Any) -> Stream:
        """Fill `field` where it is null."""
        return self.apply("interpolate", name=name, field=field, **parameters)

    def bloom_filter(self, *fields: str, name: str = "", **parameters: Any) -> Stream:
        """Keep the rows whose key (`fields`; unsaid: `source`) is known or new."""
        named = {"fields": fields} if fields else {}
        return self.apply("bloom_filter", name=name, **named, **parameters)

    def distinct_count(self, field: str, *, name: str = "", **parameters: Any) -> Stream:
        """Add how many different values `field` has had."""
        return self.apply("distinct_count", name=name, field=field, **parameters)

    def second_moment(self, field: str, *, name: str = "", **parameters: Any) -> Stream:
        """Add the second frequency moment of `field`."""
        return self.apply("second_moment", name=name, field=field, **parameters)

    def ship(self, *, name: str = "", **parameters: Any) -> Stream:
        """Ship a window's results to the central tables."""
        return self.apply("ship", name=name, **parameters)

    def publish(self, topic: str, *, name: str = "", **parameters: Any) -> Stream:
        """Publish each row over MQTT."""
        return self.apply("publish", name=name, topic=topic, **parameters)


@dataclass(frozen=True, slots=True)
class FlowBuilder:
    """A flow that has no operator yet, or gets another source."""

    draft: builder.Draft

    def mqtt_source(self, topic: str, *, name: str = "", **parameters: Any) -> Stream:
        """Take in the messages of a topic template."""
        return self.source("mqtt_source", name=name, topic=topic, **parameters)

    def source(self, type: str, *, name: str = "", **parameters: Any) -> Stream:  # noqa: A002
        """A source of any registered type."""
        return Stream(self.draft, self.draft.add(type, name, (), parameters))


def stream(
    name: str,
    *,
    description: str = "",
    delivery: str = "",
    latency: str = "",
    checkpoint_interval_s: float | None = None,
    on_error: Mapping[str, Any] | None = None,
    outbox: Mapping[str, str] | None = None,
    registry: Registry = REGISTRY,
) -> FlowBuilder:
    """Begin the flow `name`. `delivery`: "exactly-once" (if unsaid) or "at-least-once". `latency`, `on_error` and
    `outbox` as the document has them, for instance `{"action": "dead-letter", "topic": "bad/{operator}"}` and
    `{"full": "stop-acknowledging"}`."""
    checkpoint = {} if checkpoint_interval_s is None else {"interval_s": checkpoint_interval_s}
    tables = (checkpoint, dict(on_error or {}), dict(outbox or {}))
    return FlowBuilder(builder.Draft(name, registry, description, delivery, latency, *tables))


def _text(value: Value) -> str:
    """An expression's text: a string is taken for an expression, another constant is written as one."""
    if isinstance(value, str):
        return value
    return value.to_document() if isinstance(value, Term) else to_text(Literal(value))
