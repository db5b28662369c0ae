"""Names of fields as devices have them, from the document through generated code to a result."""

from __future__ import annotations

import json
from typing import Any

import pytest

from edgert.core.errors import DocumentError
from edgert.flow.document import from_plain
from edgert.flow.physical import Fusion, fields_named
from edgert.operators.registry import REGISTRY
from tests.operators.worlds import Way

SENSOR = {
    "ENERGY": {"Power": 231.0, "Today": 1.2},
    "DS18B20-1": {"Temperature": 7.5},
    "params": {"switch:0": {"apower": 60.0}},
    "Außen": {"Temperatur": 3.0},
    "Total Power": 9.0,
}
"""Tasmota, Shelly (second generation) and what people make themselves."""
ODD = """it's "{odd}" {0!r} \\ #"""


def document(where: str, of: str, **aggregates: str) -> dict[str, Any]:
    return {
        "name": "f",
        "operators": {
            "in": {"type": "mqtt_source", "topic": "tele/{source}/SENSOR"},
            "some": {"type": "filter", "input": "in", "where": where},
            "more": {"type": "map", "input": "some", "set": {"made": of}},
            "by": {"type": "key_by", "input": "more", "keys": ["source"]},
            "w": {
                "type": "tumbling_window",
                "input": "by",
                "size_s": 10,
                "aggregates": {"m": "max(made)"} | aggregates,
            },
            "out": {"type": "ship", "input": "w"},
        },
    }


@pytest.mark.parametrize("fusion", ["full", "chains"])
def test_nested_and_odd_names_are_those_of_one_field_everywhere(fusion: Fusion) -> None:
    plain = document(
        "ENERGY.Power > 3 and `DS18B20-1.Temperature` < 8",
        "`params.switch:0.apower` + Außen.Temperatur",
        power="max(ENERGY.Power)", cold="min(`DS18B20-1.Temperature`)", switch="max(`params.switch:0.apower`)",
        outside="max(Außen.Temperatur)", total="max(`Total Power`)", odd=f"max(`{ODD}`)", n=f"count(`{ODD}`)",
    )  # fmt: skip
    assert fields_named(from_plain(plain, REGISTRY), REGISTRY, "in") == {
        "ENERGY.Power", "DS18B20-1.Temperature", "params.switch:0.apower", "Außen.Temperatur", "Total Power", ODD,
    }  # fmt: skip
    way = Way(plain, fusion)
    for value in (1.0, 2.0, "text", 3.0):
        way.feed(["tele/fridge/SENSOR"], [json.dumps(SENSOR | {ODD: value}).encode()], 0.0)
    way.feed(["tele/fridge/SENSOR"], [json.dumps(SENSOR | {"ENERGY": {"Power": 2.0}}).encode()], 0.0)
    [row] = way.end()
    told = {name: row[name] for name in ("power", "cold", "switch", "outside", "total", "m", "odd", "n")}
    assert told == {
        "power": 231.0, "cold": 7.5, "switch": 60.0, "outside": 3.0, "total": 9.0, "m": 63.0, "odd": 3.0, "n": 3,
    }  # fmt: skip


def test_a_name_that_cannot_stand_bare_is_refused_with_its_character_and_the_backticks() -> None:
    plain = document("Total Power > 3", "DS-1.Temp + 1", p="mean(params.switch:0.apower)")
    with pytest.raises(DocumentError) as refused:
        from_plain(plain, REGISTRY)
    told = "a field of that name is written in backticks"
    backticks, got = "mean(`params.switch:0.apower`)", "mean(params.switch:0.apower)"
    odd = "the name of a field, in backticks as there is ':' in it"
    assert str(refused.value).splitlines()[1:] == [
        f"  operators.some.where: expected an operator or the end, got 'Power' at column 7; {told}: `Total Power`",
        f"  operators.more.set.made: expected an operator or the end, got 'Temp' at column 6; {told}: `DS-1.Temp`",
        f"  operators.w.aggregates.p: expected {odd}: {backticks}, got '{got}'",
    ]
