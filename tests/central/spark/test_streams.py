"""The supervisor without Spark: when a stream is started again, how often, and when it is given up."""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass, field
from typing import Any, cast

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from pyspark.errors import PySparkException, StreamingQueryException

from edgert.central.spark.errors import PUT_BACK, reason, told_by_spark
from edgert.central.spark.streams import (
    BEGINNING_S,
    CHANGES,
    FAILURE,
    GIVEN_UP_S,
    HEALTHY_S,
    LEFT_BEHIND,
    LONGEST_WAIT_S,
    NEW_COLUMNS,
    TRIES,
    AllGivenUp,
    BatchFailed,
    BatchGate,
    CannotStart,
    RunningQuery,
    Streams,
)
from edgert.central.tables.lease import LeaseLost
from edgert.central.tables.table import CommitConflict, TableError
from edgert.core.errors import EdgertError

CHANGED = "[STREAM_FAILED] Query terminated: [DELTA_SCHEMA_CHANGED_WITH_VERSION] Detected schema change"


@dataclass
class Query:
    """What the supervisor sees of one of Spark's."""

    error: str | None = None
    isActive: bool = True  # noqa: N815
    stopped: int = 0
    lastProgress: object = None  # noqa: N815

    def exception(self) -> Exception | None:
        return StreamingQueryException(self.error) if self.error else None

    def stop(self) -> None:
        self.isActive = False
        self.stopped += 1

    def fail(self, error: str | None) -> None:
        self.isActive, self.error = False, error


@dataclass
class Starts:
    """A stream's starts; `refuse` is raised instead of one."""

    queries: list[Query] = field(default_factory=list)
    refuse: Exception | None = None

    def __call__(self) -> RunningQuery:
        if self.refuse:
            raise self.refuse
        self.queries.append(Query())
        return RunningQuery(cast(Any, self.queries[-1]), BatchGate())

    @property
    def now(self) -> Query:
        return self.queries[-1]


class Clock:
    at = 1000.0

    def __call__(self) -> float:
        return self.at


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def supervisor(clock: Clock) -> Streams:
    return Streams(clock)


