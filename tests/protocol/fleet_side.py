"""The fleet job's delivery as it is in the product (its tables, lease and fence), driven as Spark's streams drive it:
two processes that want one lease, are killed between any two things they do, lose the checkpoint of their streams, or
stand still in the midst of a batch while the world goes on, and commit when another has taken over."""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final
from unittest import mock

from edgert.central.fleet import table as fleet_table
from edgert.central.fleet.table import FleetTable
from edgert.central.spark.streams import BatchFailed
from edgert.central.tables.lease import LeaseLost, TableLease
from edgert.central.tables.table import CommitConflict
from tests.protocol.central_side import CentralSide, Window
from tests.protocol.memory_table import FleetMemoryTable, MemoryTable, Row, Stored
from tests.protocol.spark import Frame, Session, stored

ROOT: Final = "root"
LEASE_S: Final = 300.0
HOUR_S: Final = 3600.0
MOMENTS: Final = 8
"""Of a batch: something happens at one of so many, if it has as many."""
FORESEEN: Final = (LeaseLost.__name__, CommitConflict.__name__)
"""Why a batch may fail."""
SETTLES: Final = 200
"""Batches, and waits for the lease, until all is done at the end; it takes some twenty."""


class Killed(BaseException):
    """A fleet job, in the midst of something. No `Exception`: nothing of it does anything any more."""


class Outside(BaseException):
    """What was raised while the job stood still: none of its business."""

    def __init__(self, error: Exception) -> None:
        super().__init__(error)
        self.error = error


File = tuple[int, dt.date | None]
"""A commit of a landing table writes one for each day, and one for opening rows."""


@dataclass
class Checkpoint:
    """Of a flow's stream: what stands in which batch, noted before it is done, and how many of them are done."""

    files: list[File]
    """In the order in which it reads them. Those of its first look come in any: they may have been compacted."""
    commits: int
    """Of which the files are known."""
    ends: list[int] = field(default_factory=list)
    done: int = 0

    def batch(self, number: int) -> list[File]:
        return self.files[self.ends[number - 1] if number else 0 : self.ends[number]]


class Process:
    """One fleet job. Its streams begin anew when it gets the lease."""

    def __init__(self, lease: TableLease) -> None:
        self.lease = lease
        self.streams: dict[str, FleetTable] = {}
        self.busy = False
        """Stands still in the midst of a batch."""


