"""A flow whose operators can use no value of a field says so: its windows come, each with a count of 0."""

from __future__ import annotations

import json
from typing import Any

import pytest

from edgert.flow.physical import Fusion
from edgert.runtime.instance.report import report
from gateway.status.unusable_fields import UnusableFieldFinder
from tests.operators.worlds import WALL, Way
from tests.status_example import example_status, judged

OPERATORS: dict[str, dict[str, Any]] = {
    "tumbling_window": {"size_s": 60, "aggregates": {"t": "mean(temp)", "h": "mean(hum)"}},
    "count_window": {"size": 5, "aggregates": {"t": "max(temp)"}},
    "kalman": {"field": "temp"},
}
SAID = "temp: none of the last {} values is a usable number, e.g. '21.5'"


def looked_at(kind: str, fusion: Fusion, *temperatures: object) -> list[list[str]]:
    """What is said of a flow at each second, in which one payload comes."""
    source = {"type": "mqtt_source", "topic": "x/{source}"}
    out = {"type": "publish", "input": "o", "topic": "y"}
    operators = {"in": source, "o": {"type": kind, "input": "in", **OPERATORS[kind]}, "out": out}
    way, fields, said = Way({"name": "f", "operators": operators}, fusion), UnusableFieldFinder("f"), []
    for second, temp in enumerate(temperatures):
        row = {"time": WALL + second, "temp": temp, "hum": 60.5}
        way.feed(["x/a"], [json.dumps(row).encode()], float(second))
        found = fields.look({name: report(stage, 1.0 + second) for name, stage in way.run.stages.items()})
        said.append([str(each) for each in found])
    return said


@pytest.mark.parametrize("fusion", ["full", "none"])
@pytest.mark.parametrize("kind", OPERATORS)
def test_text_where_a_number_is_needed_is_said_with_field_and_sample_until_a_number_comes(
    kind: str, fusion: Fusion, caplog: pytest.LogCaptureFixture
) -> None:
    said = looked_at(kind, fusion, *["21.5"] * 30, 21.5)
    assert said[9] == []
    assert said[29] == [SAID.format(29)]
    assert said[30] == []
    assert caplog.messages == [f"flow f, operator o: {SAID.format(10)}"]


def test_a_text_in_two_payloads_of_three_is_no_fault_of_all() -> None:
    assert not any(looked_at("tumbling_window", "full", *["warm", "21.5", 21.5] * 20))


def test_health_warns_of_a_field_without_a_usable_value() -> None:
    status = example_status()
    status["flows"][0]["unusable"] = [SAID.format(40)]
    condition = judged(status)["flows"][0]["condition"]
    assert (condition["level"], condition["reason"]) == ("warning", SAID.format(40))