def test_a_stream_with_new_columns_goes_on_at_once(supervisor: Streams, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    starts = Starts()
    assert supervisor.add("landing/air", starts)
    assert not supervisor.add("landing/air", starts)
    for n in range(1, CHANGES + 1):
        supervisor.look()
        starts.now.fail(CHANGED)
        supervisor.look()
        assert starts.now.isActive
        assert supervisor.restarts == {("landing/air", NEW_COLUMNS): n}
    assert "landing/air: has new columns" in caplog.text
    starts.now.fail(CHANGED)  # again and again without a healthy time: something else is wrong
    supervisor.look()
    assert not starts.now.isActive
    assert supervisor.restarts["landing/air", FAILURE] == 1


def test_a_stream_whose_batch_hangs_says_for_how_long(supervisor: Streams) -> None:
    door, goes_on, hangs = BatchGate(), threading.Event(), threading.Event()

    def work() -> None:
        hangs.set()
        assert goes_on.wait(60.0)

    supervisor.add("a", lambda: RunningQuery(cast(Any, Query()), door))
    assert supervisor.batch_s() == {"a": 0.0}
    supervisor.look()
    batch = threading.Thread(target=door.run, args=(work,))
    batch.start()
    assert hangs.wait(60.0)
    assert supervisor.states() == {"a": True}
    assert supervisor.batch_s()["a"] > 0.0
    goes_on.set()
    batch.join()
    assert supervisor.batch_s() == {"a": 0.0}


def test_what_spark_keeps_is_forgotten_before_a_failed_stream_starts_again(clock: Clock) -> None:
    forgotten: list[int] = []
    starts = Starts()
    supervisor = Streams(clock, on_failure=lambda: forgotten.append(len(starts.queries)))
    supervisor.add("landing/air", starts)
    supervisor.look()
    starts.now.fail(CHANGED)
    supervisor.look()
    assert (forgotten, len(starts.queries)) == ([], 2)
    starts.now.fail("Exception thrown in awaitResult")
    supervisor.look()
    clock.at += LONGEST_WAIT_S
    supervisor.look()
    assert (forgotten, len(starts.queries)) == ([2], 3)


def test_a_stream_that_fails_waits_longer_each_time_and_is_given_up(
    supervisor: Streams, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    bad, good = Starts(), Starts()
    supervisor.add("bad", bad)
    supervisor.add("good", good)
    supervisor.look()
    waited = []
    for _ in range(TRIES - 1):
        bad.now.fail("disk on fire")
        began = clock.at
        count = len(bad.queries)
        while len(bad.queries) == count:
            supervisor.look()
            clock.at += 0.5
        waited.append(clock.at - began - 0.5)
    assert waited == [min(LONGEST_WAIT_S, 2.0**n) for n in range(1, TRIES)]
    bad.now.fail("disk on fire")
    supervisor.look()
    clock.at += GIVEN_UP_S - 1
    supervisor.look()
    assert len(bad.queries) == TRIES
    assert supervisor.states() == {"bad": None, "good": True}
    assert supervisor.restarts == {("bad", FAILURE): TRIES - 1}
    assert "bad: given up for an hour after 20 failures in a row: disk on fire" in caplog.text
    clock.at += 1
    supervisor.look()
    assert supervisor.states() == {"bad": True, "good": True}
    bad.now.fail("disk on fire")
    supervisor.look()
    assert supervisor.states() == {"bad": None, "good": True}, "tried once"
    clock.at += GIVEN_UP_S
    supervisor.look()
    clock.at += HEALTHY_S
    supervisor.look()
    bad.now.fail("a hiccup")
    supervisor.look()
    assert supervisor.states() == {"bad": False, "good": True}


def test_when_none_is_left_it_says_so(supervisor: Streams, clock: Clock) -> None:
    supervisor.look()  # nothing to follow yet is nothing wrong
    starts = Starts(refuse=CannotStart("no such column"))
    supervisor.add("a", starts)
    for _ in range(TRIES - 1):
        supervisor.look()
        clock.at += LONGEST_WAIT_S
    with pytest.raises(AllGivenUp, match="none of a can be followed"):
        supervisor.look()


def test_a_healthy_time_makes_failures_forgotten(supervisor: Streams, clock: Clock) -> None:
    starts = Starts()
    supervisor.add("a", starts)
    for _ in range(3 * TRIES):
        supervisor.look()
        clock.at += HEALTHY_S
        supervisor.look()
        starts.now.fail("a hiccup")
        supervisor.look()
        clock.at += 2.0
    supervisor.look()
    assert starts.now.isActive


def test_what_is_no_failure_of_a_stream_is_for_the_caller(supervisor: Streams) -> None:
    starts = Starts(refuse=LeaseLost("another's"))
    supervisor.add("a", starts)
    with pytest.raises(LeaseLost):
        supervisor.look()
    starts.refuse = None
    supervisor.look()
    assert supervisor.states() == {"a": True}
    assert not supervisor.restarts


@pytest.mark.parametrize("error", [TableError("its checkpoint could not be read"), CommitConflict("another wrote")])
def test_what_one_stream_reads_may_be_broken_and_the_others_are_started(
    supervisor: Streams, clock: Clock, error: Exception
) -> None:
    bad, good = Starts(refuse=error), Starts()
    supervisor.add("bad", bad)
    supervisor.add("good", good)
    supervisor.look()
    assert supervisor.states() == {"bad": False, "good": True}
    assert supervisor.restarts == {("bad", FAILURE): 1}
    bad.refuse = None
    clock.at += LONGEST_WAIT_S
    supervisor.look()
    assert supervisor.states() == {"bad": True, "good": True}


def test_what_is_known_to_help_is_said_beside_the_failure(
    supervisor: Streams, caplog: pytest.LogCaptureFixture
) -> None:
    starts = Starts()
    supervisor.add("a", starts)
    supervisor.look()
    starts.now.fail("[FAILED_READ_FILE.NO_HINT] Encountered error while reading file x")
    supervisor.look()
    assert caplog.text.rstrip().endswith(PUT_BACK)


def test_stopped_streams_have_ended_their_batch(supervisor: Streams) -> None:
    starts = Starts()
    supervisor.add("a", starts)
    supervisor.look()
    supervisor.begin_anew("a")
    assert starts.now.stopped == 1
    supervisor.look()
    assert supervisor.restarts == {("a", LEFT_BEHIND): 1}
    assert list(supervisor.running()) == ["a"]
    supervisor.end()
    assert (starts.now.stopped, supervisor.states()) == (1, {})


def test_in_turn_a_stream_begins_when_the_one_before_has_done_a_batch(clock: Clock) -> None:
    supervisor = Streams(clock, in_turn=True)
    starts = {name: Starts() for name in "abcd"}
    for name, start in starts.items():
        supervisor.add(name, start)

    def begun() -> str:
        supervisor.look()
        return "".join(name for name, s in starts.items() if s.queries)

    assert [begun(), begun()] == ["a", "a"]
    starts["a"].now.lastProgress = {}
    assert [begun(), begun()] == ["ab", "ab"]
    starts["b"].now.fail("broken")
    assert [begun(), begun()] == ["abc", "abc"]
    clock.at += BEGINNING_S
    assert [begun(), len(starts["b"].queries)] == ["abc", 2], "c takes too long, and b comes before d"
    starts["b"].now.lastProgress = {}
    assert begun() == "abcd"


def test_a_door_passes_on_what_failed_in_a_line_and_lets_nobody_in_once_closed() -> None:
    door, done = BatchGate(), []

    def break_down() -> None:
        raise ValueError("line\n" * 1000)

    door.run(lambda: done.append(1))
    with pytest.raises(BatchFailed, match="ValueError: line line") as caught:
        door.run(break_down)
    assert len(str(caught.value)) < 600
    door.close()
    with pytest.raises(BatchFailed, match="the job stops"):
        door.run(lambda: done.append(2))
    assert done == [1]


def test_what_spark_raises_is_told_in_a_line() -> None:
    stack = "\n\tat org.apache.spark.Some(Some.scala:7)" * 50
    java = f"An error occurred while calling o1.collect.\n: org.SparkException: [FAILED_READ_FILE] file x{stack}"
    assert reason(PySparkException(java)) == "[FAILED_READ_FILE] file x"
    wrapped = f"[STREAM_FAILED] Query terminated\n  File a.py{stack}\nedgert.BatchFailed: ValueError: no{stack}"
    assert reason(StreamingQueryException(wrapped)) == "ValueError: no"
    assert reason(PySparkException(f"plain words{stack}")) == "plain words"
    assert reason(PySparkException("")) == "PySparkException"
    caused = f"x.SparkException: Exception thrown in awaitResult: {stack}\nCaused by: y.IOException: z is gone{stack}"
    assert reason(PySparkException(caused)) == "y.IOException: z is gone"
    told = r"^training m: \[FAILED_READ_FILE\] file x; .* from a copy$"
    with pytest.raises(EdgertError, match=told), told_by_spark("training m"):
        raise PySparkException(java)


class Walk(RuleBasedStateMachine):
    """Whatever happens: a stream that was not given up runs or is due within the longest wait; none runs twice."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = Clock()
        self.supervisor = Streams(self.clock)
        self.starts = {name: Starts() for name in ("a", "b")}

    @rule(name=st.sampled_from(["a", "b"]))
    def add(self, name: str) -> None:
        self.supervisor.add(name, self.starts[name])

    @rule(name=st.sampled_from(["a", "b"]), error=st.sampled_from([CHANGED, "broken", None]))
    def fail(self, name: str, error: str | None) -> None:
        if self.starts[name].queries:
            self.starts[name].now.fail(error)

    @rule(
        name=st.sampled_from(["a", "b"]),
        refuses=st.booleans(),
        error=st.sampled_from([CannotStart("not now"), TableError("not to be read"), CommitConflict("another wrote")]),
    )
    def refuse(self, name: str, refuses: bool, error: Exception) -> None:
        self.starts[name].refuse = error if refuses else None

    @rule(later=st.floats(0, 2 * LONGEST_WAIT_S))
    def look(self, later: float) -> None:
        self.clock.at += later
        try:
            self.supervisor.look()
        except AllGivenUp:
            assert all(running is None for running in self.supervisor.states().values())

    @rule()
    def wait(self) -> None:
        """What ended is noticed, and after the longest wait it runs again."""
        self.look(0.0)
        self.look(LONGEST_WAIT_S)
        for name, running in self.supervisor.states().items():
            assert running or running is None or self.starts[name].refuse

    @invariant()
    def at_most_one_runs(self) -> None:
        for starts in self.starts.values():
            assert sum(q.isActive for q in starts.queries) <= 1


TestWalk = Walk.TestCase
