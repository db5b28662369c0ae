"""A gateway that a fault of its own ends: it says so, loses nothing that can be written, and hangs on nothing."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from gateway.daemon import Daemon
from tests.gateway.daemons import daemon
from tests.waiting import in_loop

ROOT = Path(__file__).parents[2]
FAILING = """
import asyncio, sys
from pathlib import Path
from edgert.core.errors import EdgertError
from gateway import __main__ as program
from gateway.daemon import Daemon

async def run(self, garbage):
    waits = asyncio.create_task(asyncio.to_thread(Path(sys.argv[2]).read_bytes))
    await asyncio.sleep(0)
    raise {error}

Daemon.run = run
sys.exit(program.main(["--config", sys.argv[1]]))
"""


@pytest.mark.parametrize(
    ("error", "said"),
    [
        ("EdgertError('no room')", "edgert-gateway: no room\n"),
        ("EdgertError('')", "edgert-gateway: \n"),
        ("MemoryError()", "edgert-gateway: a fault of its own, see the log: MemoryError()\n"),
    ],
)
def test_it_says_why_with_a_status_and_waits_for_no_thread(tmp_path: Path, error: str, said: str) -> None:
    """One reads from a pipe into which nobody writes."""
    config, pipe = tmp_path / "gateway.toml", tmp_path / "pipe"
    config.write_text(f'[gateway]\nid = "g1"\ndata_dir = "{tmp_path}"\n')
    os.mkfifo(pipe)
    command = [sys.executable, "-c", FAILING.format(error=error), str(config), str(pipe)]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 1
    assert ended.stderr.endswith(said)
    assert ("Traceback" in ended.stderr) == ("MemoryError" in error)


@in_loop
async def test_a_part_that_fails_at_the_end_costs_no_other_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    board = daemon(tmp_path)
    await board.start()
    left: list[str] = []

    async def fails() -> None:
        raise RuntimeError("can't start new thread")

    async def leaves(self: Daemon, written: bool) -> None:
        await asyncio.sleep(0)
        left.append("sensors")

    monkeypatch.setattr(board.host, "stop", fails)
    monkeypatch.setattr(Daemon, "_leave_sensors", leaves)
    board.stop()
    await board.end()
    assert left == ["sensors"]
    assert "can't start new thread" in board.fault
    with pytest.raises(Exception, match="closed"):
        board.database.pages()
