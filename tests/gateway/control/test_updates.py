"""The gateway's part in updates of its board: it leaves a sound request for root, and publishes what root tells."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from edgert.boards.board_state import BoardState, UpdateProgress
from edgert.boards.requests import UpdateRequest, read_request_untrusted
from edgert.core.errors import EdgertError
from edgert.core.settings.gateway import Gateway, GatewaySettings, Updates, update_request
from gateway.control.updates import BoardUpdates
from tests.waiting import in_loop, until

ASKED = {"id": "r1", "url": "http://h/x.raucb", "version": "2", "drain": False}


class Told:
    """What root tells, and a broker that keeps it."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        self.state, self.request = folder / "state.json", folder / "request"
        self.published: list[BoardState] = []
        self.connects, self.connected = 1, True
        self.updates = BoardUpdates(
            Updates(state=str(self.state), **settings), str(self.request), self._publish, lambda: self.connects
        )
        self.updates.look_s = 0.001

    def _publish(self, state: bytes) -> bool:
        if self.connected:
            self.published.append(BoardState(**(plain := json.loads(state)) | {"update": _progress(plain["update"])}))
        return self.connected

    def tell(self, update: UpdateProgress | None, refuses: str = "") -> None:
        part = self.state.with_suffix(".part")
        part.write_text(BoardState("A", "1", refuses, update).text())
        part.replace(self.state)


def _progress(plain: dict[str, Any] | None) -> UpdateProgress | None:
    return UpdateProgress(**plain) if plain else None


@in_loop
async def test_a_request_is_left_for_root_and_for_nobody_else(tmp_path: Path) -> None:
    told = Told(tmp_path)
    told.tell(UpdateProgress("confirmed", "1", "earlier"))
    assert await told.updates.update(ASKED) == {"asked": True, "id": "r1", "version": "1"}
    assert read_request_untrusted(told.request.read_bytes()) == UpdateRequest("r1", "http://h/x.raucb", "2")
    assert told.request.stat().st_mode & 0o777 == 0o600


@in_loop
async def test_asked_again_with_the_same_id_nothing_more_is_left(tmp_path: Path) -> None:
    told = Told(tmp_path)
    told.tell(None)
    await told.updates.update(ASKED)
    assert (await told.updates.update(ASKED))["asked"]
    told.request.unlink()
    told.tell(UpdateProgress("installing", "2", "r1", percent=3))
    assert (await told.updates.update(ASKED))["asked"]
    assert not told.request.exists()


@pytest.mark.parametrize(
    ("state", "arguments", "settings", "why"),
    [
        (None, ASKED, {}, "made from an image with two slots"),
        ("always starts slot A", ASKED, {}, "always starts slot A"),
        (
            UpdateProgress("installing", "3", "other", percent=40),
            ASKED,
            {},
            "another update is under way here: 3, installing 40",
        ),
        (UpdateProgress("on trial", "3"), ASKED, {}, "another update is under way here: 3, on trial"),
        (UpdateProgress("confirmed"), {**ASKED, "url": "file:///etc/shadow"}, {}, "url: expected http"),
        (UpdateProgress("confirmed"), {}, {}, "id: expected"),
        (UpdateProgress("confirmed"), ASKED, {"enabled": False}, "updates.enabled is false"),
    ],
)
def test_a_request_that_is_not_taken_leaves_nothing(
    tmp_path: Path, state: UpdateProgress | str | None, arguments: dict[str, Any], settings: dict[str, Any], why: str
) -> None:
    @in_loop
    async def run() -> None:
        told = Told(tmp_path, **settings)
        if isinstance(state, str):
            told.tell(None, state)
        elif state is not None:
            told.tell(state)
        with pytest.raises(EdgertError, match=why):
            await told.updates.update(arguments)
        assert not told.request.exists()

    run()


@in_loop
async def test_a_second_request_does_not_replace_one_that_root_has_not_seen(tmp_path: Path) -> None:
    told = Told(tmp_path)
    told.tell(None)
    await told.updates.update(ASKED)
    with pytest.raises(EdgertError, match="a moment ago"):
        await told.updates.update({**ASKED, "id": "r2"})
    assert read_request_untrusted(told.request.read_bytes()).id == "r1"


@in_loop
async def test_a_folder_that_is_not_there_is_told(tmp_path: Path) -> None:
    told = Told(tmp_path)
    told.updates._request = tmp_path / "none" / "request"
    told.tell(None)
    with pytest.raises(EdgertError, match="cannot be written: No such file"):
        await told.updates.update(ASKED)


@in_loop
async def test_each_change_is_published_and_each_connection_is_told(
    tmp_path: Path,
) -> None:
    told = Told(tmp_path)
    task = asyncio.create_task(told.updates.run())
    steps = [UpdateProgress("checking"), UpdateProgress("installing", percent=50), UpdateProgress("installed")]
    for number, step in enumerate(steps, 1):
        told.tell(step)
        await until(lambda: len(told.published) == number, "the state")  # noqa: B023
    told.connected = False
    told.tell(UpdateProgress("on trial"))
    told.connects, told.connected = 2, True
    await until(lambda: len(told.published) == 4, "the state for the new connection")
    assert [state.update for state in told.published] == [*steps, UpdateProgress("on trial")]
    told.state.write_bytes(b"nonsense")
    task.cancel()


def test_the_request_stands_in_the_runtime_folder_of_the_service() -> None:
    settings = GatewaySettings()
    assert update_request(settings, {"RUNTIME_DIRECTORY": "/run/edgert"}, root=False) == "/run/edgert/update.request"
    own = GatewaySettings(gateway=Gateway(data_dir="/data"))
    assert update_request(own, {}, root=False) == "/data/update.request"
    assert update_request(GatewaySettings(updates=Updates(request="/x/y")), {}, root=True) == "/x/y"
