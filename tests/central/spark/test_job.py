"""A job of streams and its lease: it gives it back however it ends, and waits for another's without a word too many."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import pytest

from edgert.central.spark.leased_job import Job
from edgert.central.spark.session import without_lost_calls
from edgert.central.spark.streams import Streams
from edgert.central.tables.lease import RELEASED, LeaseLost, TableLease, claims

LOG = logging.getLogger("edgert.central.fleet")


class Idle(Job):
    """It has nothing to follow."""

    def follow(self) -> None:
        pass

    def _register(self, queries: Mapping[str, Any]) -> Collection[str]:
        return ()


class Dead(Streams):
    """Of a Spark whose process was killed."""

    def look(self) -> None:
        raise ConnectionResetError

    def end(self) -> None:
        raise ConnectionRefusedError


class Others:
    """A lease that others have, one after the other."""

    def __init__(self, *holders: str) -> None:
        self.holders = list(holders)
        self.held = False
        self.stop: Callable[[], None] = lambda: None

    @contextmanager
    def kept(self) -> Iterator[None]:
        yield

    def acquire(self) -> None:
        if not self.holders:
            self.held = True
            return
        holder = self.holders.pop(0)
        raise LeaseLost(f"held by {holder} until {len(self.holders)}", holder)

    def hold(self) -> None:
        self.stop()
        if not self.held:
            raise LeaseLost("ran out")
        if self.holders:
            self.held = False
            raise LeaseLost("taken by another")

    def release(self) -> None:
        pass


def test_the_lease_is_given_back_when_sparks_process_dies(tmp_path: Path) -> None:
    job = Idle(TableLease(str(tmp_path), "fleet", "me"), LOG, Dead())
    with pytest.raises(ConnectionError):
        job.run()
    assert [claim.expires for claim in claims(str(tmp_path))] == [RELEASED]


def test_a_standby_says_once_for_whom_it_waits(caplog: pytest.LogCaptureFixture) -> None:
    lease = Others("a", "a", "a", "b", "b")
    job = Idle(cast(TableLease, lease), LOG, Streams())
    job.retry_s = 0.0
    lease.stop = job.stop
    job.run()
    assert [r.getMessage() for r in caplog.records] == ["held by a until 4; waiting", "held by b until 1; waiting"]


def test_a_job_that_lost_its_lease_says_so_once_and_waits(caplog: pytest.LogCaptureFixture) -> None:
    lease = Others()
    job = Idle(cast(TableLease, lease), LOG, Streams())
    job.retry_s = 0.0
    job._wait_for_lease()
    lease.holders = ["b", "b", "b"]
    job._round()
    assert [r.getMessage() for r in caplog.records] == [
        "taken by another; its streams stop here",
        "held by b until 2; waiting",
    ]
    assert lease.held


def test_what_py4j_says_of_a_call_whose_answer_never_comes_is_left_to_the_one_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with without_lost_calls():
        logging.error("Exception while sending command.")
        logging.error("another's")
    logging.error("Exception while sending command.")
    assert [r.getMessage() for r in caplog.records] == ["another's", "Exception while sending command."]
