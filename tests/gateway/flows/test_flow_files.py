"""Flows from files named in the settings, over starts in which files and retained documents change."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from tests.gateway.daemons import Board
from tests.waiting import in_loop


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
