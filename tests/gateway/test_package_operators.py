"""An operator of a package that cannot be made, or be brought back to its state, costs its own flow and no other."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from edgert.core.batch import Batch, RawBatch
from edgert.flow.document import load
from edgert.flow.spec import OperatorSpec
from edgert.operators.base.logic import Emission, Logic, Now
from edgert.operators.registry import REGISTRY
from gateway.daemon import Daemon
from tests.gateway.daemons import DOCUMENT, daemon, ends
from tests.waiting import in_loop

THEIRS = """
name = "theirs"
[operators.in]
type = "mqtt_source"
topic = "x/{source}"
[operators.op]
type = "asking"
input = "in"
[operators.out]
type = "publish"
input = "op"
topic = "y"
"""


class Device:
    def __init__(self) -> None:
        self.away: tuple[str, Exception] | None = None
        """When it does not answer, and what that raises."""

    def ask(self, when: str) -> None:
        if self.away and self.away[0] == when:
            raise self.away[1]


class Asking(Logic):
    """Asks a device when it is made and when it is restored."""

    def __init__(self, device: Device) -> None:
        super().__init__()
        self._device = device
        device.ask("made")

    def process(self, batch: Batch | RawBatch, source: int, now: Now) -> Sequence[Emission]:
        return ()

    def snapshot(self) -> Any:
        return {"asked": 1}

    delta = snapshot

    def restore(self, state: Any) -> None:
        self._device.ask("restored")


@pytest.fixture(autouse=True)
def device(monkeypatch: pytest.MonkeyPatch) -> Device:
    """That of the operators of an installed package."""
    made = Device()
    asking = OperatorSpec("asking", "Of a package.", logic=lambda build: Asking(made))
    registry = MappingProxyType({**REGISTRY, "asking": asking})
    monkeypatch.setattr("gateway.daemon.with_installed", lambda: (registry, {}))
    return made


async def both(folder: Path) -> Daemon:
    """A gateway that runs a flow with such an operator, and another one."""
    board = daemon(folder)
    await board.start()
    for text in (THEIRS, DOCUMENT.format(name="good", description="")):
        await board.flows.deploy(load(text.encode(), board.flows.registry), "mqtt")
    return board


@pytest.mark.parametrize("raised", [ConnectionError("no answer"), RuntimeError("no answer")])
@pytest.mark.parametrize("when", ["made", "restored"])
@in_loop
async def test_the_gateway_starts_without_that_flow_and_the_next_start_has_it_again(
    when: str, raised: Exception, tmp_path: Path, device: Device, caplog: pytest.LogCaptureFixture
) -> None:
    await ends(await both(tmp_path))
    device.away = (when, raised)
    board = daemon(tmp_path)
    with caplog.at_level(logging.ERROR):
        await board.start()
    assert (list(board.flows.runs), board.flows.failed) == (["good"], {"theirs": repr(raised)})
    assert "flow theirs cannot go on and is not started" in caplog.text
    await ends(board)
    device.away = None
    board = daemon(tmp_path)
    await board.start()
    assert (sorted(board.flows.runs), board.flows.failed) == (["good", "theirs"], {})
    assert board.flows.version("theirs") == 1
    await ends(board)


@in_loop
async def test_nor_does_it_keep_others_from_starting_when_the_database_was_set_aside(
    tmp_path: Path, device: Device
) -> None:
    await ends(await both(tmp_path))
    path = tmp_path / "gateway.db"
    path.write_bytes(path.read_bytes().replace(b"CREATE TABLE opening", b"\xff" * 20))
    device.away = ("made", RuntimeError("no answer"))
    board = daemon(tmp_path)
    await board.start()
    assert (list(board.flows.runs), list(board.flows.failed)) == (["good"], ["theirs"])
    assert "is damaged" in board.flows.gaps["good"]
    await ends(board)


@in_loop
async def test_a_flow_file_whose_operator_cannot_be_made_is_said_and_costs_no_other(
    tmp_path: Path, device: Device, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "theirs.toml").write_text(THEIRS)
    (tmp_path / "good.toml").write_text(DOCUMENT.format(name="good", description=""))
    device.away = ("made", RuntimeError("no answer"))
    board = daemon(tmp_path, str(tmp_path / "theirs.toml"), str(tmp_path / "good.toml"))
    with caplog.at_level(logging.ERROR):
        await board.start()
    assert list(board.flows.runs) == ["good"]
    assert "theirs.toml is not deployed: no answer" in caplog.text
    await ends(board)
