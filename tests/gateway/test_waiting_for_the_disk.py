"""A change of a flow that waits for a full disk keeps nobody else waiting: not a start, its end, nor a command."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from edgert.core.errors import StoreError
from edgert.core.settings.gateway import Central, Flows, Gateway, GatewaySettings, Sensors, Web
from edgert.mqtt.clients.control_plane import MqttRequest
from gateway.base.retry_log import RetryLog
from gateway.daemon import Daemon
from tests.gateway.daemons import DOCUMENT, Board
from tests.waiting import DEADLINE_S, in_loop, until

WAITS = "a change of a flow waits for the database: the disk is full"


class FullDisk:
    """New versions of flows cannot be written while `full`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.full = False
        self.tries = 0
        self._monkeypatch = monkeypatch

    def under(self, daemon: Daemon) -> None:
        self.full = True
        put_flow = daemon.database.put_flow

        def put(*arguments: Any, **more: Any) -> None:
            if self.full:
                self.tries += 1
                raise StoreError("the disk is full")
            put_flow(*arguments, **more)

        self._monkeypatch.setattr(daemon.database, "put_flow", put)
        daemon.flow_registry.retry_s = 0.002


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> FullDisk:
    return FullDisk(monkeypatch)


@asynccontextmanager
async def starting(folder: Path, disk: FullDisk, files_s: float = 0.0) -> AsyncIterator[Daemon]:
    """A start with the second version of flow `a` in its file, on a full disk, that waits for it. Ends it."""
    board = Board(folder)
    await board.start(board.file("a", "first"))
    daemon = Daemon(
        GatewaySettings(
            gateway=Gateway(id="g1", data_dir=str(folder / "data")), sensors=Sensors(port=1), web=Web(enabled=False),
            central=Central(enabled=False), flows=Flows(files=(board.file("a", "second"),)),
        )
    )  # fmt: skip
    daemon.files_s = files_s
    disk.under(daemon)
    running = asyncio.create_task(daemon.run())
    try:
        await until(lambda: disk.tries > 2, "the new version to wait for the disk")
        yield daemon
    finally:
        daemon.stop()
        async with asyncio.timeout(DEADLINE_S):
            await running


def runs(daemon: Daemon) -> str:
    return daemon.flows.runs["a"].flow.description


@in_loop
async def test_a_start_that_waits_for_the_disk_can_be_ended_and_says_once_that_it_waits(
    tmp_path: Path, disk: FullDisk, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with starting(tmp_path, disk, DEADLINE_S) as daemon:
        assert not daemon.tasks, "it still starts"
    errors = [r for r in caplog.records if r.levelno >= logging.ERROR]
    assert [r.message for r in errors if r.name == "gateway.flows.writes"] == [WAITS]
    board = Board(tmp_path)
    assert await board.start(board.file("a", "second")) == {"a": "second"}, "the next start does it again"


@in_loop
async def test_a_start_waits_for_a_while_only_and_the_new_version_follows_when_there_is_room(
    tmp_path: Path, disk: FullDisk
) -> None:
    async with starting(tmp_path, disk) as daemon:
        await until(lambda: daemon.tasks, "the rest of the gateway")
        text = DOCUMENT.format(name="a", description="over MQTT").encode()
        daemon.central.message_untrusted(f"{daemon.mqtt_api.base}/flows/a", text, None)
        await until(lambda: daemon.central.documents.qsize() == 1, "a document that comes over MQTT, to wait")
        assert daemon.flows.version("a") == 1
        disk.full = False
        await until(lambda: daemon.flows.version("a") == 3, "both new versions")
        assert runs(daemon) == "over MQTT", "it counts more than the file"


@in_loop
async def test_commands_are_answered_while_a_document_waits_for_the_disk(tmp_path: Path, disk: FullDisk) -> None:
    answers: dict[str, Any] = {}

    def published(topic: str, payload: bytes, *_: object) -> None:
        answers[topic] = json.loads(payload)

    async with starting(tmp_path, disk) as daemon:
        await until(lambda: daemon.tasks, "the rest of the gateway")
        daemon.mqtt_api.answer = published
        daemon.commands.patience_s = 0.01
        for verb in ("checkpoint", "status"):
            daemon.central.message_untrusted(
                f"{daemon.mqtt_api.base}/cmd/{verb}", b"", MqttRequest(f"answer/{verb}", None)
            )
        await until(lambda: len(answers) == 2, "both answers")
        assert "a change of a flow waits" in answers["answer/checkpoint"]["error"]
        assert [flow["name"] for flow in answers["answer/status"]["flows"]] == ["a"]


@in_loop
async def test_a_question_is_answered_while_a_command_waits(tmp_path: Path, disk: FullDisk) -> None:
    answers: dict[str, Any] = {}
    free = asyncio.Event()

    async def place(_: Mapping[str, Any]) -> Mapping[str, Any]:
        await free.wait()
        return {"placed": True}

    def published(topic: str, payload: bytes, *_: object) -> None:
        answers[topic] = json.loads(payload)

    async with starting(tmp_path, disk) as daemon:
        await until(lambda: daemon.tasks, "the rest of the gateway")
        daemon.mqtt_api.answer = published
        daemon.commands.patience_s = 0.01
        daemon.mqtt_api.commands = {**daemon.mqtt_api.commands, "place": place}
        for verb in ("place", "status"):
            daemon.central.message_untrusted(
                f"{daemon.mqtt_api.base}/cmd/{verb}", b"", MqttRequest(f"answer/{verb}", None)
            )
        await until(lambda: answers, "an answer")
        assert list(answers) == ["answer/status"]
        free.set()
        await until(lambda: len(answers) == 2, "the other answer")


def test_an_error_is_said_again_when_another_came_between(caplog: pytest.LogCaptureFixture) -> None:
    errors = RetryLog(logging.getLogger("gateway"))
    for error in ("full", "full", "gone", "gone", "full"):
        errors.error("flow %s waits: %s", "f", error)
    assert [r.message for r in caplog.records] == [f"flow f waits: {e}" for e in ("full", "gone", "full")]
