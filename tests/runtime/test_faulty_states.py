"""An operator that raises what is no `Exception` when it is made, says its state or takes it back costs its flow only:
who looks after that waits for an `Exception`."""

from __future__ import annotations

from collections.abc import Callable
from types import MappingProxyType
from typing import Any

import pytest

from edgert.core.checkpoint.position import Position
from edgert.flow.document import from_plain
from edgert.flow.spec import OperatorSpec
from edgert.operators.base.logic import Logic, Now
from edgert.operators.registry import REGISTRY
from edgert.runtime.checkpoint.packing import pack_state
from edgert.runtime.checkpoint.progress import Progress
from edgert.runtime.flow_run import FlowRun
from tests.runtime.worlds import Panic

NOW = Now(0.0, 1_000.0)


class Panics(Logic):
    """Where `at` says."""

    def __init__(self, at: str) -> None:
        super().__init__()
        self.at = at
        self._panic("make")

    def _panic(self, at: str) -> Any:
        if at == self.at:
            raise Panic("as told")

    def delta(self) -> Any:
        return self._panic("delta")

    def snapshot(self) -> Any:
        return self._panic("snapshot")

    def restore(self, state: Any) -> None:
        self._panic("restore")


def flow_run(at: str) -> FlowRun:
    known = MappingProxyType({**REGISTRY, "odd": OperatorSpec("odd", "For tests.", logic=lambda build: Panics(at))})
    operators = {
        "in": {"type": "mqtt_source", "time_earliest": "1970-01-01", "topic": "x/{source}"},
        "odd": {"type": "odd", "input": "in"},
        "out": {"type": "publish", "input": "odd", "topic": "y"},
    }
    return FlowRun(from_plain({"name": "f", "operators": operators}, known), known, 1, 1, Progress(Position()))


@pytest.mark.parametrize(
    ("at", "act"),
    [
        ("make", lambda run: None),
        ("delta", lambda run: run.take_deltas({})),
        ("snapshot", lambda run: run.snapshot(run.built)),
        ("snapshot", lambda run: run.compact([])),
        ("restore", lambda run: run.restore([pack_state({"odd": 1})], b"", NOW)),
    ],
)
def test_what_is_no_exception_becomes_one(at: str, act: Callable[[FlowRun], object]) -> None:
    act(flow_run(""))
    with pytest.raises(RuntimeError, match="an operator raised Panic: as told"):
        act(flow_run(at))
