"""`python -m benchmarks.cost.inside FOLDER`: the counted process; prints a line of JSON for each child.

One process imports the gateway. A child of it sets up each workload, and has a child for each size of a read, which
handles the messages and ends. All children begin with the instructions of their parents, so the messages cost the
difference to a child that handled nothing: imports, set-up and warm-up are paid once, and count nowhere.
"""

from __future__ import annotations

import itertools
import json
import os
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from benchmarks.cost.stand import Stand
from benchmarks.cost.workloads import BASELINE, IDLE, SPACING_S, WORKLOADS, Idle, Workload, idle_document

WARM_UP: Final = 200
"""Messages before those that are counted; an instance counts as fast after 20 turns."""
WARM_UP_S: Final = 30.0


def _child(work: Callable[[], None]) -> int:
    """Runs `work` in a child; returns the child's process id. Raises `RuntimeError` if the child failed."""
    sys.stdout.flush()
    pid = os.fork()
    if not pid:
        status = 1
        try:
            work()
            sys.stdout.flush()
            status = 0
        except BaseException:  # noqa: BLE001 - the child ends here, and says why
            traceback.print_exc()
        finally:
            os._exit(status)
    _, status = os.waitpid(pid, 0)
    if status:
        raise RuntimeError(f"a child ended with status {os.waitstatus_to_exitcode(status)}")
    return pid


def _counted(figure: str, part: str, per: float, work: Callable[[], None]) -> None:
    """Has a child do what is counted. `per`: messages, or seconds, of the work."""
    print(json.dumps({"figure": figure, "part": part, "per": per, "pid": _child(work)}))


def _reads(stand: Stand, workload: Workload, size: int, first: int, count: int) -> Iterator[bytes]:
    """Messages `first` and on, `size` with each read. Packet ids are used in turn."""
    broker, wall = stand.loop.broker, stand.clock.wall()
    numbers = range(first, first + count)
    packets = (
        broker.publish(workload.message(n, wall + (n - first + 1) * SPACING_S), workload.qos, n % 65_535 + 1)
        for n in numbers
    )
    while read := b"".join(itertools.islice(packets, size)):
        yield read


def _workload(workload: Workload, folder: Path) -> None:
    stand = Stand(folder, workload.documents())
    warm = min(WARM_UP, 4 * workload.messages)
    for read in _reads(stand, workload, 1, 1, warm):
        stand.feed([read], SPACING_S)
        stand.drain()

    def work(size: int, count: int) -> None:
        before = stand.gateway.ingest.inbox.counters.messages
        reads = made[size][: count // size]
        stand.feed(reads, size * SPACING_S, workload.checkpoint_every // size)
        if (came := stand.gateway.ingest.inbox.counters.messages - before) != count // size * size:
            raise RuntimeError(f"expected {count} messages to be taken in, got {came}")
        if stand.pool.policy.waiting:
            raise RuntimeError("expected that no instance waits for a worker")

    made = {size: list(_reads(stand, workload, size, warm + 1, workload.messages)) for size in workload.reads}
    for size in workload.reads:
        figure = f"{workload.name}, reads of {size}"
        count = workload.messages // size * size
        _counted(figure, BASELINE, 0, lambda size=size: work(size, 0))  # type: ignore[misc]
        _counted(figure, "messages", count * workload.flows, lambda size=size, count=count: work(size, count))  # type: ignore[misc]


def _idle(idle: Idle, folder: Path) -> None:
    stand = Stand(folder, [idle_document(n) for n in range(idle.flows)])
    stand.run(WARM_UP_S)
    _counted(idle.name, BASELINE, 0, lambda: stand.run(0.0))
    _counted(idle.name, "seconds", idle.seconds, lambda: stand.run(idle.seconds))


def main() -> None:
    """Does all that is counted, one after the other."""
    parts = [(workload.name, lambda folder, w=workload: _workload(w, folder)) for workload in WORKLOADS]
    parts += [(idle.name, lambda folder, i=idle: _idle(i, folder)) for idle in IDLE]
    only = sys.argv[1:]
    for name, work in parts:
        if only and name not in only:
            continue
        print(f"counting: {name}", file=sys.stderr, flush=True)
        with tempfile.TemporaryDirectory(prefix="edgert-cost-") as folder:
            _child(lambda work=work, folder=folder: work(Path(folder)))  # type: ignore[misc]


if __name__ == "__main__":
    main()
