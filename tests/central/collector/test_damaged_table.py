"""A landing table that cannot be used is the trouble of its flow alone."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from deltalake.exceptions import CommitFailedError

from edgert.central.collector.collector import Collector
from edgert.central.collector.flow_backoff import QUIET_S, WAIT_MOST_S, WAIT_S, FlowBackoff
from edgert.central.collector.inbox import ResultMessage
from edgert.central.landing.arrow_rows import LandingBatch
from edgert.central.landing.landing import Landing
from edgert.central.tables.table import CommitConflict, Table, TableError, told
from edgert.core.clock import VirtualClock
from edgert.core.results.results import EpochHello, RefusedBatch, pack_result, results_topic
from tests.central.results_examples import Gateway, contribution
from tests.central.worlds import read

EPOCH = 1 << 32
BAD = ("bad", EPOCH, 0)
GOOD = ("good", EPOCH, 0)


def message(result: LandingBatch | EpochHello) -> ResultMessage:
    assert not isinstance(result, RefusedBatch)
    return ResultMessage(results_topic("f", result.gateway, result.flow), pack_result(result))


class Pair:
    """Two flows of two gateways that have landed, and a collector that is started then."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.clock = VirtualClock()
        self.bad, self.good = Gateway("g1", flow="bad"), Gateway("g2", flow="good")
        self.start()
        for g in (self.bad, self.good):
            self.collector.handle([message(g.open())])
            self.collector.handle([self.rows(g)])

    def start(self) -> None:
        self.collector = Collector("c1", Landing(str(self.root)), self.clock, 10.0, 1 << 20)

    def rows(self, g: Gateway) -> ResultMessage:
        return message(g.rows(contribution(0, "a", 1.0)))

    def handle(self, *messages: ResultMessage) -> dict[tuple[str, int, int], int]:
        return {key: n for a in self.collector.handle(messages) for key, n in a.acks.items()}


@pytest.fixture
def pair(tmp_path: Path) -> Pair:
    return Pair(tmp_path)


READ = """
import sys
from edgert.central.tables.table import Table, TableError
try:
    Table(sys.argv[1]).refresh()
except TableError as error:
    print(error)
"""


def test_an_error_of_a_table_is_one_line_without_the_stack_of_native_code(tmp_path: Path) -> None:
    (tmp_path / "_delta_log").mkdir()
    (tmp_path / "_delta_log" / f"{0:020}.json").write_text("nonsense{")
    command = [sys.executable, "-c", READ, str(tmp_path)]
    done = subprocess.run(
        command, capture_output=True, text=True, check=True, env={**os.environ, "RUST_BACKTRACE": "1"}
    )
    (line,) = done.stdout.splitlines()
    assert line.startswith(f"{tmp_path}: expected a Delta table that can be read: Kernel error: ")
    assert "start_thread" not in line
    assert done.stderr == ""


def test_a_conflict_is_told_without_the_stack_of_native_code_too() -> None:
    stack = "\n   0: <unknown>\n   1: start_thread\n             at ./nptl/pthread_create.c:442:8\n"
    with pytest.raises(CommitConflict, match=r"^version 3 is there$"), told("t", "expected a write"):
        raise CommitFailedError("version 3 is there" + stack)


def last_commit(root: Path, flow: str) -> Path:
    return max((root / "landing" / flow / "_delta_log").glob("*.json"))


