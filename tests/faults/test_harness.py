"""The fault harness itself: its plan, its comparison, and each thing that it does to the world."""

from __future__ import annotations

import errno
import itertools
import json
import logging
import os
import socket
import sqlite3
import subprocess
import sys
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from edgert.central.tables.table import TableError
from edgert.central.upkeep.upkeep import Work
from edgert.core.clock import VirtualClock
from edgert.core.errors import EdgertError
from tests import waiting
from tests.faults import changes, hostile, keeping, plan, repetitions, routes, wall_clock
from tests.faults.__main__ import SCENES, summary
from tests.faults.changes import PLACED_SLOTS, Place, Redeploy
from tests.faults.disks import committed_bytes, tear
from tests.faults.fault import NOTHING
from tests.faults.hang_ups import HangUp
from tests.faults.harmed import FIRST_S, HarmFile
from tests.faults.heard import problems
from tests.faults.hostile import Flood
from tests.faults.plan import JOB_KINDS, KINDS, LEAST_PLANS, PAIR_KINDS, SURE
from tests.faults.publisher import WINDOW_S, compare
from tests.faults.run import Outcome, too_few
from tests.integration.harms import HARMS, messages_said
from tests.proxy import packets, with_dup


def test_a_summary_says_which_faults_there_were_and_which_seeds_failed() -> None:
    made = [plan.make(seed) for seed in (1, 2)]
    first = Outcome(made[0], injected=Counter({"cut": 2, "stop": 1}), messages=400, took_s=20.04)
    second = Outcome(made[1], injected=Counter({"cut": 1}), messages=500, took_s=10.0)
    second.difference = compare({WINDOW: 4}, [row(0, 1, 2)])
    said = json.loads(json.dumps(summary([first, second])))
    runs = said.pop("runs")
    assert said == {
        "seeds": 2, "failed": [2], "lost": 1, "doubled": 0, "messages": 900, "plans": 0, "took_s": 30,
        "faults": {"cut": 3, "stop": 1},
    }  # fmt: skip
    assert [(r["seed"], r["ok"], len(r["problems"])) for r in runs] == [(1, True, 0), (2, False, 1)]


# -- the plan


@pytest.mark.parametrize(("spark", "least"), [(False, 15), (True, 5)])
def test_a_seed_means_the_same_each_time_and_seeds_come_to_every_kind(spark: bool, least: int) -> None:
    plans = [plan.make(seed, spark) for seed in range(200)]
    assert plans == [plan.make(seed, spark) for seed in range(200)]
    injected = [type(i.fault) for p in plans for i in p.injections]
    kinds = (*KINDS, *PAIR_KINDS, *(JOB_KINDS if spark else ()))
    assert {kind: injected.count(kind) >= least for kind in kinds} == dict.fromkeys(kinds, True)
    assert set(injected) == set(kinds)
    assert {p.pool["slots"] for p in plans} == {0, 2}
    assert {p.spark for p in plans} == ({"local", "cluster"} if spark else {""})
    assert {p.upkeep for p in plans} == ({False, True} if spark else {False})
    assert {p.collectors for p in plans} == {1, 2}
    windows = [i.fault.window_s for p in plans for i in p.injections if isinstance(i.fault, Redeploy)]
    assert set(windows) == {WINDOW_S, WINDOW_S / 2}
    assert all(p.collectors == 2 for p in plans if any(isinstance(i.fault, PAIR_KINDS) for i in p.injections))
    assert all(i.fault.fits(p.pool["slots"], p.spark) for p in plans for i in p.injections)


@pytest.mark.parametrize("scene", ["hung-up", "harmed", "hostile"])
def test_seeds_of_a_scene_mean_the_same_each_time_and_come_to_every_kind(scene: str) -> None:
    plans = [SCENES[scene](seed) for seed in range(100)]
    assert plans == [SCENES[scene](seed) for seed in range(100)]
    first = {"hung-up": HangUp, "harmed": HarmFile, "hostile": Flood}[scene]
    assert all(isinstance(p.injections[0].fault, first) for p in plans)
    injected = [i.fault for p in plans for i in p.injections]
    if scene == "hung-up":
        assert {type(fault) for fault in injected} == set(plan.HUNG_UP_KINDS)
    elif scene == "hostile":
        assert {type(fault) for fault in injected} == set(plan.HOSTILE_KINDS)
        assert {fault.what for fault in injected if isinstance(fault, Flood)} == {*hostile.BY_NAME, *hostile.FORGED}
    else:
        harms = {(fault.file, fault.how) for fault in injected if isinstance(fault, HarmFile)}
        assert harms >= {(file, harm.__name__) for file in ("gateway.db", "gateway.db-wal") for harm in HARMS}
        gaps = [b.at - a.at for p in plans for a, b in itertools.pairwise(p.injections)]
        assert min(gaps) > HarmFile.draw(Random(0)).length_s + FIRST_S, "a mark is written in between"