class FleetSide:
    """`goes_on`: one thing happens elsewhere."""

    def __init__(
        self, draw: random.Random, central: CentralSide, flows: Iterable[str], goes_on: Callable[[], None],
        say: Callable[[str], None],
    ) -> None:  # fmt: skip
        self.draw, self._central, self._flows, self._goes_on, self._say = draw, central, list(flows), goes_on, say
        self._clock = central.clock
        self.many, self.few = draw.choice([1, 3, 20_000]), draw.choice([0, 2, 100_000])
        """As `_MANY` and `_FEW` of `edgert.central.fleet.table`: which ways batches of a walk take."""
        self.most = draw.choice([1, 3, 10])
        """Files of a batch."""
        self._started = 0
        self.jobs = [self._process(), self._process()]
        self.checkpoints: dict[str, Checkpoint] = {}

    def _process(self) -> Process:
        self._started += 1
        ahead_s = self.draw.choice([0.0, 0.0, HOUR_S])  # to its clock another's lease looks expired
        wall = lambda: self._clock.wall() + ahead_s  # noqa: E731
        return Process(TableLease(ROOT, "fleet", f"job{self._started}", LEASE_S, wall, self._clock.monotonic))

    # -- what may happen

    def step(self) -> None:
        """One thing, or nothing."""
        if self.draw.random() < CHANCE:
            acts, weights = zip(*FLEET_ACTS, strict=True)
            act: Callable[[FleetSide], None] = self.draw.choices(acts, weights)[0]
            act(self)

    def works(self) -> None:
        """Some of what there is, or all of it."""
        job = self._idle()
        if job:
            flow, most = self.draw.choice(self._flows), self.draw.choice([1, 100, 100])
            while most and job in self.jobs and self._works(job, flow, lambda: None):
                most -= 1

    def dies_midway(self) -> None:
        self._troubled(self._killed)

    def stands_still(self) -> None:
        """As a machine that sleeps, or a storage that does not answer."""
        self._troubled(self._stands_still)
        if self.draw.random() < 0.5 and not any(job.busy for job in self.jobs):
            # What comes later would make good what is wrong now.
            self.settle()
            for flow in self._flows:
                self.check(flow)

    def comes_second(self) -> None:
        """To a compaction."""
        self._troubled(self._conflict)

    def dies(self) -> None:
        job = self._idle()
        if job:
            self._say("a fleet job dies")
            self._replace(job)

    def ends(self) -> None:
        """In order: another may begin at once."""
        job = self._idle()
        if job:
            self._say("a fleet job ends")
            job.streams.clear()
            job.lease.release()

    def loses_its_checkpoint(self) -> None:
        """Of one flow; the streams that have it fail, and begin anew."""
        flow = self.draw.choice(self._flows)
        if self.checkpoints.pop(flow, None):
            self._say(f"the checkpoint of {flow} is lost")
            for job in self.jobs:
                job.streams.pop(flow, None)

    def _idle(self) -> Process | None:
        return self.draw.choice([job for job in self.jobs if not job.busy] or [None])

    def _replace(self, job: Process) -> None:
        """Whoever looks after it starts it again; its lease has to run out."""
        self.jobs[self.jobs.index(job)] = self._process()

    # -- in the midst of a batch

    def _troubled(self, trouble: Callable[[], None]) -> None:
        job = self._idle()
        if job is None:
            return
        left = self.draw.randrange(MOMENTS)

        def moment() -> None:
            nonlocal left
            left -= 1
            if left == -1:
                trouble()

        self._works(job, self.draw.choice(self._flows), moment)

    def _killed(self) -> None:
        raise Killed

    def _conflict(self) -> None:
        raise CommitConflict("compacted meanwhile")

    def _stands_still(self) -> None:
        self._say("it stands still")
        try:
            if self.draw.random() < 0.5:
                self._clock.advance(LEASE_S)
            for _ in range(self.draw.choice([10, 40, 120])):
                self._goes_on()
            for _ in range(self.draw.choice([0, 4])):
                self.works()
        except Exception as error:
            raise Outside(error) from error
        self._say("it goes on")
        if self.draw.random() < 0.1:
            raise Killed

    # -- a batch

    def _works(self, job: Process, flow: str, moment: Callable[[], None]) -> bool:
        """A batch of its stream of a flow. Whether it was one, and was done."""
        landing = MemoryTable.store.get(f"{ROOT}/landing/{flow}")
        if landing is None or not self._holds(job):
            return False
        checkpoint = self.checkpoints.get(flow) or self._anew(landing)
        self.checkpoints[flow] = checkpoint
        table = job.streams.get(flow) or FleetTable(ROOT, flow, job.lease)
        job.streams[flow] = table
        number = checkpoint.done
        if number == len(checkpoint.ends) and not self._plan(checkpoint, landing):
            return False
        self._say(f"fleet job {self.jobs.index(job)}, {flow}: batch {number}, {checkpoint.batch(number)}")
        rows = _rows(landing, checkpoint.batch(number))
        job.busy = True
        try:
            with (
                mock.patch.object(FleetMemoryTable, "moment", moment),
                mock.patch.multiple(fleet_table, _MANY=self.many, _FEW=self.few),
            ):
                table.update(Frame(Session(), lambda: rows), number)  # type: ignore[arg-type]
                with suppress(CommitConflict):  # it has written all: a compaction does not concern it any more
                    moment()
        except BatchFailed as error:
            self._say(str(error))
            if not str(error).startswith(FORESEEN) and "DELTA_CONCURRENT" not in str(error):
                raise AssertionError(f"a batch failed: {error}") from error
            job.streams.pop(flow, None)
            return False
        except Killed:
            self._say("killed")
            self._replace(job)
            return False
        except Outside as outside:
            raise outside.error from None
        finally:
            job.busy = False
        checkpoint.done = max(checkpoint.done, number + 1)
        return True

    def _holds(self, job: Process) -> bool:
        """As `Job._round`, which ends its streams with the lease."""
        try:
            job.lease.hold()
        except LeaseLost:
            job.streams.clear()
            try:
                job.lease.acquire()
            except LeaseLost:
                return False
            self._say(f"fleet job {self.jobs.index(job)} has the lease")
        return True

    def _anew(self, landing: Stored) -> Checkpoint:
        files = _files(landing, 0)
        self.draw.shuffle(files)
        return Checkpoint(files, len(landing.commits))

    def _plan(self, checkpoint: Checkpoint, landing: Stored) -> bool:
        """The next batch, if there is something for one."""
        checkpoint.files += _files(landing, checkpoint.commits)
        checkpoint.commits = len(landing.commits)
        end = checkpoint.ends[-1] if checkpoint.ends else 0
        if end == len(checkpoint.files):
            return False
        checkpoint.ends.append(min(len(checkpoint.files), end + self.draw.randint(1, self.most)))
        return True

    # -- the end

    def settle(self) -> None:
        """No more faults: all that has landed is read."""
        job = self.draw.choice(self.jobs)
        for _ in range(SETTLES):
            worked = [self._works(job, flow, lambda: None) for flow in self._flows]
            if not any(worked):
                if all(self._read(flow) for flow in self._flows):
                    return
                self._clock.advance(LEASE_S)
        raise AssertionError(f"the fleet job does not come to an end: {self.checkpoints}")

    def _read(self, flow: str) -> bool:
        landing, checkpoint = MemoryTable.store.get(f"{ROOT}/landing/{flow}"), self.checkpoints.get(flow)
        if landing is None or checkpoint is None:
            return landing is None
        every = checkpoint.commits == len(landing.commits) and checkpoint.ends[-1:] == [len(checkpoint.files)]
        return every and checkpoint.done == len(checkpoint.ends)

    def check(self, flow: str) -> None:
        """Against what landed, window by window, when all of that is read."""
        fleet, landed = self.counted(flow), self._central.counted(flow)
        assert fleet == landed, f"fleet table {flow} has {fleet}, of what landed {landed} counts"

    def counted(self, flow: str) -> dict[Window, int]:
        """How many messages the fleet table has."""
        rows = stored(flow).rows
        found = {(row["window_start"], row["u"]): row["n"] for row in rows}
        assert len(found) == len(rows), f"fleet table {flow}: windows come twice: {rows}"
        return found


CHANCE: Final = 0.25
"""That the fleet job does something beside a thing that happens elsewhere."""
FLEET_ACTS: Final[list[tuple[Callable[[FleetSide], None], float]]] = [
    (FleetSide.works, 3), (FleetSide.dies_midway, 2), (FleetSide.stands_still, 5), (FleetSide.comes_second, 0.5),
    (FleetSide.dies, 0.3), (FleetSide.ends, 0.7), (FleetSide.loses_its_checkpoint, 0.7),
]  # fmt: skip


def _files(landing: Stored, since: int) -> list[File]:
    """Those of the commits after so many."""
    found: list[File] = []
    for number in range(since, len(landing.commits)):
        begin = landing.ends[number - 1] if number else 0
        days = dict.fromkeys(row["day"] for row in landing.rows[begin : landing.ends[number]])
        found += [(number, day) for day in (days if number % 2 else reversed(days))]  # in no order of their own
    return found


def _rows(landing: Stored, files: Iterable[File]) -> list[Row]:
    rows: list[Row] = []
    for number, day in files:
        begin = landing.ends[number - 1] if number else 0
        rows += [row for row in landing.rows[begin : landing.ends[number]] if row["day"] == day]
    return rows