@pytest.mark.parametrize("damage", [lambda b: b[: len(b) // 2], lambda b: bytes(500)])
def test_others_land_and_are_acknowledged_and_the_flow_goes_on_when_it_is_mended(
    pair: Pair, damage: Callable[[bytes], bytes], caplog: pytest.LogCaptureFixture
) -> None:
    log = last_commit(pair.root, "bad")
    whole = log.read_bytes()
    log.write_bytes(damage(whole))
    pair.start()
    assert pair.handle(pair.rows(pair.bad), pair.rows(pair.good)) == {GOOD: 3}
    assert pair.handle(message(EpochHello(gateway="g2", flow="good"))) == {GOOD: 3}
    assert pair.handle(message(EpochHello(gateway="g1", flow="bad"))) == {}, "what is not known is not answered"
    assert not pair.collector.waits
    assert pair.collector.counters.stuck_flows == 1
    assert "landing/bad" in pair.collector.counters.last_error
    for _ in range(3):
        pair.clock.advance(WAIT_MOST_S)
        assert pair.handle(pair.rows(pair.good))[GOOD] > 3
    assert len([r for r in caplog.records if "results of flow bad wait, others go on" in r.message]) == 1
    log.write_bytes(whole)
    pair.clock.advance(WAIT_MOST_S)
    assert pair.handle() == {BAD: 3}
    assert (pair.collector.counters.stuck_flows, pair.collector.counters.last_error) == (0, "")


def test_what_was_taken_is_landed_when_its_table_can_be_written_again(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    append = Table.append

    def full(table: Table, *rest: object) -> None:
        if table.uri.endswith("/bad"):
            raise TableError("no space left on device", table.uri)
        append(table, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(Table, "append", full)
    assert pair.handle(pair.rows(pair.bad), pair.rows(pair.good)) == {BAD: 2, GOOD: 3}
    assert pair.handle(pair.rows(pair.bad), pair.rows(pair.good)) == {GOOD: 4}
    assert not pair.collector.waits
    monkeypatch.undo()
    pair.clock.advance(1.0)
    assert pair.handle() == {BAD: 4}


def test_a_fault_of_what_all_flows_share_makes_all_wait(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    refresh = Table.refresh

    def away(table: Table) -> bool:
        if table.uri.endswith("quarantine"):
            raise TableError("the storage is away", table.uri)
        return refresh(table)

    monkeypatch.setattr(Table, "refresh", away)
    assert pair.handle(pair.rows(pair.bad), pair.rows(pair.good)) == {}
    assert pair.collector.waits
    assert pair.collector.counters.stuck_flows == 0
    monkeypatch.undo()
    assert pair.handle() == {BAD: 3, GOOD: 3}


def test_a_flow_in_trouble_is_tried_again_ever_less_often_and_what_it_keeps_is_bounded() -> None:
    one = ResultMessage("t", bytes(6))
    backoff, tried = FlowBackoff(most_bytes=2 * one.size - 1), []
    assert backoff.failed("f", "why", 0.0)
    assert backoff.keep("f", one)
    assert not backoff.keep("f", one)
    assert backoff.retry(0.4) == []
    at = 0.0
    while at < 60.0:
        at += 0.5
        freed = backoff.retry(at)
        if not backoff.rests("f"):
            tried.append(at)
            for m in freed:
                assert not backoff.failed("f", "why", at)
                assert backoff.keep("f", m)
    assert tried == [0.5, 1.5, 3.5, 7.5, 15.5, 30.5, 45.5]
    backoff.forget(lambda message: True)
    assert backoff.keep("f", one)
    assert len(backoff.retry(100.0)) == 1
    backoff.worked("f")
    assert backoff.over(100.0) == ["f"]
    assert len(backoff) == 0


def test_a_flow_that_was_not_used_is_not_mended_and_rests_longer_with_its_next_failure() -> None:
    backoff = FlowBackoff()
    assert backoff.failed("f", "why", 0.0)
    backoff.retry(WAIT_S)
    assert backoff.over(WAIT_S) == []
    assert not backoff.failed("f", "why", 5.0), "the first time was before"
    backoff.retry(5.0 + WAIT_S)
    assert backoff.rests("f")
    backoff.retry(5.0 + 2 * WAIT_S)
    assert not backoff.rests("f")
    assert backoff.over(5.0 + 2 * WAIT_S + QUIET_S) == ["f"], "nothing comes any more"


def test_of_many_flows_in_trouble_few_are_told_in_words() -> None:
    backoff = FlowBackoff()
    for n in range(1000):
        backoff.failed(f"f{n}", f"f{n}: {'why ' * 1000}", 0.0)
    assert str(backoff).endswith("; and 997 flows more")
    assert len(str(backoff)) < 1000


def test_malformed_messages_that_cannot_be_kept_hold_up_no_results(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    append = Table.append

    def read_only(table: Table, *rest: object) -> None:
        if table.uri.endswith("quarantine"):
            raise TableError("quarantine: read-only", table.uri)
        append(table, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(Table, "append", read_only)
    junk = [ResultMessage(results_topic("f", "g9", "x"), b"junk")] * 30
    assert pair.handle(*junk, pair.rows(pair.good)) == {GOOD: 3}
    assert pair.handle(pair.rows(pair.good)) == {GOOD: 4}
    assert not pair.collector.waits
    counters = pair.collector.counters
    assert (counters.malformed, counters.malformed_not_kept) == (30, 10)
    assert counters.last_error == "quarantine: read-only"
    assert len([r for r in caplog.records if "cannot be kept, results go on" in r.message]) == 1
    monkeypatch.undo()
    pair.handle()
    assert len(read(pair.root, "quarantine")) == 20
    assert counters.last_error == ""


def test_what_waits_for_a_damaged_table_goes_with_its_partition(pair: Pair) -> None:
    last_commit(pair.root, "bad").write_bytes(bytes(500))
    pair.start()
    pair.handle(pair.rows(pair.bad))
    partition = results_topic("f", "g1", "bad").split("/")[4]
    pair.collector.forget({partition})
    assert pair.collector._backoff.retry(100.0) == []