@pytest.mark.parametrize(
    ("heard", "counted", "wrong"),
    [
        ([1.0, 3.0], 1, ()),
        ([1.0], 1, ("1 messages were not given out",)),
        ([1.0, 2.0, 3.0], 1, ("1 messages were heard at which",)),
        ([1.0, 3.0], 2, ("expected 1 messages to be given up, got 2 counted",)),
    ],
)
def test_what_is_given_out_is_all_but_the_messages_at_which_the_broker_hangs_up(
    heard: list[float], counted: int, wrong: tuple[str, ...]
) -> None:
    found = problems([1.0, 2.0, 3.0], [2.0], heard, counted, 1)
    assert len(found) == len(wrong)
    assert all(text.startswith(begin) for text, begin in zip(found, wrong, strict=True))


def test_numbers_of_messages_are_found_in_what_is_said_of_a_loss() -> None:
    first = "the database a has lost its last 3 commits (...): up to 1,200 messages that were acknowledged"
    both = f"the database a has lost its last 2 commits (...): up to 7 messages; and before that, {first}"
    assert messages_said([]) == messages_said(["went back in time"]) == 0
    assert messages_said([first, first]) == 1_200
    assert messages_said([first, both]) == 1_207


def test_placed_seeds_mean_the_same_each_time_and_place_by_hand_and_by_both_schedulers() -> None:
    plans = [plan.make_placed(seed) for seed in range(50)]
    assert plans == [plan.make_placed(seed) for seed in range(50)]
    placed = [i.fault for p in plans for i in p.injections if isinstance(i.fault, Place)]
    assert {fault.by for fault in placed} == {"", "locality", "even"}
    assert {fault.kill for fault in placed} == {"", "slot", "gateway"}
    assert {p.pool["slots"] for p in plans} == {PLACED_SLOTS}
    assert all(i.fault.fits(p.pool["slots"], p.spark) for p in plans for i in p.injections)
    sure = [sum(isinstance(i.fault, Place) and i.fault.sure for i in p.injections) for p in plans]
    assert min(sure) >= SURE > LEAST_PLANS, "a seed comes to its changes of plan"


def test_a_placed_seed_without_enough_changes_of_plan_fails() -> None:
    placed = plan.make_placed(1)
    assert too_few(placed, LEAST_PLANS) == too_few(plan.make(1), 0) == []
    outcome = Outcome(placed, figures={"plans": 1}, problems=too_few(placed, 1))
    assert "expected at least 3 changes of plan, got 1" in str(outcome)
    assert (summary([outcome, outcome])["plans"], summary([outcome])["failed"]) == (2, [1])


