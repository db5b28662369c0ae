"""From a plan to instances: what one knows of those around it."""

from __future__ import annotations

import pytest

from tests.runtime.test_flow_run import flow_run


@pytest.mark.parametrize("order", [["forks", "alone"], ["alone", "forks"]])
def test_who_is_fed_by_one_that_forks_is_beside_others_whoever_else_feeds_it(order: list[str]) -> None:
    sources = {name: {"type": "mqtt_source", "topic": f"{name}/{{source}}"} for name in order}
    joined = {"type": "join_latest", "inputs": order, "fields": ["w"]}
    operators = {
        **sources,
        "alarm": {"type": "publish", "input": "forks", "topic": "alarm"},
        "both": joined,
        "out": {"type": "publish", "input": "both", "topic": "out"},
    }
    places = flow_run(document={"name": "f", "operators": operators}).places
    beside = {name: place.instance.beside for name, place in places.items()}
    assert beside == {"forks": False, "alone": False, "alarm": False, "both": True, "out": True}
