"""A gateway refuses a flow that, by way of others, reads what it publishes, and says where it only may."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from edgert.core.errors import DocumentError
from edgert.flow.document import from_plain
from edgert.flow.graph import Flow
from edgert.operators.registry import REGISTRY
from tests.gateway.whole_gateway import Gateway
from tests.waiting import in_loop


def flow(name: str, reads: str, publishes: str, where: str = "") -> Flow:
    operators: dict[str, Any] = {"in": {"type": "mqtt_source", "topic": reads}}
    if where:
        operators["some"] = {"type": "filter", "input": "in", "where": where}
    operators["out"] = {"type": "publish", "input": "some" if where else "in", "topic": publishes}
    return from_plain({"name": name, "operators": operators}, REGISTRY)


@in_loop
async def test_the_flow_that_would_close_a_loop_is_refused_and_the_others_run_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    gateway = Gateway(tmp_path / "db")
    await gateway.flows.deploy(flow("there", "a/+", "b/x"), "mqtt")
    with pytest.raises(DocumentError) as caught:
        await gateway.flows.deploy(flow("back", "b/+", "a/x"), "mqtt")
    [problem] = caught.value.problems
    assert (problem.path, problem.got) == ("operators.out.topic", "back.out -> a/x -> there.out -> b/x -> back.in")
    assert list(gateway.flows.runs) == ["there"]

    assert await gateway.flows.deploy(flow("back", "b/+", "a/x", "v > 30"), "mqtt") == 1
    assert "flow back: the flow may read what it publishes" in caplog.text
    assert gateway.flows.loops.possible()["back"] == ["back.out -> a/x -> there.out -> b/x -> back.in"]
    [caution] = await gateway.flows.loops.cautions("back")
    assert caution.endswith("each message would make another: back.out -> a/x -> there.out -> b/x -> back.in")
    gateway.crash()
