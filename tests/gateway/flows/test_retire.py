"""What becomes of a flow that does not stop at once when it is to be replaced or removed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from edgert.core.errors import EdgertError
from gateway.checkpoint.input_spill import PATIENCE_S
from gateway.flows import retire
from tests.gateway.whole_gateway import Gateway, document
from tests.gateway.worlds import gaps
from tests.waiting import in_loop

Halt = Callable[..., bool]


async def stuck(
    path: Path, monkeypatch: pytest.MonkeyPatch, tries: Callable[[Halt], Halt], hold_s: float = retire.HOLD_S
) -> Gateway:
    """A flow with an open window that counts as blocked, and has for long. `tries` gives the host's `halt`."""
    gateway = Gateway(path)
    retirement = gateway.flows.retirement
    retirement.hold_s, retirement.hold_turn_s, retirement.between_s = hold_s, 0.001, 0.0
    await gateway.flows.deploy(document(), "mqtt")
    gateway.feed(1, 1.0)
    assert await gateway.checkpoint()
    gateway.checkpointer.input_spill.failed(gateway.flows.runs["f"])
    gateway.clock.advance(PATIENCE_S + 2 * retire.HOLD_S)
    monkeypatch.setattr(gateway.host.checkpoints, "halt", tries(gateway.host.checkpoints.halt))
    return gateway


@in_loop
async def test_one_that_was_blocked_for_long_is_waited_for_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its turns take longer than it is waited for at a time."""
    tried: list[float] = []

    def third(halt: Halt) -> Halt:
        def tries(*given: Any) -> bool:
            tried.append(0.0)
            return len(tried) > 2 and halt(*given)

        return tries

    gateway = await stuck(tmp_path / "db", monkeypatch, third)
    assert await gateway.flows.remove("f")
    assert (gateway.shipped(), gaps(gateway)) == (1, [])
    gateway.crash()


@in_loop
async def test_one_whose_slot_is_started_again_is_not_left_to_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gateway = await stuck(tmp_path / "db", monkeypatch, lambda halt: lambda *_: False, hold_s=0.0)
    with monkeypatch.context() as patch:
        patch.setattr(gateway.host.checkpoints, "is_up", lambda run: False)
        with pytest.raises(EdgertError, match="try again"):
            await gateway.flows.remove("f")
    assert list(gateway.flows.runs) == ["f"]
    assert await gateway.flows.remove("f")
    assert len(gaps(gateway)) == 1
    gateway.crash()


@pytest.mark.parametrize("replaced", [True, False])
@in_loop
async def test_one_whose_state_cannot_be_taken_can_be_replaced_and_removed(
    replaced: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:

    def raises(*_: Any) -> bool:
        raise RuntimeError("no state")

    gateway = await stuck(tmp_path / "db", monkeypatch, lambda halt: raises, hold_s=0.0)
    gateway.checkpointer.input_spill.succeeded(gateway.flows.runs["f"])  # as at a start, which makes no checkpoint yet
    if replaced:
        assert await gateway.flows.deploy(document(description="repaired"), "file") == 2
    else:
        assert await gateway.flows.remove("f")
    (gap,) = gaps(gateway)
    assert "no state" in gap.text
    gateway.crash()


@pytest.mark.parametrize("replaced", [True, False])
@in_loop
async def test_one_that_is_given_up_meanwhile_is_replaced_and_removed_as_one_that_failed(
    replaced: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its slot has died once too often."""
    loop = asyncio.get_running_loop()

    def gone(*_: Any) -> bool:
        loop.call_soon_threadsafe(gateway.flows.fail, gateway.flows.runs["f"], "its slots died")
        raise KeyError("the run")

    gateway = await stuck(tmp_path / "db", monkeypatch, lambda halt: gone)
    if replaced:
        assert await gateway.flows.deploy(document(description="repaired"), "mqtt") == 2
        gateway.feed(2, 2.0)
        assert [run.version for run in gateway.flows.runs.values()] == [2]
        monkeypatch.undo()
    assert await gateway.flows.remove("f")
    assert (len(gaps(gateway)), gateway.shipped()) == (2, 1 if replaced else 0)
    assert (gateway.flows.failed, gateway.flows.runs) == ({}, {})
    gateway.crash()
