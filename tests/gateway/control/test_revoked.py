"""The gateway hands a list of revoked certificates to root, and tells which one the board has."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from edgert.core.text.revoked_topic import list_digest, revoked_topic
from gateway.control.mqtt_api import MqttApi
from gateway.control.revoked import MOST_BYTES, RevokedList
from tests.gateway.mqtt_api_rig import FakeFlows
from tests.waiting import in_loop, until


class World:
    def __init__(self, folder: Path) -> None:
        self.stored, self.left = folder / "crl.pem", folder / "crl.request"
        self.published: list[str] = []
        self.connects = 1
        self.list = RevokedList(str(self.stored), str(self.left), self._publish, lambda: self.connects)

    def _publish(self, state: bytes) -> bool:
        self.published.append(json.loads(state)["digest"])
        return True


@in_loop
async def test_a_list_that_the_board_lacks_is_left_for_root(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.stored.write_bytes(b"old")
    for payload in (b"old", b"", b"x" * (MOST_BYTES + 1)):
        await world.list.take_untrusted(payload)
        assert not world.left.exists()
    for payload in (b"new", b"newer"):
        await world.list.take_untrusted(payload)
        assert world.left.read_bytes() == payload
    assert world.left.stat().st_mode & 0o777 == 0o600


@in_loop
async def test_a_folder_that_is_not_there_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    world = World(tmp_path / "none")
    await world.list.take_untrusted(b"new")
    assert "cannot be handed over" in caplog.text


@in_loop
async def test_the_list_of_the_board_is_told_at_each_change_and_connection(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.list.look_s = 0.001
    task = asyncio.create_task(world.list.run())
    await until(lambda: len(world.published) == 1, "the first state")
    world.stored.write_bytes(b"new")
    await until(lambda: world.published[-1] == list_digest(b"new"), "the new state")
    before = len(world.published)
    world.connects = 2
    await until(lambda: len(world.published) > before, "the state for the new connection")
    assert world.published[0] == list_digest(b"")
    task.cancel()


@in_loop
async def test_the_list_is_asked_for_where_there_is_one(tmp_path: Path) -> None:
    def api(world: World | None) -> MqttApi:
        take = world.list.take_untrusted if world else None
        return MqttApi("farm", "g1", FakeFlows(), None, None, revoked=take)  # type: ignore[arg-type]

    topic = revoked_topic("farm")
    assert (topic, 1) not in api(None).subscriptions
    await api(None).handle_untrusted(topic, b"new", None)
    world = World(tmp_path)
    assert (topic, 1) in api(world).subscriptions
    await api(world).handle_untrusted(topic, b"new", None)
    assert world.left.read_bytes() == b"new"