@pytest.mark.parametrize(
    ("answer", "took_effect", "plans"),
    [({"version": 1, "plan": 0}, False, set()), ({"version": 1, "plan": 3}, True, {(1, 3)}), (None, False, set())],
)
def test_only_a_new_plan_counts_as_a_placed_fault(
    answer: dict[str, int] | None, took_effect: bool, plans: set[tuple[int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def call(_path: Path, _verb: str, _arguments: object, _timeout_s: float) -> dict[str, Any]:
        if answer is None:
            raise EdgertError("the flow comes to no batch boundary")
        return {**answer, "assignment": {}}

    monkeypatch.setattr(changes, "call", call)
    path: Any = SimpleNamespace(
        daemon=SimpleNamespace(data=Path()), placed=[], plans=set(), begin=lambda _: None, slots_run=lambda _: None
    )
    fault = Place(0.0, "even", "", 1, "", 0.0)
    assert (not fault.inject(path).startswith(NOTHING), path.plans) == (took_effect, plans)
    assert fault.inject(path).startswith(NOTHING), "the second time all is where it was to go"


# -- the comparison

WINDOW = (10.0, "s1")


def row(*numbers: int, start: float = WINDOW[0]) -> dict[str, Any]:
    """Of a table: the messages of these numbers."""
    sum_ = float(sum(1 << number for number in numbers))
    moment = datetime.fromtimestamp(start, UTC)
    return {"window_start": moment, "source": WINDOW[1], "n": len(numbers), "bits": sum_}


@pytest.mark.parametrize(
    ("landed", "lost", "doubled"),
    [
        ([0, 1, 2, 3], 0, 0), ([0, 1, 3], 1, 0), ([], 4, 0), ([0, 1, 2, 3, 3], 0, 1),
        ([0, 1, 2, 2], 1, 1), ([0, 0, 0, 0], 1, 1),
    ],
)  # fmt: skip
def test_what_is_lost_or_doubled_shows_also_when_the_counts_agree(landed: list[int], lost: int, doubled: int) -> None:
    rows = [row(number, start=WINDOW[0] + number % 2 * WINDOW_S / 2) for number in landed]  # some of a shorter window
    found = compare({WINDOW: 4}, rows)
    assert (found.lost, found.doubled, bool(found)) == (lost, doubled, bool(lost or doubled))


def test_a_window_that_nobody_sent_is_doubled() -> None:
    found = compare({}, [row(0, 1)])
    assert (found.lost, found.doubled) == (0, 2)


@pytest.mark.parametrize(
    ("landed", "lost", "doubled"),
    [
        ([[0, 1], [2, 3]], 0, 0),
        ([[0, 1, 3]], 1, 0),
        ([], 4, 0),
        ([[0, 1], [1, 2, 3], [3]], 0, 2),
        ([[0, 1], [0, 1]], 2, 2),
    ],
)
def test_at_least_once_is_told_from_lost(landed: list[list[int]], lost: int, doubled: int) -> None:
    rows = [row(*some, start=WINDOW[0] + at % 2 * WINDOW_S / 2) for at, some in enumerate(landed)]
    found = repetitions.compare({WINDOW: 4}, rows)
    assert (found.lost, found.doubled, bool(found)) == (lost, doubled, bool(lost))
    assert repetitions.compare({}, rows).windows or not rows, "what nobody sent"


@pytest.mark.parametrize(("repeated", "most"), [(0, 0), (1, 5), (2, 8), (9, 10)])
def test_no_more_messages_may_be_doubled_than_the_rows_hold_that_were_made_again(repeated: int, most: int) -> None:
    assert repetitions.most_messages([{"n": 3}, {"n": 5}, {"n": 2}], repeated) == most


def test_of_upkeep_rounds_and_what_they_did_and_could_not_do_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    done: list[list[Work] | TableError] = [
        [Work("fleet/a", compacted=4), Work("landing/a"), Work("leases", deleted=2)],
        TableError("just being made"),
        [Work("fleet/a", trouble="Conflict")],
    ]
    rounds = iter(done)

    def do(*_: object, **__: object) -> list[Work]:
        found = next(rounds, None)
        if found is None:
            raise KeyboardInterrupt
        if isinstance(found, Exception):
            raise found
        return found

    caplog.set_level(logging.INFO)
    monkeypatch.setattr(keeping, "Upkeep", lambda *_, **__: SimpleNamespace(round=do))
    monkeypatch.setattr(keeping, "EVERY_S", 0.0)
    monkeypatch.setattr("edgert.core.log.set_up", lambda *_, **__: None)
    with pytest.raises(KeyboardInterrupt):
        keeping.main(str(tmp_path))
    assert keeping.figures(caplog.text) == {
        "rounds of upkeep": 2, "tables kept": 1, "tables left for the next round": 1
    }  # fmt: skip


# -- the clock


def test_the_clock_of_a_process_steps_and_its_monotonic_one_does_not(tmp_path: Path) -> None:
    file = tmp_path / "clock"
    env = {**os.environ, **wall_clock.environment(file)}
    look = "import time; [print(time.time(), time.monotonic(), flush=True) for _ in iter(input, '')]"
    with subprocess.Popen(
        [sys.executable, "-c", look], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin
        assert process.stdout
        seen = []
        for offset in (0.0, 3600.0, -3600.0):
            wall_clock.set_offset(file, offset)
            process.stdin.write("look\n")
            process.stdin.flush()
            wall, monotonic = map(float, process.stdout.readline().split())
            seen.append((round((wall - monotonic) / 60), offset))
        process.stdin.write("\n")
        process.stdin.close()
    assert [minutes - seen[0][0] for minutes, _ in seen] == [0, 60, -60]


# -- the route


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="a route cannot be taken without root")
@pytest.mark.parametrize("kind", ["blackhole", "unreachable"])
def test_a_lost_route_lets_nothing_through_and_loses_nothing_of_what_was_sent(kind: routes.Kind) -> None:
    lost, host = routes.Routes(), routes.address()
    with (
        socket.create_server((host, 0)) as server,
        socket.create_connection(server.getsockname()) as near,
        server.accept()[0] as far,
    ):
        try:
            assert lost.lose(host, kind)
            assert lost.lose(host, kind), "lost twice is lost once"
            near.sendall(b"sent meanwhile")
            far.settimeout(0.3)
            with pytest.raises(TimeoutError):
                far.recv(100)
            with pytest.raises(OSError) as refused:
                socket.create_connection(server.getsockname(), timeout=5)
            assert refused.value.errno in (errno.EINVAL, errno.EHOSTUNREACH, errno.ENETUNREACH)
        finally:
            assert lost.give_back(host)
        far.settimeout(60)
        assert far.recv(100) == b"sent meanwhile"
    assert not lost.give_back(host)


# -- waiting


def test_what_moves_is_waited_for_and_what_stands_still_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = VirtualClock()
    monkeypatch.setattr(waiting, "time", SimpleNamespace(monotonic=clock.monotonic, sleep=clock.advance))
    waiting.wait_until(lambda: clock.monotonic() > 95, "the end", 10, clock.monotonic)
    with pytest.raises(AssertionError, match="waited 100 s for the end"):
        waiting.wait_until(lambda: False, "the end", 10, clock.monotonic)
    with pytest.raises(AssertionError, match="waited 10 s for nothing; progress: 7"):
        waiting.wait_until(lambda: False, "nothing", 10, lambda: 7)


# -- the torn write


def open_database(path: Path) -> sqlite3.Connection:
    database = sqlite3.connect(path, isolation_level=None)
    database.execute("PRAGMA journal_mode = WAL")
    database.execute("PRAGMA wal_autocheckpoint = 0")
    return database


@pytest.mark.parametrize("seed", range(6))
def test_a_torn_log_keeps_each_transaction_that_was_committed(seed: int, tmp_path: Path) -> None:
    draw = Random(seed)
    path, copy = tmp_path / "a.db", tmp_path / "b.db"
    database = open_database(path)
    database.execute("CREATE TABLE t (n INTEGER, filler BLOB)")
    for number in range(20):
        database.execute("INSERT INTO t VALUES (?, ?)", (number, draw.randbytes(draw.randrange(9_000))))
    log = path.with_name("a.db-wal")
    whole = log.read_bytes()
    assert committed_bytes(whole) == len(whole)
    # as a process leaves it that is killed in the middle of the next transaction
    copy.write_bytes(path.read_bytes())
    copied = copy.with_name("b.db-wal")
    copied.write_bytes(whole + whole[32 : 32 + draw.randrange(5_000)])
    assert "torn" in tear(copied, draw)
    assert copied.read_bytes()[: len(whole)] == whole
    database.close()
    restored = sqlite3.connect(copy)
    assert restored.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    assert restored.execute("SELECT count(*), sum(n) FROM t").fetchone() == (20, 190)
    restored.close()


def test_of_a_transaction_under_way_nothing_counts_as_committed(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    database = open_database(path)
    database.execute("PRAGMA cache_size = 2")
    database.execute("CREATE TABLE t (filler BLOB)")
    log = path.with_name("a.db-wal")
    committed = len(log.read_bytes())
    database.execute("BEGIN")
    for _ in range(50):
        database.execute("INSERT INTO t VALUES (?)", (bytes(4_000),))
    assert len(log.read_bytes()) > committed, "the cache is too large for this test"
    assert committed_bytes(log.read_bytes()) == committed
    database.close()


# -- the proxy


def test_packets_are_taken_whole_however_they_come() -> None:
    whole = [bytes([0x32, 2, 1, 2]), bytes([0x40, 0]), bytes([0x32, 0x80, 0x01]) + bytes(128)]
    stream, buffer = b"".join(whole), bytearray()
    found: list[bytes] = []
    for at in range(len(stream)):
        buffer += stream[at : at + 1]
        found += packets(buffer)
    assert found == whole
    assert not buffer


def test_only_a_message_that_is_acknowledged_can_be_marked_as_repeated() -> None:
    assert with_dup(bytes([0x32, 0])) == bytes([0x3A, 0])
    assert with_dup(bytes([0x30, 0])) == bytes([0x30, 0])
