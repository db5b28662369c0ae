"""State is merged by a process of its own, while checkpoints go on."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from edgert.core.checkpoint.position import Position
from edgert.mqtt.packets.packets import Publish
from edgert.operators.base.logic import Now
from edgert.runtime.checkpoint.progress import Progress
from edgert.runtime.flow_run import FlowRun
from gateway.checkpoint import compaction
from tests.gateway.whole_gateway import Gateway, document
from tests.waiting import in_loop, until

START = 1_700_000_000


async def deployed(path: Path, python: str = sys.executable) -> Gateway:
    """`python`: what merges."""
    gateway = Gateway(path / "db")
    gateway.checkpointer.merged_here_bytes = 0
    gateway.checkpointer.compaction.python = python
    await gateway.flows.deploy(document(), "mqtt")
    return gateway


async def checkpoint(gateway: Gateway, number: int) -> None:
    """With something of a device that the flow has not heard yet. Nothing is too small to be merged."""
    for run in gateway.flows.runs.values():
        run.size.compact_bytes = 0
    gateway.ingest.feed([Publish(f"x/{number}", b'{"time": %d}' % (START + number % 9), 1, False, False, number)])
    assert gateway.pool.wait_empty(gateway.flows.runs["f"].all, 60.0)
    assert await gateway.checkpoint()


def script(folder: Path, text: str) -> str:
    """What is started in the place of Python."""
    path = folder / "script"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o700)
    return str(path)


def stored(gateway: Gateway) -> dict[str, Any]:
    """What the stored state amounts to."""
    run = gateway.flows.runs["f"]
    again = FlowRun(run.flow, run.registry, 1, 1, Progress(Position()))
    again.restore(gateway.database.state("f"), b"", Now(0.0, START))
    return {name: place.logic.snapshot() for name, place in again.stages.items()}


def kept(gateway: Gateway) -> dict[str, Any]:
    return {name: place.logic.snapshot() for name, place in gateway.flows.runs["f"].stages.items()}


@in_loop
@pytest.mark.parametrize("noise", ["before", "behind"])
async def test_what_is_no_whole_snapshot_is_not_stored(tmp_path: Path, noise: str) -> None:
    run = f'{sys.executable} "$@"'
    text = f"echo hello; {run}" if noise == "before" else f"{run}; echo hello"
    gateway = await deployed(tmp_path, script(tmp_path, text))
    await checkpoint(gateway, 1)
    before = kept(gateway)
    deltas = gateway.database.state("f")
    await gateway.checkpointer.compaction.done()
    assert gateway.database.state("f") == deltas
    assert stored(gateway) == before
    gateway.crash()


@in_loop
async def test_the_snapshot_takes_the_place_of_what_it_says_and_later_deltas_stay(tmp_path: Path) -> None:
    begun, go = tmp_path / "begun", tmp_path / "go"
    python = script(tmp_path, f'touch {begun}; while [ ! -e {go} ]; do sleep 0.01; done; exec {sys.executable} "$@"')
    gateway = await deployed(tmp_path, python)
    await checkpoint(gateway, 1)
    assert 0.0 < gateway.checkpointer.status.pause_ms < gateway.checkpointer.status.last_ms
    await until(begun.exists, "the process")
    await checkpoint(gateway, 2)
    go.touch()
    await gateway.checkpointer.compaction.done()
    snapshot, later = gateway.database.state("f")
    assert stored(gateway) == kept(gateway)
    run = gateway.flows.runs["f"]
    assert run.size.total == len(snapshot) + len(later)
    assert [acc for _, _, acc in kept(gateway)["minute"]["windows"]] == [[2]]
    gateway.crash()


@in_loop
async def test_what_became_of_a_flow_meanwhile_is_not_touched(tmp_path: Path) -> None:
    gateway = await deployed(tmp_path)
    await checkpoint(gateway, 1)
    await gateway.flows.deploy(document(topic="y/{source}"), "mqtt")  # which keeps no state
    await gateway.checkpointer.compaction.done()
    assert gateway.database.state("f") == []
    await checkpoint(gateway, 2)
    await gateway.checkpointer.compaction.done()
    assert stored(gateway) == kept(gateway)
    gateway.crash()


@in_loop
async def test_a_process_that_fails_costs_room_only_and_is_not_started_at_once_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    gateway = await deployed(tmp_path)
    for fault in ("false", "true", str(tmp_path / "missing")):
        gateway.checkpointer.compaction.python = fault
        before = len(caplog.records)
        await checkpoint(gateway, before + 1)
        await gateway.checkpointer.compaction.done()
        assert "could not be merged" in caplog.records[-1].message
        assert len(caplog.records) == before + 1
        await checkpoint(gateway, before + 100)
        assert not gateway.checkpointer.compaction.under_way
        gateway.checkpointer.compaction._not_before.clear()
    assert stored(gateway) == kept(gateway)
    gateway.crash()


def test_the_process_is_killed_in_the_gateways_place_where_memory_runs_out() -> None:
    code = (
        "from gateway.checkpoint.compaction import give_way; give_way(); print(open('/proc/self/oom_score_adj').read())"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert said.split() == ["1000"]


@in_loop
async def test_a_process_that_is_killed_is_told_of_and_leaves_the_deltas(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    gateway = await deployed(tmp_path, script(tmp_path, "kill -9 $$"))
    await checkpoint(gateway, 1)
    await gateway.checkpointer.compaction.done()
    assert "was killed: the memory of this service is too small for it" in caplog.text
    assert stored(gateway) == kept(gateway)
    gateway.crash()


@in_loop
async def test_flows_are_merged_one_after_the_other(tmp_path: Path) -> None:
    """On a board with little memory, and so that none waits for a thread that brings a flow to stand still."""
    busy, both = tmp_path / "busy", tmp_path / "both"
    python = script(tmp_path, f'mkdir {busy} || touch {both}; {sys.executable} "$@"; rmdir {busy}')
    gateway = await deployed(tmp_path, python)
    for name in ("g", "h"):
        await gateway.flows.deploy(document(name), "mqtt")
    await checkpoint(gateway, 1)
    merged = {name: gateway.flows.runs[name] for name in ("f", "g")}
    await gateway.flows.remove("h")
    await gateway.checkpointer.compaction.done()
    assert not both.exists()
    assert all(run.size.snapshot and not run.size.deltas for run in merged.values())
    gateway.crash()


@in_loop
async def test_who_stops_waits_neither_for_it_nor_for_what_was_to_come(tmp_path: Path) -> None:
    gateway = await deployed(tmp_path, script(tmp_path, f"echo $$ >>{tmp_path}/pid; exec sleep 60"))
    await gateway.flows.deploy(document("g"), "mqtt")
    await checkpoint(gateway, 1)
    told = tmp_path / "pid"
    await until(lambda: told.exists() and told.read_text().endswith("\n"), "the process")
    await gateway.checkpointer.compaction.stop()
    assert not gateway.checkpointer.compaction.under_way
    with pytest.raises(ProcessLookupError):
        os.kill(int(told.read_text()), 0)
    gateway.crash()


def test_by_hand_it_says_what_it_is(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["merging"])
    assert compaction.main() == 2
    assert "not by hand" in capsys.readouterr().err


def test_a_database_without_the_flow_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    set_to: list[Any] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["merging", str(tmp_path / "none"), "f", "1", "full", "1"])
        patch.setattr(os, "nice", lambda more: 0)
        patch.setattr(gc, "disable", lambda: None)
        patch.setattr(signal, "signal", lambda *arguments: set_to.append(arguments))
        assert compaction.main() == 1
    assert set_to == [(signal.SIGINT, signal.SIG_IGN), (signal.SIGTERM, signal.SIG_IGN)], "they are for the gateway"
    assert "cannot read the database" in capsys.readouterr().err
