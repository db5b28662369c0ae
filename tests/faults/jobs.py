"""What happens to the fleet job: its processes, its checkpoint, its lease."""

from __future__ import annotations

import resource
import shutil
import time
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, ClassVar, Self

from edgert.central.tables.lease import LeaseLost, TableLease
from edgert.central.tables.table import CommitConflict
from tests.faults.changes import Stop
from tests.faults.circumstances import Spark
from tests.faults.clocks import HOUR_S, ClockStep
from tests.faults.fault import DOWN, NOTHING, STARTING, Fault, seconds
from tests.faults.kills import Kill
from tests.faults.spark import LEASE_S

if TYPE_CHECKING:
    from tests.faults.path import WholePath

EXECUTOR = "CoarseGrainedExecutorBackend"
WORKER = "deploy.worker.Worker"
SMALL = 300
"""Bytes."""


@dataclass(frozen=True, slots=True)
class KillFleetJob(Kill):
    """Spark's driver and, in local mode, its executor; the next one waits for its lease."""

    who = "fleet job"
    name = "kill the fleet job"

    def inject(self, path: WholePath) -> str:
        batches = path.batches()
        return f"killed after {batches} batches" if path.end(self.who) else DOWN


@dataclass(frozen=True, slots=True)
class KillPython(Kill):
    """Its JVM lives on for a moment, and may commit what it is about."""

    who = "fleet job"
    name = "kill the fleet job's Python"

    def inject(self, path: WholePath) -> str:
        return "killed" if path.end_job(path.job.kill_python) else DOWN


@dataclass(frozen=True, slots=True)
class KillJava(Kill):
    """Without it the job must end by itself, so that whoever looks after it starts it again."""

    who = "fleet job"
    name = "kill the fleet job's JVM"

    def inject(self, path: WholePath) -> str:
        return "killed" if path.end_job(path.job.kill_java) else f"{NOTHING}it has none now"


@dataclass(frozen=True, slots=True)
class DeleteCheckpoint(Kill):
    """Of its streams, while it is down: it reads the landing tables from their beginning."""

    who = "fleet job"
    name = "delete the streaming checkpoint"

    def inject(self, path: WholePath) -> str:
        ended = path.end(self.who)
        checkpoint = path.tables / "_spark" / "fleet"
        existed = checkpoint.exists()
        shutil.rmtree(checkpoint, ignore_errors=True)
        if not existed and not ended:
            return DOWN
        return "killed, and deleted" if existed else "killed; there was none yet"


@dataclass(frozen=True, slots=True)
class StopFleetJob(Stop):
    """SIGTERM: it ends after the batch under way."""

    name = "stop the fleet job"

    @classmethod
    def draw(cls, draw: Random) -> Self:
        return cls(seconds(draw, 0.1, 2.0), "fleet job")


@dataclass(frozen=True, slots=True)
class StepFleetJobsClock(ClockStep):
    name = "step the fleet job's clock"

    @classmethod
    def draw(cls, draw: Random) -> Self:
        return cls(seconds(draw, 2.0, 15.0), "fleet job", draw.choice((-HOUR_S, HOUR_S)))


@dataclass(frozen=True, slots=True)
class FillJobsDisk(Fault):
    """The job, Spark's driver too, may write no file beyond a few hundred bytes (as `DiskFull`): no part of a table,
    no commit, nothing of its checkpoint. Its stream fails, and begins again while the job's process lives. Not while it
    starts: then it ends, for systemd to start it again."""

    name = "disk full for Spark"

    @classmethod
    def draw(cls, draw: Random) -> Self:
        return cls(seconds(draw, 2.0, 8.0))

    def inject(self, path: WholePath) -> str:
        if not path.job.running or not path.batches():
            return DOWN
        if not path.job.follows:
            return STARTING
        return f"no file beyond {SMALL} bytes" if path.job.limit_files(SMALL) else f"{NOTHING}it has no JVM now"

    def heal(self, path: WholePath) -> None:
        path.job.limit_files(resource.RLIM_INFINITY)


@dataclass(frozen=True, slots=True)
class TakeLease(Fault):
    """Another takes it, whose clock is an hour ahead, so that the job's looks expired; then it dies, or gives it back.
    The job has to stop its streams, to wait, and to go on."""

    dies: bool
    name = "take the lease"

    @classmethod
    def draw(cls, draw: Random) -> Self:
        return cls(seconds(draw, 1.0, 6.0), draw.random() < 0.5)

    def inject(self, path: WholePath) -> str:
        rival = TableLease(str(path.tables), "fleet", "rival", LEASE_S, wall=lambda: time.time() + HOUR_S)
        try:
            rival.acquire()
        except (LeaseLost, CommitConflict) as error:
            return f"{NOTHING}{error}"
        path.rivals[self] = rival
        return f"taken, with token {rival.token}"

    def heal(self, path: WholePath) -> None:
        rival = path.rivals.pop(self, None)
        if rival is not None and not self.dies:
            rival.release()


@dataclass(frozen=True, slots=True)
class OnCluster(Fault):
    """The cluster starts it again."""

    which: int
    class_name: ClassVar[str]

    @classmethod
    def draw(cls, draw: Random) -> Self:
        return cls(0.0, draw.randrange(64))

    @classmethod
    def fits(cls, slots: int, spark: Spark) -> bool:
        return spark == "cluster"

    def inject(self, path: WholePath) -> str:
        assert path.cluster is not None
        found = path.cluster.of(self.class_name)
        if not found:
            return f"{NOTHING}there is none now"
        found[self.which % len(found)].kill()
        return f"killed one of {len(found)}"


@dataclass(frozen=True, slots=True)
class KillExecutor(OnCluster):
    class_name = EXECUTOR
    name = "kill an executor"


@dataclass(frozen=True, slots=True)
class KillWorker(OnCluster):
    class_name = WORKER
    name = "kill a worker"
