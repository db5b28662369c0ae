"""The start after `pool.fission` was changed works off what waited, and says so where that may take any time."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from types import MappingProxyType
from typing import Any

import pytest

from edgert.flow.document import from_plain
from edgert.flow.physical import plan
from edgert.flow.spec import OperatorSpec
from edgert.operators.base.logic import Emission, Now
from edgert.operators.registry import REGISTRY
from edgert.runtime.checkpoint.restore import move
from edgert.runtime.instance.build import build
from edgert.runtime.instance.queue import Entry
from tests.runtime.pools import Pass, rows


@pytest.mark.parametrize("waits", [True, False])
def test_before_rows_are_given_to_an_operator_that_may_block_the_log_says_so(
    waits: bool, caplog: pytest.LogCaptureFixture
) -> None:
    said: list[list[str]] = []

    class Asks(Pass):
        def process(self, batch: Any, source: int, now: Now) -> Sequence[Emission]:
            said.append([record.getMessage() for record in caplog.records])
            return super().process(batch, source, now)

    def made(_: object) -> Asks:
        logic = Asks()
        logic.waits = waits
        return logic

    known = MappingProxyType({**REGISTRY, "asks": OperatorSpec("asks", "For tests.", logic=made)})
    operators = {
        "in": {"type": "mqtt_source", "topic": "x/{source}", "instances": 2},
        "ok": {"type": "filter", "input": "in", "where": "n > 0", "instances": 2},
        "ask": {"type": "asks", "input": "ok"},
        "out": {"type": "publish", "input": "ask", "topic": "y"},
    }
    flow = from_plain({"name": "f", "operators": operators}, known)
    old, new = (build(plan(flow, known, "none", fission=fission), known) for fission in (True, False))
    old.places["ask"].instance.queue.append(Entry(0, rows(1, 2), 0.0))
    first = next(name for name in old.instances if name.startswith("ok"))
    old.instances[first].queue.append(Entry(0, rows(3), 0.0))
    with caplog.at_level(logging.INFO):
        move(old, new, Now(0.0, 0.0))
    told = "flow f: works off 3 rows that wait for ask before it starts, since pool.fission was changed"
    assert said
    assert all(messages == ([told] if waits else []) for messages in said)
