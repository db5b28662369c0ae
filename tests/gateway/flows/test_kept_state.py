"""State that goes on in the next version of a flow, and retained messages that it needs again: the real database, pool
and inbox."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgert.core.results.results import RowsBatch, unpack_result_untrusted
from edgert.flow.document import from_plain
from edgert.mqtt.packets.packets import Publish
from edgert.operators.registry import REGISTRY
from edgert.runtime.flow_run import FlowRun
from tests.gateway.whole_gateway import Gateway
from tests.waiting import in_loop

NAMES = "names/{source}"


def joined(description: str = "", *, fields: str = "label", missing: str = "null") -> Any:
    operators = {
        "names": {"type": "mqtt_source", "topic": NAMES, "retained": True},
        "in": {"type": "mqtt_source", "topic": "x/{source}"},
        "named": {
            "type": "join_latest", "inputs": ["in", "names"], "on": ["source"], "fields": [fields], "missing": missing,
        },
        "by": {"type": "key_by", "input": "named", "keys": [fields]},
        "minute": {"type": "tumbling_window", "input": "by", "size_s": 10, "aggregates": {"n": "count()"}},
        "out": {"type": "ship", "input": "minute"},
    }  # fmt: skip
    return from_plain({"name": "f", "description": description, "operators": operators}, REGISTRY)


def rows_of(gateway: Gateway) -> list[list[Any]]:
    """Contributions in the order in which they were shipped: window_start, window_end, keys, aggregates."""
    found: list[list[Any]] = []
    for stream, _ in sorted(gateway.database.outbox_streams()):
        for entry in gateway.database.outbox(*stream, 0, 1_000):
            batch = unpack_result_untrusted(entry.payload)
            if isinstance(batch, RowsBatch):
                found += [list(row) for row in batch.rows]
    return found


def tell(gateway: Gateway, packet_id: int, label: str) -> None:
    payload = b'{"time": 1700000000, "label": "%s"}' % label.encode()
    gateway.ingest.feed([Publish("names/a", payload, 1, False, False, packet_id, ())])
    assert gateway.pool.wait_empty([i for r in gateway.flows.runs.values() for i in r.all], 60.0)


def waiting(gateway: Gateway) -> list[str]:
    """Filters whose retained messages the running flow is to be given."""
    subscriptions = gateway.ingest.subscriptions
    return [source.filter for source in subscriptions.sources if subscriptions.waits(source)]


def given_all(gateway: Gateway) -> None:
    """As if the broker had answered to the subscriptions of all that wait."""
    subscriptions = gateway.ingest.subscriptions
    subscriptions.asked(1, [(source, source.filter) for source in subscriptions.sources if subscriptions.waits(source)])
    subscriptions.answered(1, ())


@in_loop
async def test_a_look_up_is_still_there_after_another_description(tmp_path: Path) -> None:
    gateway = Gateway(tmp_path / "db")
    await gateway.flows.deploy(joined(), "mqtt")
    given_all(gateway)
    tell(gateway, 1, "hall")
    await gateway.flows.deploy(joined("new"), "mqtt")
    assert waiting(gateway) == [], "or its messages would count twice"
    gateway.feed(2, 1.0)
    await gateway.flows.remove("f")
    assert [row[2:] for row in rows_of(gateway)] == [["hall", 1]]
    gateway.crash()


@in_loop
async def test_a_look_up_that_begins_anew_asks_for_what_is_retained(tmp_path: Path) -> None:
    gateway = Gateway(tmp_path / "db")
    await gateway.flows.deploy(joined(), "mqtt")
    given_all(gateway)
    assert waiting(gateway) == []
    await gateway.flows.deploy(joined(missing="drop"), "mqtt")
    assert waiting(gateway) == ["names/+"]
    saved = gateway.ingest.subscriptions.dump()
    gateway.crash()
    after = Gateway(tmp_path / "db", subscriptions=saved)
    assert waiting(after) == ["names/+"], "a restart does not forget it"
    given_all(after)
    saved = after.ingest.subscriptions.dump()
    after.crash()
    again = Gateway(tmp_path / "db", subscriptions=saved)
    assert waiting(again) == []
    again.crash()


@in_loop
async def test_a_window_goes_on_in_the_next_version_also_after_a_restart(tmp_path: Path) -> None:
    gateway = Gateway(tmp_path / "db")
    await gateway.flows.deploy(joined(), "mqtt")
    gateway.feed(1, 1.0)
    await gateway.flows.deploy(joined("second"), "mqtt")
    assert rows_of(gateway) == [], "no window goes early"
    gateway.feed(2, 2.0)
    assert await gateway.checkpoint()
    gateway.crash()
    after = Gateway(tmp_path / "db")
    await after.flows.deploy(joined("third"), "mqtt")
    after.feed(3, 3.0)
    await after.flows.remove("f")
    assert [row[-1] for row in rows_of(after)] == [3]
    after.crash()


@in_loop
async def test_a_version_that_is_written_and_lost_at_once_still_has_the_state(tmp_path: Path) -> None:
    gateway = Gateway(tmp_path / "db")
    await gateway.flows.deploy(joined(), "mqtt")
    gateway.feed(1, 1.0)
    await gateway.flows.deploy(joined("second"), "mqtt")
    gateway.crash()
    after = Gateway(tmp_path / "db")
    await after.flows.remove("f")
    assert [row[-1] for row in rows_of(after)] == [1]
    after.crash()


@pytest.mark.parametrize("change", ["removal", "another description", "another join"])
@in_loop
async def test_a_flow_that_its_host_has_let_go_is_ticked_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    """A tick of the gateway may come at any moment when the loop goes on."""
    gateway = Gateway(tmp_path / "db")
    await gateway.flows.deploy(joined(), "mqtt")
    gateway.feed(1, 1.0)
    ticks: list[asyncio.Task[None]] = []

    async def tick() -> None:
        gateway.host.tick(list(gateway.flows.runs.values()))

    let_go = gateway.host.remove

    def then_tick(run: FlowRun) -> None:
        let_go(run)
        ticks.append(asyncio.ensure_future(tick()))

    monkeypatch.setattr(gateway.host, "remove", then_tick)
    if change == "removal":
        await gateway.flows.remove("f")
    else:
        await gateway.flows.deploy(joined("new", missing="drop" if change == "another join" else "null"), "mqtt")
    assert len(ticks) == 1
    await asyncio.gather(*ticks)
    gateway.crash()


CHANGES = st.lists(
    st.one_of(
        st.just("message"), st.just("checkpoint"), st.just("restart"), st.just("description"), st.just("join")
    ),
    min_size=1, max_size=14,
)  # fmt: skip


@settings(max_examples=40, deadline=None)
@given(steps=CHANGES)
def test_every_message_is_in_one_window_whatever_versions_follow_each_other(
    tmp_path_factory: pytest.TempPathFactory, steps: list[str]
) -> None:
    path = tmp_path_factory.mktemp("kept") / "db"

    @in_loop
    async def walk() -> None:
        gateway, messages, version, missing = Gateway(path), 0, 0, False
        await gateway.flows.deploy(joined(), "mqtt")
        contributions = 0
        for step in steps:
            match step:
                case "message":
                    messages += 1
                    gateway.feed(messages, 1.0)
                case "checkpoint":
                    await gateway.checkpoint()
                case "restart":
                    await gateway.checkpoint()
                    gateway.crash()
                    gateway = Gateway(path)
                case "description":
                    version += 1
                    await gateway.flows.deploy(joined(str(version), missing="null"), "mqtt")
                case "join":
                    missing = not missing
                    version += 1
                    await gateway.flows.deploy(joined(str(version), fields="room" if missing else "label"), "mqtt")
            found = sum(row[-1] for row in rows_of(gateway))
            assert contributions <= found <= messages
            contributions = found
        await gateway.flows.remove("f")
        assert sum(row[-1] for row in rows_of(gateway)) == messages
        gateway.crash()

    walk()
