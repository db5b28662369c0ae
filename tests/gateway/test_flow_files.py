"""Flows from files named in the settings, over starts in which files and retained documents change."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from edgert.core.settings.gateway import Flows, Gateway, GatewaySettings
from edgert.flow.document import load
from gateway.daemon import Daemon
from gateway.flows.files import deploy_files
from tests.waiting import in_loop

DOCUMENT = """
name = "{name}"
description = "{description}"
[operators.in]
type = "mqtt_source"
topic = "x/{{source}}"
[operators.out]
type = "publish"
input = "in"
topic = "y"
"""


class Board:
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def file(self, name: str, description: str = "") -> str:
        path = self.folder / f"{name}.toml"
        path.write_text(DOCUMENT.format(name=name, description=description))
        return str(path)

    async def start(self, *files: str, mqtt: str = "", description: str = "mqtt") -> dict[str, str]:
        """One life with these `flows.files`, in which flow `mqtt` comes over MQTT; name → description of what ran."""
        gateway = Gateway(id="g1", data_dir=str(self.folder / "data"))
        daemon = Daemon(GatewaySettings(gateway=gateway, flows=Flows(files=files)))
        daemon.flows.load()
        await daemon.host.start()
        try:
            await deploy_files(daemon.flows, daemon.settings.flows.files)
            if mqtt:
                text = DOCUMENT.format(name=mqtt, description=description).encode()
                await daemon.flows.deploy(load(text, daemon.flows.registry), "mqtt")
            return {name: run.flow.description for name, run in sorted(daemon.flows.runs.items())}
        finally:
            await daemon.host.stop()
            daemon.database.close()


@pytest.fixture
def board(tmp_path: Path) -> Board:
    return Board(tmp_path)


@in_loop
async def test_a_flow_whose_file_is_no_longer_named_is_removed_at_the_next_start(board: Board) -> None:
    a, b = board.file("a"), board.file("b")
    assert await board.start(a, b, mqtt="c") == {"a": "", "b": "", "c": "mqtt"}
    assert await board.start(b) == {"b": "", "c": "mqtt"}
    assert await board.start(a, b) == {"a": "", "b": "", "c": "mqtt"}, "named again, it runs again"


@in_loop
async def test_a_file_that_cannot_be_read_removes_nothing(board: Board) -> None:
    a, b = board.file("a"), board.file("b")
    await board.start(a, b)
    board.file("a", 'an "odd" one')
    assert await board.start(a, b) == {"a": "", "b": ""}
    assert await board.start(a, str(board.folder / "none.toml")) == {"a": "", "b": ""}


@in_loop
async def test_a_file_changes_its_flow_until_that_was_deployed_over_mqtt(
    board: Board, caplog: pytest.LogCaptureFixture
) -> None:
    await board.start(board.file("a", "first"))
    assert await board.start(board.file("a", "second")) == {"a": "second"}
    assert await board.start(board.file("a", "second"), mqtt="a") == {"a": "mqtt"}
    with caplog.at_level(logging.INFO):
        assert await board.start(board.file("a", "third")) == {"a": "mqtt"}
    assert "a.toml is not used: flow a was deployed over MQTT since" in caplog.text


@pytest.mark.parametrize("then", ["another text", "no file"])
@in_loop
async def test_the_document_of_a_file_that_comes_over_mqtt_too_belongs_there_from_then_on(
    board: Board, then: str
) -> None:
    assert await board.start(board.file("a", "same"), mqtt="a", description="same") == {"a": "same"}
    files = [board.file("a", "third")] if then == "another text" else []
    assert await board.start(*files) == {"a": "same"}, "what is retained is not replaced, nor removed, by its file"


@in_loop
async def test_a_file_with_the_document_that_came_over_mqtt_does_not_take_it_back(board: Board) -> None:
    await board.start(mqtt="a", description="same")
    assert await board.start(board.file("a", "same")) == {"a": "same"}
    assert await board.start() == {"a": "same"}
