"""Fields that no payload ever had."""

from __future__ import annotations

import json

import pytest

from edgert.codecs import make
from edgert.core.batch import RawBatch
from edgert.flow.document import from_plain
from edgert.flow.physical import fields_named
from edgert.operators.registry import REGISTRY
from edgert.operators.sources.unseen_fields import ENOUGH_LOOKS, ENOUGH_S, MOST_HITS, UnseenFields


def watch(*named: str) -> UnseenFields:
    return UnseenFields(frozenset(named), make("json"), lambda topic: {"source": "x"})


def fed(watching: UnseenFields, seconds: int, *payloads: bytes) -> None:
    for second in range(seconds + 1):
        watching.look(RawBatch(["t"] * len(payloads), list(payloads), float(second), 1.7e9))


def test_a_misspelt_field_is_named_after_a_while_with_those_seen() -> None:
    watching = watch("tmep", "hum")
    fed(watching, int(ENOUGH_S) - 1, b'{"temp":1,"hum":2}')
    assert watching.never_seen(ENOUGH_S - 1) == []
    fed(watching, ENOUGH_LOOKS, b'{"temp":1,"hum":2}')
    assert watching.never_seen(ENOUGH_S) == ["tmep"]
    assert {"temp", "hum"} <= set(watching.seen)


def test_a_field_that_comes_without_a_usable_value_is_told_apart() -> None:
    watching = watch("temperature", "lux", "temp")
    fed(watching, int(ENOUGH_S), b'{"rssi": -52, "temperature": nan, "hum": 1}')
    assert (watching.never_seen(ENOUGH_S), list(watching.came)) == (["lux", "temp", "temperature"], ["temperature"])
    assert watching.came == {"temperature": "nan"}
    fed(watching, 1, b'{"rssi": -52, "temperature": 21.5}')
    assert (watching.never_seen(ENOUGH_S), list(watching.came)) == (["lux", "temp"], [])


def test_a_field_that_is_always_null_has_no_usable_value() -> None:
    watching = watch("temperature", "env.hum")
    fed(watching, int(ENOUGH_S), b'{"temperature": null, "env": {"hum": null}}')
    assert watching.never_seen(ENOUGH_S) == ["env.hum", "temperature"]
    assert watching.came == {"temperature": "null", "env.hum": "null"}
    fed(watching, 1, b'{"temperature": null, "env": {"hum": 40}}')
    assert (watching.never_seen(ENOUGH_S), list(watching.came)) == (["temperature"], ["temperature"])


def test_a_field_that_is_an_array_or_an_object_came_with_a_sample() -> None:
    watching = watch("ENERGY.Power", "StatusSNS.Power", "params.switch", "Power")
    payload = {
        "ENERGY": {"Power": [231, 0]}, "StatusSNS": [{"Power": list(range(99))}], "params.switch": {"apower": 60},
    }  # fmt: skip
    fed(watching, int(ENOUGH_S), json.dumps([{"other": 1}, payload]).encode())
    assert watching.never_seen(ENOUGH_S) == ["ENERGY.Power", "Power", "StatusSNS.Power", "params.switch"]
    long = "[{'Power': [0, 1, 2, 3, 4, 5, 6, 7, 8, …"
    assert watching.came == {"ENERGY.Power": "[231, 0]", "StatusSNS.Power": long, "params.switch": "{'apower': 60}"}


def test_a_payload_that_is_refused_tells_nothing_of_its_fields() -> None:
    watching = watch("temp")
    fed(watching, int(ENOUGH_S), b'{"time": "soon", "temp": 1}')
    assert watching.came == {}


def test_a_rare_field_is_seen_whenever_it_comes() -> None:
    watching = watch("alarm")
    fed(watching, 100, *[b'{"temp":1}'] * 50)
    assert watching.never_seen(100.0) == ["alarm"]
    watching.look(RawBatch(["t"] * 3, [b"{}", b'{"temp":1}', b'{"alarm":1}'], 100.1, 1.7e9))
    assert watching.never_seen(200.0) == []


def test_text_that_looks_like_a_field_costs_only_so_many_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    watching = watch("temp")
    batch = RawBatch(["t"], [b'{"temperature":1}'], 0.0, 1.7e9)
    for _ in range(MOST_HITS + 1):
        watching.look(batch)
    monkeypatch.setattr(watching, "_decode", lambda *arguments: pytest.fail("decoded once more"))
    watching.look(batch)


def test_malformed_payloads_and_silence_accuse_nobody() -> None:
    watching = watch("temp")
    fed(watching, 100, b"{", b"")
    assert watching.never_seen(1000.0) == []


def test_only_names_that_come_from_the_source_are_looked_for() -> None:
    operators = {
        "in": {"type": "mqtt_source", "topic": "x/{source}"},
        "ok": {"type": "filter", "input": "in", "where": "tmep > 23"},
        "more": {"type": "map", "input": "ok", "set": {"twice": "2 * hum"}},
        "few": {"type": "select", "input": "more", "fields": ["twice", "lux"]},
        "out": {"type": "publish", "input": "few", "topic": "y/{source}"},
    }
    flow = from_plain({"name": "f", "operators": operators}, REGISTRY)
    assert fields_named(flow, REGISTRY, "in") == {"tmep", "hum", "lux"}


def test_the_fields_of_a_topic_are_looked_for_too() -> None:
    operators = {
        "in": {"type": "mqtt_source", "topic": "x/{source}"},
        "out": {"type": "publish", "input": "in", "topic": "y/{rom}/{source}"},
    }
    assert fields_named(from_plain({"name": "f", "operators": operators}, REGISTRY), REGISTRY, "in") == {"rom"}


def test_a_field_of_nested_objects_is_seen() -> None:
    watching = watch("env.temp", "env.tmep")
    fed(watching, 30, b'{"env":{"temp":1}}')
    assert watching.never_seen(100.0) == ["env.tmep"]
