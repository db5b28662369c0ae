"""What the sensors' broker still has for the gateway, and means by identifiers of subscriptions, when the gateway comes
back as another one: in another version of MQTT, with another version of a flow, or with a card that has rotted."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import xxhash

from edgert.core.settings.gateway import Sensors
from edgert.flow.document import from_plain
from edgert.mqtt.packets.packets import Publish
from edgert.mqtt.session.events import Connected
from edgert.operators.registry import REGISTRY
from gateway.ingest.inbox import Route
from gateway.ingest.subscriptions import Subscriptions
from tests.gateway.daemons import daemon, ends
from tests.gateway.ingest.subscribing_gateway import SubscribingGateway
from tests.gateway.whole_gateway import Gateway, document
from tests.waiting import in_loop

# -- another version of MQTT


@in_loop
async def test_a_redelivery_is_known_when_the_version_of_mqtt_has_changed(tmp_path: Path) -> None:
    """There and back again; two subscriptions that overlap, each of which has brought a copy."""
    board = SubscribingGateway(tmp_path / "db")
    await board.deploy("f")
    saved = await board.deploy("g", "x/a")
    board.feed(1, 1.0, ids=board.ids("x/+"))
    board.feed(2, 1.0, ids=board.ids("x/a"))
    assert await board.checkpoint()
    board.crash()  # before anything was acknowledged
    board = SubscribingGateway(tmp_path / "db", saved, five=False)
    for packet_id in (1, 2):
        board.feed(packet_id, 1.0, dup=True)
    board.feed(3, 2.0)
    assert await board.checkpoint()
    saved = board.subscribe()
    board.crash()
    board = SubscribingGateway(tmp_path / "db", saved)
    board.feed(3, 2.0, dup=True)
    board.feed(3, 2.0, dup=True, ids=board.ids("x/+"))  # of a broker that says by what it would come today
    assert await board.counted() == {"f": 2, "g": 2}


@in_loop
async def test_of_a_copy_that_one_flow_lacks_only_that_flow_takes_it_in_another_version_of_mqtt(tmp_path: Path) -> None:
    board = SubscribingGateway(tmp_path / "db")
    await board.deploy("f")
    saved = await board.deploy("g", "x/a")
    board.feed(1, 1.0, ids=board.ids("x/+"))
    board.feed(2, 1.0, ids=board.ids("x/a"))
    assert await board.checkpointer.checkpoint([board.flows.runs["f"]])
    board.crash()
    board = SubscribingGateway(tmp_path / "db", saved, five=False)
    for packet_id in (1, 2):
        board.feed(packet_id, 1.0, dup=True)
    assert await board.counted() == {"f": 1, "g": 1}


@in_loop
async def test_a_redelivery_by_several_subscriptions_is_known_in_whatever_order_they_are_named(tmp_path: Path) -> None:
    """And after an earlier version of the gateway, to which the order meant something."""
    board = SubscribingGateway(tmp_path / "db")
    await board.deploy("f")
    await board.deploy("g", "x/a")
    there, back = ((*board.ids(one), *board.ids(other)) for one, other in (("x/+", "x/a"), ("x/a", "x/+")))
    board.feed(1, 1.0, ids=back)
    board.feed(1, 1.0, dup=True, ids=there)
    routes = board.ingest.subscriber.routes
    route = Route(routes.by_id("x/a", back).readers, xxhash.xxh3_64_intdigest(repr(back).encode()))
    with patch.object(routes, "by_id", lambda topic, ids: route):
        board.feed(2, 2.0, ids=back)
    assert route.readers
    board.feed(2, 2.0, dup=True, ids=back)
    assert board.ingest.inbox.counters.redelivered == 2
    assert await board.counted() == {"f": 2, "g": 2}


@in_loop
async def test_that_a_broker_speaks_five_is_kept_for_this_broker(tmp_path: Path) -> None:
    board = SubscribingGateway(tmp_path / "db")
    spawned = board.ingest.tasks.begin
    board.ingest.tasks.begin = lambda work: work.close()  # type: ignore[method-assign]
    board.ingest.connected(Connected(True, "5", 1, "id", 20, {}))
    board.ingest.tasks.begin = spawned  # type: ignore[method-assign]
    saved = board.subscribe()
    board.crash()
    for port, knows in ((1883, True), (1884, False)):
        other = Gateway(tmp_path / "db", Sensors(port=port), saved)
        assert other.ingest.client.versions.probing is not knows
        other.crash()


# -- another version of a flow


@pytest.mark.parametrize("crash", [False, True])
@in_loop
async def test_what_came_for_a_flow_goes_to_its_new_version_that_reads_another_filter(
    tmp_path: Path, crash: bool
) -> None:
    """`crash`: before what is read now was saved."""
    board = SubscribingGateway(tmp_path / "db")
    await board.deploy("f")
    saved = await board.deploy("g")
    old = board.ids("x/+")
    board.feed(1, 1.0, ids=old)
    await board.deploy("f", "{kind}/{source}")
    if crash:
        assert await board.checkpoint()
        board.crash()
        board = SubscribingGateway(tmp_path / "db", saved)
    assert board.ids("x/+") != old, "or what g alone reads from now on would be for f too"
    board.feed(1, 1.0, dup=True, ids=old)
    board.feed(2, 2.0, ids=old)  # had waited at the broker
    board.feed(4, 3.0, ids=board.ids("x/+"))
    board.feed(5, 3.0, ids=board.ids("+/+"))
    assert await board.counted() == {"f": 3, "g": 3}


@pytest.mark.parametrize("crash", [False, True])
@in_loop
async def test_a_new_version_that_reads_what_another_flow_does_takes_no_copy_that_came_for_that_one(
    tmp_path: Path, crash: bool
) -> None:
    board = SubscribingGateway(tmp_path / "db")
    await board.deploy("f")
    saved = await board.deploy("g", "{kind}/a")
    of_f, of_g = board.ids("x/+"), board.ids("+/a")
    await board.deploy("f", "{kind}/a")
    if crash:
        assert await board.checkpoint()
        board.crash()
        board = SubscribingGateway(tmp_path / "db", saved)
    board.feed(1, 1.0, ids=of_f)  # both copies of one message had waited at the broker
    board.feed(2, 1.0, ids=of_g)
    board.feed(2, 1.0, dup=True, ids=of_g)
    board.feed(3, 2.0, ids=board.ids("+/a"))
    assert await board.counted() == {"f": 2, "g": 2}


# -- a card that has rotted


@in_loop
async def test_identifiers_that_are_lost_mean_nothing_else_and_redeliveries_under_them_are_known(
    tmp_path: Path,
) -> None:
    board = SubscribingGateway(tmp_path / "db")
    for name, topic in (("z", "z/{source}"), ("a", "a/{source}")):
        saved = await board.deploy(name, topic)
    old = board.ids("z/+")
    board.feed(1, 1.0, topic="z/1", ids=old)
    assert await board.checkpoint()
    board.crash()
    board = SubscribingGateway(tmp_path / "db", saved[: len(saved) // 2])
    assert board.subscriptions.lost
    assert not {1, 2, 3} & set(board.subscriptions.ids.values())
    saved = board.subscribe()
    board.crash()
    board = SubscribingGateway(tmp_path / "db", saved)  # it is known over further starts
    board.feed(1, 1.0, dup=True, topic="z/1", ids=old)
    board.feed(2, 2.0, topic="z/1", ids=old)
    board.feed(3, 2.0, topic="a/1", ids=old)
    board.feed(4, 3.0, topic="z/1", ids=board.ids("z/+"))
    assert await board.counted() == {"z": 3, "a": 1}


@in_loop
async def test_identifiers_are_lost_until_the_broker_has_no_session(tmp_path: Path) -> None:
    board = SubscribingGateway(tmp_path / "db", "{")
    await board.deploy("f")
    board.subscriptions.session_lost()
    saved = board.subscribe()
    board.crash()
    board = SubscribingGateway(tmp_path / "db", saved)
    board.feed(1, 1.0, ids=(7,))
    assert board.ingest.inbox.counters.unrouted == 1
    assert await board.counted() == {}


@in_loop
async def test_an_identifier_of_a_broker_that_may_come_back_gets_no_other_meaning(tmp_path: Path) -> None:
    """Also over restarts: the address of the broker is changed by one."""
    board = SubscribingGateway(tmp_path / "db", "")
    await board.deploy("f", "y/{source}")
    await board.deploy("one", "z/{source}")
    board.subscribe()
    old = board.ids("z/+")
    assert await board.flows.remove("one")
    board.subscriptions.session_lost()
    saved = board.subscribe()
    board.crash()
    board = SubscribingGateway(tmp_path / "db", saved)
    await board.deploy("other", "w/{source}")
    saved = board.subscribe()
    assert board.ids("w/+") > old
    board.feed(1, 1.0, topic="z/1", ids=old)
    assert board.ingest.inbox.counters.unrouted == 1
    board.crash()


@pytest.mark.parametrize("had", [True, False])
@in_loop
async def test_that_a_broker_had_no_session_is_known_over_restarts(tmp_path: Path, had: bool) -> None:
    board = SubscribingGateway(tmp_path / "db", "")
    await board.deploy("f")
    if had:
        board.feed(1, 1.0, ids=board.ids("x/+"))
    await board.ingest.open_session(Connected(False, "5", 99, "id", 10))
    saved = board.subscribe()
    board.crash()
    board = SubscribingGateway(tmp_path / "db", saved)
    board.feed(5, 1.0, dup=True, ids=board.ids("x/+"))
    assert board.ingest.inbox.counters.perhaps_repeated == had
    board.crash()


@in_loop
async def test_that_nothing_is_saved_though_messages_had_come_is_damage(tmp_path: Path) -> None:
    board = SubscribingGateway(tmp_path / "db")
    await board.deploy("f")
    board.feed(1, 1.0, ids=board.ids("x/+"))
    assert await board.checkpoint()
    board.crash()
    board = SubscribingGateway(tmp_path / "db")
    assert board.subscriptions.lost
    board.crash()


@in_loop
async def test_a_database_that_was_begun_anew_knows_over_starts_that_identifiers_may_be_missing(tmp_path: Path) -> None:
    first = daemon(tmp_path)
    await first.start()
    await first.flows.deploy(document(), "mqtt")
    await ends(first)
    path = tmp_path / "gateway.db"
    raw = bytearray(path.read_bytes())
    at = raw.index(b"CREATE TABLE opening")
    raw[at : at + 10] = b"\xff" * 10
    path.write_bytes(raw)
    for _ in range(2):
        again = daemon(tmp_path)
        await again.start()
        (run,) = again.flows.runs.values()
        route = again.ingest.subscriber.routes.by_id("x/1", (17,))
        await ends(again)
        assert [reader.progress for reader in route.readers] == [run.progress]


# -- what is retained


def asking() -> Any:
    """A flow that wants what is retained."""
    plain = {"in": {"type": "mqtt_source", "topic": "x/{source}", "retained": True}}
    return from_plain(
        {"name": "f", "operators": {**plain, "out": {"type": "publish", "input": "in", "topic": "y"}}}, REGISTRY
    )


def give(given: Subscriptions) -> None:
    """The broker sends what it has retained."""
    given.asked(1, given.open(list(given.wanted(True).values()), by_id=True))
    assert given.answered(1, ())


@pytest.mark.parametrize("how", ["at a start", "before it"])
@in_loop
async def test_a_flow_that_was_removed_is_given_anew_what_is_retained(tmp_path: Path, how: str) -> None:
    """Its file is no longer named; or it was removed while the broker was away, so that this was not saved."""
    flow = asking()
    first = daemon(tmp_path)
    await first.start()
    await first.flows.deploy(flow, "file")
    given = first.ingest.subscriptions
    give(given)
    first.database.set_meta("subscriptions", given.dump())
    if how == "before it":
        await first.flows.remove("f")
    await ends(first)
    second = daemon(tmp_path)
    await second.start()
    await second.flows.deploy(flow, "mqtt")
    waits = [second.ingest.subscriptions.waits(source) for source in second.ingest.subscriptions.sources]
    await ends(second)
    assert waits == [True]


@in_loop
async def test_a_flow_that_could_not_start_and_is_removed_is_a_new_one_when_it_is_deployed_again(
    tmp_path: Path,
) -> None:
    board = SubscribingGateway(tmp_path / "db")
    await board.flows.deploy(asking(), "mqtt")
    give(board.subscriptions)
    saved = board.subscribe()
    board.crash()
    with sqlite3.connect(tmp_path / "db") as db:
        db.execute("UPDATE flow SET document = '{}'")
    board = SubscribingGateway(tmp_path / "db", saved)
    assert list(board.flows.failed) == ["f"]
    assert await board.flows.remove("f")
    await board.deploy("f", "{kind}/{source}")
    assert board.subscriptions.left == {}, "it inherits nothing"
    await board.flows.remove("f")
    await board.flows.deploy(asking(), "mqtt")
    assert [board.subscriptions.waits(source) for source in board.subscriptions.sources] == [True]
    board.crash()


@in_loop
async def test_a_flow_that_was_stopped_may_go_on_and_is_known_then(tmp_path: Path) -> None:
    board = SubscribingGateway(tmp_path / "db")
    await board.flows.deploy(asking(), "mqtt")
    give(board.subscriptions)
    old = board.ids("x/+")
    board.flows.fail(board.flows.runs["f"], "its slots died")
    await asyncio.gather(*board.flows.losses.telling.running)
    saved = board.subscribe()
    board.crash()
    board = SubscribingGateway(tmp_path / "db", saved)
    assert [board.subscriptions.waits(source) for source in board.subscriptions.sources] == [False]
    await board.deploy("f", "{kind}/{source}")
    board.feed(1, 1.0, ids=old)  # had waited at the broker
    assert await board.counted() == {"f": 1}


@in_loop
async def test_an_equal_message_that_comes_while_the_gateway_ends_counts_when_it_comes_again(tmp_path: Path) -> None:
    before, equal = daemon(tmp_path), Publish("x/a", b'{"time": %f}' % 1_700_000_001.0, 1, False, False, 1, ())
    await before.start()
    await before.flows.deploy(document(), "mqtt")
    before.ingest.feed([equal])
    good_bye = before.ingest.client.stop

    async def stop() -> None:
        before.ingest.messages([equal])  # behind the last checkpoint
        await good_bye()

    with patch.object(before.ingest.client, "stop", stop):
        await ends(before)
    after = Gateway(tmp_path / "gateway.db")
    after.feed(1, 1.0, dup=True)
    await after.flows.remove("f")
    assert after.shipped() == 2
    after.crash()
