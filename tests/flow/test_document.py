"""Documents: what is accepted, and that all that is wrong is said at once, each with its path."""

from __future__ import annotations

import json
import tomllib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgert.core.errors import DocumentError
from edgert.core.toml import to_toml
from edgert.expr.tree import Expression
from edgert.flow.document import MAX_BYTES, from_plain, load, read_untrusted, to_json
from edgert.flow.graph import Flow
from edgert.operators.registry import REGISTRY
from tests.examples import examples

CITY = """
name = "city-air"
[checkpoint]
interval_s = 1
[operators.readings]
type = "mqtt_source"
topic = "city/{source}/sense"
codec = "senml"
[operators.valid]
type = "filter"
input = "readings"
where = "temperature >= -12.5 and temperature <= 43.1"
[operators.derived]
type = "map"
input = "valid"
set = { fahrenheit = "temperature * 9 / 5 + 32" }
[operators.by_sensor]
type = "key_by"
input = "derived"
keys = ["source"]
[operators.minute]
type = "tumbling_window"
input = "by_sensor"
size_s = 60
aggregates = { n = "count()", mean_f = "mean(fahrenheit)" }
[operators.central]
type = "ship"
input = "minute"
"""


def city() -> dict[str, Any]:
    return read_untrusted(CITY)


def changed(**operators: dict[str, Any] | None) -> dict[str, Any]:
    """The document with some operators' tables updated; a value None takes a key away."""
    document = city()
    for name, changes in operators.items():
        table = {**document["operators"].get(name, {}), **(changes or {})}
        document["operators"][name] = {k: v for k, v in table.items() if v is not None}
    return document


def problems(document: Any) -> dict[str, str]:
    """path → "expected ..., got ..."."""
    with pytest.raises(DocumentError) as caught:
        load(document, REGISTRY) if isinstance(document, str | bytes) else from_plain(document, REGISTRY)
    return {p.path: f"expected {p.expected}, got {p.got}" for p in caught.value.problems}


def accepted(document: dict[str, Any]) -> Flow:
    return from_plain(document, REGISTRY)


def test_toml_and_json_give_the_same_flow() -> None:
    flow = load(CITY, REGISTRY)
    for text in (to_json(city()), json.dumps(city()).encode(), to_toml(city()), CITY.encode()):
        other = load(text, REGISTRY)
        assert other.document == flow.document
        assert [(n.name, n.type, n.inputs, set(n.parameters)) for n in other.nodes.values()] == [
            (n.name, n.type, n.inputs, set(n.parameters)) for n in flow.nodes.values()
        ]
    assert flow.checkpoint_interval_s == 1.0
    assert list(flow.nodes) == ["readings", "valid", "derived", "by_sensor", "minute", "central"]
    assert isinstance(flow.nodes["valid"].parameters["where"], Expression)
    assert flow.nodes["readings"].parameters["out_of_order_s"] == 2.0, "defaults are filled in"
    assert flow.nodes["minute"].inputs == ("by_sensor",)


def test_operators_may_stand_in_any_order() -> None:
    document = city()
    document["operators"] = dict(reversed(document["operators"].items()))
    assert list(accepted(document).nodes) == ["readings", "valid", "derived", "by_sensor", "minute", "central"]


def test_a_document_with_five_errors_shows_all_five_with_their_paths() -> None:
    document = changed(
        readings={"qos": 7},
        valid={"where": "temperature >="},
        derived={"inptu": "valid", "input": None},
        minute={"size_s": "60"},
    )
    document["name"] = "City Air"
    assert problems(document) == {
        "name": "expected a name of 1 to 63 small letters, digits, _ and -, beginning with a letter or digit, "
        "got 'City Air'",
        "operators.readings.qos": "expected an integer from 0 to 2, got 7",
        "operators.valid.where": "expected a value, got the end at column 15",
        "operators.derived.inptu": "expected one of type, input, set, on_error, instances, slot (did you mean input?), "
        "got an unknown key",
        "operators.derived.input": "expected the name of an operator, got nothing",
        "operators.minute.size_s": "expected a number from 0.001 to 31622400 (s), got '60'",
        # what follows from the missing input is a fault of the graph as it stands
        "operators.valid": "expected an operator that reads from it (in the end a sink: publish, ship), got none",
    }
    with pytest.raises(DocumentError, match=r"flow document: 7 errors\n  name: expected a name"):
        from_plain(document, REGISTRY)


