"""Compaction of large state by a process of its own.

`python -m gateway.checkpoint.compaction DATABASE FLOW LAST FUSION FISSION` writes the snapshot of a flow's state up to
number LAST to its standard output, with a checksum behind it. The gateway itself would hold the interpreter for a
second per 100,000 keys, in steps of a tenth of a second in which nothing is read or acknowledged, and need the memory
of the state once more. Checkpoints go on meanwhile. Where memory runs out, the kernel kills this process, and not the
gateway or a slot: what it does only saves room, and is tried again.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final, cast

import xxhash

from edgert.core.checkpoint.position import Position
from edgert.core.clock import Clock
from edgert.core.errors import DamagedError, EdgertError
from edgert.flow.document import from_plain
from edgert.flow.physical import Fusion
from edgert.runtime.checkpoint.progress import Progress
from edgert.runtime.flow_run import FlowRun
from edgert.store.database import Database
from edgert.store.file.file import read_state
from gateway.base.tasks import OnStore

log = logging.getLogger(__name__)

CHECKSUM_BYTES: Final = 8
IS_DAMAGED: Final = 3
"""Exit status of the process: what is stored is to blame."""
AGAIN_S = 60.0
"""After a failure it is not tried for so long: it costs room only."""


class Compaction:
    """Lives on the daemon's loop."""

    def __init__(self, database: Database, store: OnStore, runs: Callable[[FlowRun], bool], clock: Clock) -> None:
        """`runs`: whether a run is still that of its flow."""
        self._database, self._store, self._runs, self._clock = database, store, runs, clock
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._not_before: dict[str, float] = {}
        self._one = asyncio.Lock()
        """Each takes a core, as much memory as the state, and a thread of those that bring flows to stand still."""
        self._stopped = False
        self.python = sys.executable

    def begin(self, run: FlowRun) -> None:
        """Merges the stored state of a flow, unless that is under way or failed a moment ago. Flows are merged one
        after the other."""
        name = run.flow.name
        if not self._stopped and name not in self._tasks and self._clock.monotonic() >= self._not_before.get(name, 0.0):
            task = self._tasks[name] = asyncio.create_task(self._merge(run))
            task.add_done_callback(lambda task: self._tasks.pop(name))

    async def stop(self) -> None:
        """Ends the merge under way, and begins no other."""
        self._stopped = True
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    @property
    def under_way(self) -> bool:
        return bool(self._tasks)

    async def done(self) -> None:
        """Waits for the merge under way."""
        await asyncio.gather(*self._tasks.values())

    async def _merge(self, run: FlowRun) -> None:
        async with self._one:
            if self._runs(run):  # the flow may have ended while its compaction waited for its turn
                await self._merge_now(run)

    async def _merge_now(self, run: FlowRun) -> None:
        name = run.flow.name
        try:
            merged, last = await self._store(lambda: (run.size.total, self._database.last_state(name)))
            snapshot = await _merged(self.python, self._database.path, run, last)

            def write() -> None:
                if self._runs(run):
                    self._database.compact_state(name, snapshot, last)
                    run.size.compacted(merged, len(snapshot))

            await self._store(write)
        except DamagedError as error:
            run.damaged(error)
        except Exception as error:  # noqa: BLE001 - the deltas stand, whatever this was
            if not self._runs(run):
                return
            self._not_before[name] = self._clock.monotonic() + AGAIN_S
            log.error("the state of flow %s could not be merged; tried again later: %s", name, error)


def _begun(*command: str) -> subprocess.Popen[bytes]:
    """Starts the process from a thread. The loop's uvloop would fork, and then the next pause would copy each page of
    memory that it touches: 5 ms and more with 100,000 keys. This takes a millisecond."""
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)


async def _merged(python: str, path: Path, run: FlowRun, last: int) -> bytes:
    """The snapshot. Raises `EdgertError` if the process fails."""
    command = (python, "-m", "gateway.checkpoint.compaction", str(path), run.flow.name, str(last), run.fusion)
    process = _begun(*command, str(int(run.fission)))
    try:
        written, _ = await asyncio.to_thread(process.communicate)
    except asyncio.CancelledError:
        process.kill()
        await asyncio.to_thread(process.wait)
        raise
    if process.returncode == IS_DAMAGED:
        raise DamagedError("see above, what the process said")
    snapshot, checksum = written[:-CHECKSUM_BYTES], written[-CHECKSUM_BYTES:]
    if process.returncode == -signal.SIGKILL:
        raise EdgertError(f"process {process.pid} was killed: the memory of this service is too small for it")
    if process.returncode or not snapshot or xxhash.xxh64_digest(snapshot) != checksum:
        raise EdgertError(
            f"expected a snapshot and its checksum of process {process.pid}, got {len(written):,} bytes and status "
            f"{process.returncode}"
        )
    return snapshot


def give_way() -> None:
    """Makes this process the first that the kernel kills where memory runs out."""
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")


def main() -> int:
    """See the module; started by the gateway."""
    if len(sys.argv) != 6:
        print("gateway.checkpoint.compaction is started by edgert-gateway, not by hand", file=sys.stderr)
        return 2
    for number in (signal.SIGINT, signal.SIGTERM):  # a whole group gets them; the gateway, which ends this, is meant
        signal.signal(number, signal.SIG_IGN)
    give_way()
    from edgert.operators.registry import with_installed

    with suppress(OSError):
        os.nice(10)
    out = os.dup(1)
    os.dup2(2, 1)  # output that an operator's package prints goes to the log, not into the snapshot
    gc.disable()  # the collector would scan all state again and again
    path, name, last, fusion, fission = sys.argv[1:]
    try:
        document, blobs = read_state(Path(path), name, int(last))
        registry, _ = with_installed()
        flow = from_plain(document, registry, what=f"stored flow {name}")
        run = FlowRun(flow, registry, 0, 0, Progress(Position()), cast(Fusion, fusion), fission == "1")
        snapshot = run.compact(blobs)
        with open(out, "wb") as stream:
            stream.write(snapshot)
            stream.write(xxhash.xxh64_digest(snapshot))
    except BrokenPipeError:  # the gateway is gone
        os._exit(1)
    except EdgertError as error:
        print(f"gateway.checkpoint.compaction: {error}", file=sys.stderr)
        return IS_DAMAGED if isinstance(error, DamagedError) else 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
