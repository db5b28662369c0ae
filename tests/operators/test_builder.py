"""Flows in Python are the same documents."""

from __future__ import annotations

import pytest

from edgert.core.errors import DocumentError
from edgert.expr import field
from edgert.flow.spec import OperatorSpec
from edgert.operators.builder import agg, stream
from edgert.operators.registry import REGISTRY, registry_of


def test_the_builder_makes_the_document_that_one_would_write() -> None:
    flow = (
        stream("city-air", description="Air", checkpoint_interval_s=1)
        .mqtt_source("city/{source}/sense", codec="senml", name="readings")
        .filter(field("temperature").between(-12.5, 43.1), name="valid")
        .map({"two words": "humidity"}, fahrenheit=field("temperature") * 9 / 5 + 32, one=1)
        .select("fahrenheit", "room")
        .key_by("source", "room", key_types={"room": "long"})
        .tumbling_window(60, {"n": agg.count(), "mean_f": agg.mean("fahrenheit")}, lateness_s=5)
        .ship(name="central")
        .build()
    )
    assert flow.document == {
        "name": "city-air",
        "description": "Air",
        "checkpoint": {"interval_s": 1},
        "operators": {
            "readings": {"type": "mqtt_source", "topic": "city/{source}/sense", "codec": "senml"},
            "valid": {"type": "filter", "input": "readings", "where": "-12.5 <= temperature <= 43.1"},
            "map": {
                "type": "map",
                "input": "valid",
                "set": {"two words": "humidity", "fahrenheit": "temperature * 9 / 5 + 32", "one": "1"},
            },
            "select": {"type": "select", "input": "map", "fields": ["fahrenheit", "room"]},
            "key-by": {
                "type": "key_by",
                "input": "select",
                "keys": ["source", "room"],
                "key_types": {"room": "long"},
            },
            "tumbling-window": {
                "type": "tumbling_window",
                "input": "key-by",
                "size_s": 60,
                "aggregates": {"n": "count()", "mean_f": "mean(fahrenheit)"},
                "lateness_s": 5,
            },
            "central": {"type": "ship", "input": "tumbling-window"},
        },
    }


def test_an_aggregate_of_an_odd_name_is_written_with_backticks() -> None:
    assert [agg.count(), agg.mean("ENERGY.Power"), agg.max("Total Power"), agg.min(field("a b"))] == [
        "count()", "mean(ENERGY.Power)", "max(`Total Power`)", "min(`a b`)",
    ]  # fmt: skip


def test_a_stream_in_a_variable_branches_and_automatic_names_are_numbered() -> None:
    readings = stream("f").mqtt_source("a/{source}")
    readings.filter("t > 1").publish("hot")
    readings.filter("t < 0").publish("cold")
    assert readings.build().edges() == (
        ("mqtt-source", "filter"),
        ("mqtt-source", "filter-2"),
        ("filter", "publish"),
        ("filter-2", "publish-2"),
    )


def test_faults_are_reported_as_for_a_document() -> None:
    with pytest.raises(DocumentError) as caught:
        stream("f").mqtt_source("a/{source}", qos=5).filter("t >", name="valid").build()
    assert [p.path for p in caught.value.problems] == [
        "operators.mqtt-source.qos",
        "operators.valid.where",
        "operators.valid",
    ]


def test_a_name_is_given_once() -> None:
    readings = stream("f").mqtt_source("a/{source}", name="a")
    with pytest.raises(ValueError, match="not taken, got 'a' again"):
        readings.filter("t > 1", name="a")


def test_operators_of_others_are_applied_by_type() -> None:
    registry = registry_of([*REGISTRY.values(), OperatorSpec("union", "Many.", many_inputs=True)])
    draft = stream("f", registry=registry)
    a, b = draft.mqtt_source("a/{source}"), draft.source("mqtt_source", topic="b/{source}")
    flow = a.apply("union", b, name="both").publish("x").build()
    assert flow.nodes["both"].inputs == ("mqtt-source", "mqtt-source-2")
    assert flow.document["operators"]["both"] == {"type": "union", "inputs": ["mqtt-source", "mqtt-source-2"]}


def test_every_operator_of_ours_has_a_method() -> None:
    air = stream("air").mqtt_source("city/{source}/sense")
    guess = air.predict("air-quality", "t", "h", output="expected")
    mean = air.key_by("source").count_window(10, {"mean_q": agg.mean("q")})
    flow = guess.join_latest(mean, "mean_q", missing="drop").publish("x").build()
    plain = flow.document["operators"]
    assert plain["predict"]["fields"] == ["t", "h"]
    assert plain["join-latest"]["inputs"] == ["predict", "count-window"]
    assert set(REGISTRY) <= set(dir(air))
    assert all(callable(getattr(air, name)) for name in REGISTRY)


def test_values_without_a_name_are_for_parameters_without_a_default_and_then_for_the_others() -> None:
    air = stream("air").mqtt_source("city/{source}/sense")
    other = air.filter(True, name="all")
    air.train_regression("t", "h", "p", size=10, name="fit")
    air.bloom_filter("room", mode="first_seen", name="new")
    air.annotate({"a": {"room": "hall"}}, name="known")
    air.join_observations(other, fields=("t", "h"), timeout_s=5, name="both")
    plain = air.document()["operators"]
    assert plain["mqtt-source"] == {"type": "mqtt_source", "topic": "city/{source}/sense"}
    assert plain["all"]["where"] == "true"
    assert (plain["fit"]["target"], plain["fit"]["fields"], plain["fit"]["size"]) == ("t", ["h", "p"], 10)
    assert plain["new"]["fields"] == ["room"]
    assert plain["known"]["table"] == {"a": {"room": "hall"}}
    assert (plain["both"]["inputs"], plain["both"]["fields"]) == (["mqtt-source", "all"], ["t", "h"])


def test_a_method_that_no_operator_has_and_arguments_that_it_does_not_take_are_errors() -> None:
    air = stream("air").mqtt_source("a/{source}")
    with pytest.raises(AttributeError, match=r"expected an operator type \(.*filter.*\), got flter"):
        air.flter("t > 1")
    with pytest.raises(AttributeError, match="expected a source, got filter"):
        stream("air").filter("t > 1")
    with pytest.raises(AttributeError, match=r"expected an aggregate \(count, .*\), got median"):
        agg.median("t")
    with pytest.raises(TypeError, match="filter: expected one value of where, got two"):
        air.filter("t > 1", where="t > 2")
    with pytest.raises(TypeError, match="ship: expected at most 0 values, got 1"):
        air.ship("x")
    with pytest.raises(DocumentError, match="lateness"):
        air.tumbling_window(60, {"n": agg.count()}, latenes_s=5).publish("x").build()