@pytest.mark.parametrize(
    ("changes", "path", "message"),
    [
        ({"valid": {"type": "filtre"}}, "operators.valid.type", "(did you mean filter?), got 'filtre'"),
        ({"valid": {"type": None}}, "operators.valid.type", "got nothing"),
        ({"valid": {"input": "reading"}}, "operators.valid.input", "(did you mean readings?), got 'reading'"),
        ({"valid": {"input": ["readings"]}}, "operators.valid.input", "the name of an operator, got ['readings']"),
        ({"valid": {"input": ["readings", "valid"]}}, "operators.valid.input",
         "(of several only these take rows, by inputs = [...]: join_latest, join_observations), got ['readings'"),
        ({"valid": {"type": "join_latest", "input": ["readings", "valid"]}}, "operators.valid.input",
         "the name of one operator, or inputs = [...] with a list of names, got ['readings', 'valid']"),
        ({"valid": {"inputs": ["readings"]}}, "operators.valid.inputs", "(did you mean input?), got an unknown key"),
        ({"valid": {"input": "central"}}, "operators.valid.input", "gives rows on, got 'central', which is a sink"),
        ({"valid": {"input": "valid"}}, "operators.valid.input", "no cycle, got valid <- valid"),
        ({"valid": {"input": "by_sensor"}}, "operators.by_sensor.input",
         "no cycle, got by_sensor <- derived <- valid <- by_sensor"),
        ({"readings": {"input": "valid"}}, "operators.readings.input", "no input (this is a source), got 'valid'"),
        ({"extra": {"type": "filter", "input": "valid", "where": "a > 1"}}, "operators.extra", "reads from it"),
        ({"valid": {"where": "1 + 1"}}, "operators.valid.where", "a boolean as condition, got a number at column 1"),
        ({"valid": {"where": 3}}, "operators.valid.where", "a string, got 3"),
        ({"valid": {"where": None}}, "operators.valid.where", "a string, got nothing"),
        ({"valid": {"on_error": "keep"}}, "operators.valid.on_error", "one of drop, got 'keep'"),
        ({"derived": {"set": {"a": "1 +", "f": "1"}}}, "operators.derived.set.a", "a value, got the end at column 4"),
        ({"derived": {"set": {"fahrenheit": 1}}}, "operators.derived.set.fahrenheit", "a string, got 1"),
        ({"derived": {"set": {}}}, "operators.derived.set", "at least one field = expression, got none"),
        ({"derived": {"set": {"time": "1"}}}, "operators.derived.set", "other than time and source"),
        ({"by_sensor": {"keys": []}}, "operators.by_sensor.keys", "at least one field, got none"),
        ({"by_sensor": {"keys": ["a", "a"]}}, "operators.by_sensor.keys", "each field once, got a twice"),
        ({"by_sensor": {"keys": ["a", 1]}}, "operators.by_sensor.keys[1]", "a string, got 1"),
        ({"by_sensor": {"keys": ["a", ""]}}, "operators.by_sensor.keys[1]", "1 to 255 characters, got 0"),
        ({"by_sensor": {"key_types": {"sourc": "string"}}}, "operators.by_sensor.key_types.sourc", "one of the keys"),
        ({"by_sensor": {"key_types": {"source": "text"}}}, "operators.by_sensor.key_types", "string, double, long"),
        ({"central": {"input": "valid"}}, "operators.central.input", "a tumbling_window as input"),
        ({"minute": {"size_s": float("nan")}}, "operators.minute.size_s", "a number from"),
        ({"minute": {"size_s": 10**400}}, "operators.minute.size_s", "a number from"),
        ({"minute": {"size_s": True}}, "operators.minute.size_s", "a number from"),
        ({"readings": {"qos": 1.5}}, "operators.readings.qos", "an integer from 0 to 2, got 1.5"),
        ({"Bad Name": {"type": "ship", "input": "minute"}}, "operators.Bad Name", "a name of 1 to 63"),
    ],
)  # fmt: skip
def test_each_kind_of_fault_is_found(changes: dict[str, Any], path: str, message: str) -> None:
    found = problems(changed(**changes))
    assert path in found, found
    assert message in found[path]


