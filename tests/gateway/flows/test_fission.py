"""Flows in copies in a gateway: what each copy is fed, what is acknowledged, what another number of them means."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from edgert.core.errors import EdgertError
from edgert.flow.document import from_plain
from edgert.flow.plan import Location
from edgert.mqtt.packets.packets import Publish
from edgert.mqtt.session.outgoing import PublishRefused
from edgert.operators.base.logic import Message
from edgert.operators.registry import REGISTRY
from edgert.runtime.instance.instance import Instance
from edgert.runtime.instance.report import drops_of
from edgert.runtime.instance.source_queue import SourceQueue
from gateway.flows.plans import FLEET
from gateway.hosts.slotted_flow import SlottedFlow
from tests.gateway.flows.parts_here import parts_of
from tests.gateway.whole_gateway import Gateway
from tests.runtime.pools import Pass
from tests.waiting import in_loop


def split(source: int, window: int) -> Any:
    operators = {
        "in": {"type": "mqtt_source", "topic": "x/{source}", "instances": source},
        "by": {"type": "key_by", "input": "in", "keys": ["source"]},
        "minute": {"type": "tumbling_window", "input": "by", "size_s": 10, "aggregates": {"n": "count()"},
                   "instances": window},
        "out": {"type": "ship", "input": "minute"},
    }  # fmt: skip
    return from_plain({"name": "f", "operators": operators}, REGISTRY)


def feed(gateway: Gateway, first_id: int) -> None:
    payload = b'{"time": 1700000001}'
    gateway.ingest.feed([Publish(f"x/{n}", payload, 1, False, False, first_id + n) for n in range(8)])
    assert gateway.pool.wait_empty([i for r in gateway.flows.runs.values() for i in r.all], 60.0)


@in_loop
async def test_a_source_in_copies_takes_each_message_once_and_it_is_acknowledged_by_its_flow(tmp_path: Path) -> None:
    gateway = Gateway(tmp_path / "db")
    await gateway.flows.deploy(split(3, 2), "mqtt")
    feed(gateway, 1)
    stages = gateway.flows.runs["f"].stages
    fed = [stages[f"in#{n}"].rows_in for n in (1, 2, 3)]
    assert sum(fed) == 8
    assert sum(n > 0 for n in fed) > 1
    assert gateway.ingest.inbox.due() == []
    assert await gateway.checkpoint()
    feed(gateway, 1)  # the same ids, new messages
    assert len(gateway.ingest.inbox.owed) == 8
    assert await gateway.checkpoint()
    gateway.crash()
    again = Gateway(tmp_path / "db")
    again.ingest.feed([Publish(f"x/{n}", b'{"time": 1700000001}', 1, False, True, 1 + n) for n in range(8)])
    assert again.ingest.inbox.counters.redelivered == 8
    assert await again.flows.remove("f")
    assert again.shipped() == 16
    again.crash()


@in_loop
async def test_another_number_of_copies_is_a_new_version_which_begins_with_empty_windows(tmp_path: Path) -> None:
    gateway = Gateway(tmp_path / "db")
    assert await gateway.flows.deploy(split(1, 2), "mqtt") == 1
    feed(gateway, 1)
    assert await gateway.checkpoint()
    assert await gateway.flows.deploy(split(2, 3), "mqtt") == 2
    assert gateway.shipped() == 8
    names = list(gateway.flows.runs["f"].stages)
    assert names == ["in#1", "in#2", "minute#1", "minute#2", "minute#3", "out"]
    feed(gateway, 1)
    gateway.crash()
    again = Gateway(tmp_path / "db")
    assert list(again.flows.runs["f"].stages) == names
    again.crash()


@pytest.mark.parametrize("before", [True, False])
@in_loop
async def test_the_setting_counts_from_the_next_version_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, before: bool
) -> None:
    gateway = Gateway(tmp_path / "db", fission=before)
    await gateway.flows.deploy(split(3, 2), "mqtt")
    feed(gateway, 1)
    names = list(gateway.flows.runs["f"].stages)
    assert ("minute#2" in names) is before
    assert await gateway.checkpoint()
    gateway.crash()
    again = Gateway(tmp_path / "db", fission=not before)
    assert list(again.flows.runs["f"].stages) == names
    (said,) = (r.getMessage() for r in caplog.records if "pool.fission" in r.getMessage())
    assert said.startswith(f"flow f goes on {'in' if before else 'without'} copies, as it is stored: pool.fission = ")
    feed(again, 9)
    assert await again.flows.deploy(split(3, 3), "mqtt") == 2
    assert again.shipped() == 16, "the windows were kept"
    assert ("minute#2" in again.flows.runs["f"].stages) is not before
    again.crash()


@pytest.mark.parametrize("ours", [True, False])
@in_loop
async def test_boards_of_one_flow_have_the_copies_of_its_plan_whatever_their_setting_is(
    ours: bool, tmp_path: Path
) -> None:
    """Rows for `minute#2` would go to a board that has only `minute`."""
    flow, here, there = split(1, 2), Location("g1", -1), Location("g2", -1)
    copies = {True: ["minute#1", "minute#2"], False: ["minute"]}
    own, other = ({"in": there, "out": there} | dict.fromkeys(copies[one], here) for one in (ours, not ours))
    gateway = Gateway(tmp_path / "db", fission=ours)
    parts, _ = parts_of(gateway)
    refusal = "flow f: expected a location for each of .*, got one for "
    with pytest.raises(EdgertError, match=refusal):
        await gateway.flows.deploy(flow, FLEET, own | other, 1)
    with pytest.raises(EdgertError, match=refusal):
        await parts.prepare(dict(flow.document), own | other, 2, [])
    assert parts.status() == {}
    await parts.prepare(dict(flow.document), other, 2, [])
    await parts.commit("f", 2)
    assert set(copies[not ours]) <= gateway.flows.runs["f"].stages.keys()
    gateway.crash()


@in_loop
async def test_the_page_has_an_edge_from_each_copy_to_each_that_it_feeds(tmp_path: Path) -> None:
    gateway = Gateway(tmp_path / "db")
    await gateway.flows.deploy(split(2, 3), "mqtt")
    crossing = {(f"in#{a}", f"minute#{b}") for a in (1, 2) for b in (1, 2, 3)}
    assert set(gateway.flows.runs["f"].plan.edges()) == crossing | {(f"minute#{b}", "out") for b in (1, 2, 3)}
    gateway.crash()


@in_loop
async def test_what_a_flow_gives_out_before_the_gateway_is_ready_leaves_when_it_is(tmp_path: Path) -> None:
    """A pool works on what waited at the checkpoint before there is a loop to hand messages to."""
    gateway = Gateway(tmp_path / "db")
    instance = Instance("tell", ("tell",), "sink", Pass(), SourceQueue(1_000))
    sent: list[str] = []

    async def start() -> None:
        return None

    def publish(topic: str, *rest: object) -> int:
        sent.append(topic)
        return 1

    gateway.ingest.client.start = start  # type: ignore[method-assign]
    gateway.ingest.client.publish = publish  # type: ignore[assignment]
    gateway.ingest.publishing.send(instance, [Message("a", b"", 1), Message("b", b"", 1)])
    assert sent == []
    await gateway.ingest.start()
    assert sent == ["a", "b"]
    assert not instance.delivery.unsent
    gateway.crash()


@in_loop
async def test_a_message_that_is_not_taken_is_counted_at_the_operator_that_gave_it(tmp_path: Path) -> None:
    """Also where all of a flow is one instance."""

    def refuse(*message: object) -> int:
        raise PublishRefused("as told")

    gateway = Gateway(tmp_path / "db")
    operators = {
        "in": {"type": "mqtt_source", "topic": "x/{source}"},
        "hot": {"type": "filter", "input": "in", "where": "t > 30"},
        "raw": {"type": "publish", "input": "in", "topic": "raw/{source}"},
        "told": {"type": "publish", "input": "hot", "topic": "hot/{source}-{t}/x"},
    }
    await gateway.flows.deploy(from_plain({"name": "f", "operators": operators}, REGISTRY), "mqtt")
    run = gateway.flows.runs["f"]
    (instance,) = run.all
    gateway.ingest.publishing.start(gateway.ingest.client)
    gateway.ingest.client.publish = refuse  # type: ignore[assignment, method-assign]
    topics = {"raw/a": 3, "hot/a-31.5/x": 2, "else/where": 1}
    messages = [Message(topic, b"") for topic, times in topics.items() for _ in range(times)]
    for message in [*messages, Message("hot/a/x", b"", reason="hot: ValueError")]:
        gateway.ingest.publishing._publish(instance, [message])
    said = {"in": 1, "hot": 1, "raw": 3, "told": 2}  # what nobody gave is the first one's
    assert {name: drops_of(stage)["not sent"] for name, stage in run.stages.items()} == said
    assert {name: SlottedFlow(run, [0]).report(name).drops["not sent"] for name in run.stages} == said
    gateway.crash()
