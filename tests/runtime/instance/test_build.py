"""From a plan to instances: what one knows of those around it."""

from __future__ import annotations

from typing import Any, get_args

import pytest

from edgert.core.batch import RawBatch
from edgert.flow.physical import Fusion
from edgert.operators.base.logic import Now
from edgert.operators.sources.source import Source
from tests.runtime.worlds import flow_run


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
    stages = flow_run(document={"name": "f", "operators": operators}).stages
    beside = {name: stage.instance.edges.beside for name, stage in stages.items()}
    assert beside == {"forks": False, "alone": False, "alarm": False, "both": True, "out": True}


WINDOW = {"type": "tumbling_window", "size_s": 10, "aggregates": {"n": "count()"}}
COUNTED = {"type": "count_window", "size": 2, "aggregates": {"w": "count()"}}
BY = {"type": "key_by", "keys": ["source"]}
OUT = {"type": "publish", "topic": "o/{source}"}
BEHIND: dict[str, tuple[dict[str, Any], bool]] = {
    "sink": ({"out": {"input": "a", **OUT}}, False),
    "map": ({"m": {"type": "map", "input": "a", "set": {"v": "1"}}, "out": {"input": "m", **OUT}}, False),
    "window": ({"by": {"input": "a", **BY}, "w": {"input": "by", **WINDOW}, "out": {"input": "w", **OUT}}, True),
    "one of two": (
        {"out": {"input": "a", **OUT}, "by": {"input": "a", **BY}, "w": {"input": "by", **WINDOW},
         "too": {"input": "w", **OUT}}, True,
    ),
    "rows counted": (
        {"by": {"input": "a", **BY}, "c": {"input": "by", **COUNTED}, "out": {"input": "c", **OUT}}, False,
    ),
    "joined to a window": (
        {"by": {"input": "a", **BY}, "c": {"input": "by", **COUNTED},
         "j": {"type": "join_latest", "inputs": ["b", "c"], "fields": ["w"]},
         "by2": {"input": "j", **BY}, "w": {"input": "by2", **WINDOW}, "out": {"input": "w", **OUT}}, False,
    ),
}  # fmt: skip


@pytest.mark.parametrize("copies", [1, 2])
@pytest.mark.parametrize("fusion", get_args(Fusion))
@pytest.mark.parametrize("behind", BEHIND)
def test_a_source_knows_whether_its_watermark_matters_to_anybody(behind: str, fusion: Fusion, copies: int) -> None:
    operators, matters = BEHIND[behind]
    source = {"type": "mqtt_source", "topic": "x/{source}", "instances": copies}
    operators = {"a": source, **operators}
    if "b" in operators.get("j", {}).get("inputs", ()):
        operators = {"b": {"type": "mqtt_source", "topic": "y/{source}"}, **operators}
    stages = flow_run(fusion, {"name": "f", "operators": operators}).stages
    heeded = {name: stage.logic.heeded for name, stage in stages.items() if isinstance(stage.logic, Source)}
    assert {name[0]: known for name, known in heeded.items()} == {"a": matters} | (
        {"b": True} if "j" in operators else {}
    )


@pytest.mark.parametrize("fusion", get_args(Fusion))
def test_a_restored_source_that_nobody_heeds_forgets_its_devices(fusion: Fusion) -> None:
    """They were noted when there was a window."""

    def source(behind: str) -> Source:
        run = flow_run(
            fusion,
            {"name": "f", "operators": {"a": {"type": "mqtt_source", "topic": "x/{source}"}} | BEHIND[behind][0]},
        )
        logic = run.stages["a"].logic
        assert isinstance(logic, Source)
        return logic

    before, after = source("window"), source("sink")
    before.process(RawBatch(["x/a", "x/b"], [b"{}"] * 2, 0.0, 1_700_000_000.0), 0, Now(0.0, 1_700_000_000.0))
    state: Any = before.snapshot()
    assert set(state["latest"]) == {"a", "b"}
    after.restore(state)
    after.resumed(Now(1.0, 1_700_000_001.0))
    assert not after.devices.latest
    delta: Any = after.delta()
    assert sorted(delta["gone"]) == ["a", "b"]
    assert after.delta() is None
    again: Any = after.snapshot()
    assert not again["latest"]