@pytest.mark.parametrize(
    ("update", "path", "message"),
    [
        ({"name": None}, "name", "got None"),
        ({"nmae": "x"}, "nmae", "(did you mean name?)"),
        ({"description": 3}, "description", "a string"),
        ({"checkpoint": 3}, "checkpoint", "a table, got 3"),
        ({"checkpoint": {"interval": 3}}, "checkpoint.interval", "(did you mean interval_s?)"),
        ({"checkpoint": {"interval_s": 0}}, "checkpoint.interval_s", "0.1 to 3600"),
        ({"operators": {}}, "operators", "at least one source and one sink, got {}"),
        ({"operators": [1]}, "operators", "a table"),
        ({"operators": {"a": 3}}, "operators.a", "a table with a type, got 3"),
        ({"operators": {f"a{i}": {} for i in range(501)}}, "operators", "at most 500 operators, got 501"),
    ],
)
def test_each_fault_outside_the_operators_is_found(update: dict[str, Any], path: str, message: str) -> None:
    assert message in problems({**city(), **update})[path]


def test_a_flow_without_a_source_is_refused() -> None:
    document = changed(valid={"input": "by_sensor"})
    del document["operators"]["readings"]
    assert problems(document)["operators"] == "expected at least one source (mqtt_source), got none"


def test_a_field_that_a_select_took_away_cannot_be_read_behind_it() -> None:
    document = changed(
        narrow={"type": "select", "input": "derived", "fields": ["humidity"]}, by_sensor={"input": "narrow"}
    )
    assert problems(document) == {
        "operators.minute": "expected fields that arrive here (humidity, source, time), got 'fahrenheit'"
    }
    document["operators"]["narrow"]["fields"] = ["fahrenheit"]
    accepted(document)


@pytest.mark.parametrize(
    ("text", "path", "message"),
    [
        ("name = \n", "line 1, column 8", "TOML (Invalid value)"),
        ("name = 'a'\nname = 'b'", "line 2", "TOML (Cannot overwrite a value)"),
        ('{"name": }', "line 1, column 10", "JSON (Expecting value)"),
        ('{"a": 1, "a": 2}', "document", "each key once in a table, got 'a' twice"),
        ('{"a": NaN}', "document", "finite numbers, got NaN"),
        ('{"a": ' + "[" * 100_000, "document", "levels of nesting"),
        ('{"a": ' + "[" * 40 + "]" * 40 + "}", "document", "at most 32 levels of nesting, got more"),
        ("a = " + "[" * 100_000, "document", "levels of nesting"),
        (".".join("a" * 60) + " = 1", "document", "at most 32 levels of nesting, got more"),
        (".".join("a" * 100_000) + " = 1", "line 1", "at most 64 dots in a key, got 99999"),
        ('{"a": ' + "9" * 100_000 + "}", "document", "numbers of reasonable length"),
        ('{"a": "\\ud800"}', "document", "whole surrogate pairs"),
        ('{"\\uDFFF": 1, "a": "\\ud83d\\ude00"}', "document", "whole surrogate pairs"),
        ("a = " + "9" * 100_000, "document", "TOML with values in range"),
        ("a = 2020-99-99", "line 1, column 9", "TOML (Expected"),
        (b"\nname = '\xff'", "line 2", "the encoding UTF-8"),
        ("#" * (MAX_BYTES + 1), "document", "at most 262144 bytes, got 262145"),
        ("é" * MAX_BYTES, "document", "at most 262144 bytes"),
        ("", "name", "got nothing"),
        ("a = 1979-05-27", "a", "an unknown key"),
    ],
    ids=range(20),
)
def test_a_document_that_is_no_document_is_refused_with_the_place(text: str | bytes, path: str, message: str) -> None:
    found = problems(text)
    assert path in found, found
    assert message in found[path]


