"""A board is drained for its restart and filled afterwards, over the control socket of an agent."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from edgert.cli.board import drain, slots
from edgert.control.server import ControlServer
from edgert.core.errors import EdgertError


class Agent:
    """Answers as the agent of board g1 does."""

    def __init__(self) -> None:
        self.came: list[tuple[str, Any]] = []
        self.error = ""
        self.drained = False
        self.stays: dict[str, str] = {}
        self.third: Callable[[], Any] = lambda: None
        """Called with the third request."""

    def handler(self, verb: str) -> Any:
        async def handle(arguments: Mapping[str, Any]) -> Any:
            if verb == "status":
                return {"gateway": "g1", "drained": self.drained}
            self.came.append((verb, arguments["board"]))
            if len(self.came) == 3:
                self.third()
            if self.error:
                raise EdgertError(self.error)
            before, self.drained = self.drained, verb == "drain"
            return {"board": "g1", "before": before, "moved": {}, "stays": self.stays, "pause_s": 0.0}

        return handle


@pytest.fixture
def agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Agent]:
    monkeypatch.setattr(slots, "NOTES", tmp_path / "update")
    monkeypatch.setattr(drain, "AGAIN_S", 0.0)
    monkeypatch.setattr(drain, "LATER_S", 0.0)
    monkeypatch.setattr("edgert.cli._control.AGENT_CONFIG", tmp_path / "none.toml")
    monkeypatch.setenv("EDGERT_AGENT_SOCKET", str(tmp_path / "agent.sock"))
    made = Agent()
    verbs = ("status", "drain", "fill")
    server = ControlServer(tmp_path / "agent.sock", {f"fleet.{verb}": made.handler(verb) for verb in verbs})
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    asyncio.run_coroutine_threadsafe(server.start(), loop).result(60.0)
    yield made
    asyncio.run_coroutine_threadsafe(server.stop(), loop).result(60.0)
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


def test_a_board_is_drained_and_filled_once(agent: Agent, capsys: pytest.CaptureFixture[str]) -> None:
    drain.fill()
    agent.stays = {"air": "no board has its label"}
    drain.drain()
    assert "flow air stays on this board: no board has its label" in capsys.readouterr().err
    agent.stays = {}
    drain.fill()
    drain.fill()
    assert agent.came == [("drain", "g1"), ("fill", "g1")]


def test_a_board_that_cannot_be_filled_yet_is_tried_again_at_the_next_start(
    agent: Agent, capsys: pytest.CaptureFixture[str]
) -> None:
    drain.drain()
    agent.error = "its gateway does not answer"
    drain.fill()
    assert "still drained" in (said := capsys.readouterr().err)
    assert agent.error in said
    assert len(agent.came) == 1 + drain.TRIES
    agent.error = ""
    drain.fill()
    drain.fill()
    assert len(agent.came) == 2 + drain.TRIES


def test_an_operator_that_cannot_come_back_yet_is_asked_for_again_also_at_the_next_start(
    agent: Agent, capsys: pytest.CaptureFixture[str]
) -> None:
    drain.drain()
    agent.stays = {"air": "its plan is being changed"}
    drain.fill()
    assert "flow air stays elsewhere: its plan is being changed" in capsys.readouterr().err
    assert len(agent.came) == 1 + drain.TRIES + drain.LATER_TRIES
    agent.stays = {}
    drain.fill()
    drain.fill()
    assert len(agent.came) == 2 + drain.TRIES + drain.LATER_TRIES


def test_a_drain_that_people_asked_for_is_not_ended_by_the_update(agent: Agent) -> None:
    agent.drained = True
    drain.drain()
    drain.fill()
    assert agent.came == [("drain", "g1")]


def test_a_drain_that_people_ask_for_while_operators_come_back_is_not_ended(agent: Agent) -> None:
    drain.drain()
    agent.stays = {"air": "its plan is being changed"}
    drain.fill()
    asked = len(agent.came)
    agent.drained = True
    drain.drain()
    drain.fill()
    assert len(agent.came) == asked + 1


def test_a_drain_for_the_next_update_is_not_ended_by_the_one_before(agent: Agent) -> None:
    drain.drain()
    agent.stays = {"air": "its plan is being changed"}
    agent.third = lambda: (slots.NOTES / drain.DRAINED).write_bytes(b"")
    drain.fill()
    assert len(agent.came) == 3