@pytest.mark.parametrize("document", [[], "x", None, 3])
def test_a_plain_document_that_is_no_table_is_refused(document: Any) -> None:
    with pytest.raises(DocumentError, match="document: expected a table, got"):
        from_plain(document, REGISTRY)


def test_keys_that_are_no_strings_are_refused_where_python_lets_them_in() -> None:
    document = city()
    document["operators"][3] = {"type": "ship", "input": "minute"}
    assert "operators.3" in problems(document)


def test_the_report_of_very_many_faults_ends() -> None:
    found = problems({**city(), **{f"key{i}": 1 for i in range(1000)}})
    assert len(found) == 101
    assert "900 more" in found["document"]


plain_values = st.recursive(
    st.one_of(st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.text()),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=5), inner, max_size=3)),
    max_leaves=8,
)


@settings(max_examples=examples(60, 200), deadline=None)
@given(st.dictionaries(st.text(max_size=5), plain_values, max_size=4))
def test_what_is_written_as_toml_or_json_is_read_as_it_was(document: dict[str, Any]) -> None:
    assert tomllib.loads(to_toml(document)) == document
    assert json.loads(to_json(document)) == document


pieces = st.one_of(plain_values, st.sampled_from([*REGISTRY, "readings", "valid", "a > 1", "minute"]))


@settings(max_examples=examples(80, 300), deadline=None)
@given(
    st.sampled_from(["name", "checkpoint", "operators", "x"]),
    st.sampled_from(["readings", "valid", "derived", "by_sensor", "minute", "central"]),
    st.sampled_from(["type", "input", "inputs", "where", "set", "keys", "size_s", "aggregates", "topic", "fields"]),
    pieces,
    st.booleans(),
)
def test_whatever_stands_in_a_document_it_is_a_flow_or_a_document_error(
    top: str, operator: str, key: str, value: Any, deep: bool
) -> None:
    document = city()
    if deep:
        document["operators"][operator][key] = value
    else:
        document[top] = value
    try:
        from_plain(document, REGISTRY)
    except DocumentError as error:
        assert error.problems  # noqa: PT017 - it need not raise


@settings(max_examples=examples(60, 200), deadline=None)
@given(st.one_of(st.binary(max_size=80), st.text(max_size=80), st.text("[]{}\"'=.,:\n a1", max_size=80)))
def test_any_bytes_are_a_flow_or_a_document_error(text: str | bytes) -> None:
    with pytest.raises(DocumentError):
        load(text, REGISTRY)


def test_every_aggregate_is_checked_by_itself() -> None:
    document = {
        "name": "f",
        "operators": {
            "in": {"type": "mqtt_source", "topic": "x"},
            "w": {
                "type": "tumbling_window",
                "input": "in",
                "size_s": 1,
                "aggregates": {"day": "count()", "a__b": "count()", "x y": "count()", "m": "median(v)", "n": "count()"},
            },
            "out": {"type": "ship", "input": "w"},
        },
    }
    with pytest.raises(DocumentError) as refused:
        from_plain(document, REGISTRY)
    assert [p.path for p in refused.value.problems] == [
        f"operators.w.aggregates.{column}" for column in ("day", "a__b", "x y", "m")
    ]
