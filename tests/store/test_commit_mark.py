"""A database that lost what it had committed says so at the next start: of whichever file that was, and however."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgert.store.database import Database
from edgert.store.file.commit_mark import CommitMark, packed, path_of, unpacked_untrusted
from tests.store.worlds import E1, SCHEMA, commit, flow

ROW = [0.0, 60.0, "hall", 1]


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A data folder as a kill left it: seven commits of ten messages each, the log not written back."""
    live = tmp_path / "live"
    database = Database(live / "gateway.db", "g1")
    database.put_flow(flow(E1), SCHEMA, None, {}, 1)
    for n in range(1, 8):
        database.commit([commit(ROW, deltas=(os.urandom(5_000),))], {3: b"page"}, 1 + 10 * n)
        if n == 2:
            shutil.copytree(live, tmp_path / "yesterday")
    killed = tmp_path / "killed"
    shutil.copytree(live, killed)
    yield killed
    database.close()


def lost(folder: Path) -> str:
    """What a start says, and the next one does not say again of a database whose flows have said it."""
    database = Database(folder / "gateway.db", "g1")
    said = database.lost
    if database.flows():
        database.lost_is_said()
    database.close()
    again = Database(folder / "gateway.db", "g1")
    assert not again.lost or not again.flows()
    again.close()
    return said


def test_after_a_kill_nothing_is_missing(folder: Path) -> None:
    assert lost(folder) == ""


def test_after_a_stop_in_order_nothing_is_missing(folder: Path) -> None:
    Database(folder / "gateway.db", "g1").close()
    assert not (folder / "gateway.db-wal").exists()
    assert lost(folder) == ""


def delete(path: Path) -> None:
    path.unlink()


def empty(path: Path) -> None:
    path.write_bytes(b"")


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def flip(path: Path) -> None:
    """20 bits."""
    raw, draw = bytearray(path.read_bytes()), random.Random(1)
    for _ in range(20):
        raw[draw.randrange(len(raw))] ^= 1 << draw.randrange(8)
    path.write_bytes(raw)


def yesterdays(path: Path) -> None:
    shutil.copy(path.parent.parent / "yesterday" / path.name, path)


@pytest.mark.parametrize("harm", [delete, empty, cut, flip, yesterdays])
def test_a_log_that_is_gone_or_damaged_is_said(folder: Path, harm: Callable[[Path], None]) -> None:
    harm(folder / "gateway.db-wal")
    said = lost(folder)
    assert "has lost its last" in said
    messages = int(said.partition("up to ")[2].partition(" ")[0])
    assert messages == (50 if harm is yesterdays else messages)
    assert 0 < messages <= 70


def test_what_was_said_of_a_loss_and_is_lost_in_its_turn_is_said_again(folder: Path) -> None:
    """The gap waits in the database for the central side; the log with it is lost before it could leave."""
    (folder / "gateway.db-wal").unlink()
    database = Database(folder / "gateway.db", "g1")
    assert "up to 70 messages" in database.lost
    database.put_gap("f", database.lost)
    database.lost_is_said()
    for beside in ("", "-wal", "-shm", ".mark"):
        shutil.copy(folder / f"gateway.db{beside}", folder.parent / f"gateway.db{beside}")
    database.close()
    again = folder.parent / "gateway.db"
    (folder.parent / "gateway.db-wal").unlink()
    said = Database(again, "g1").lost
    assert "up to 0 messages" in said
    assert "; and before that, " in said
    assert "up to 70 messages" in said


@pytest.mark.parametrize("harm", [delete, empty])
def test_a_database_that_is_gone_is_said_until_a_flow_has_said_it(folder: Path, harm: Callable[[Path], None]) -> None:
    harm(folder / "gateway.db")
    database = Database(folder / "gateway.db", "g1")
    assert "is gone: it is deleted or emptied, and it had 10 commits" in database.lost
    assert "up to 70 messages" in database.lost
    assert database.meta("flows_unread") == database.lost, "whoever deploys one of its flows later is told"
    database.close()


def test_another_database_in_its_place_is_said(folder: Path, tmp_path: Path) -> None:
    Database(tmp_path / "other" / "gateway.db", "g1").close()
    for beside in ("-wal", "-shm"):
        (folder / f"gateway.db{beside}").unlink()
    shutil.copy(tmp_path / "other" / "gateway.db", folder / "gateway.db")
    assert "another one stands in its place" in lost(folder)


@pytest.mark.parametrize("harm", [delete, empty, cut, flip])
def test_a_database_without_its_mark_says_that_nothing_is_known_and_gets_another(
    folder: Path, harm: Callable[[Path], None]
) -> None:
    harm(path_of(folder / "gateway.db"))
    database = Database(folder / "gateway.db", "g1")
    assert not database.went_back, "its packet ids are as good as they were"
    database.close()
    assert "whether the database beside it has lost commits is not known" in lost(folder)
    (folder / "gateway.db").unlink()
    assert "is gone" in lost(folder)


@pytest.mark.parametrize("harm", [delete, empty, cut, flip])
def test_a_database_that_lost_its_log_and_its_mark_says_so(folder: Path, harm: Callable[[Path], None]) -> None:
    harm(path_of(folder / "gateway.db"))
    (folder / "gateway.db-wal").unlink()
    assert "is not known" in lost(folder)


def test_a_new_database_knows_without_its_log_that_it_has_a_mark(tmp_path: Path) -> None:
    database = Database(tmp_path / "live" / "gateway.db", "g1")
    for n in range(3):
        database.set_meta("n", n)
    (tmp_path / "killed").mkdir()
    shutil.copy(tmp_path / "live" / "gateway.db", tmp_path / "killed")
    database.close()
    database = Database(tmp_path / "killed" / "gateway.db", "g1")
    assert "is not known" in database.lost
    database.set_meta("n", 4)
    assert database.meta("flows_unread") == database.lost, "whoever deploys one of its flows later is told"
    database.close()


def test_a_start_that_was_killed_after_its_first_mark_lost_nothing(tmp_path: Path) -> None:
    path_of(tmp_path / "gateway.db").write_bytes(packed(CommitMark("ab" * 16, 0, 0)))
    assert lost(tmp_path) == ""


def test_a_database_of_an_older_version_has_no_mark_and_lost_nothing(folder: Path) -> None:
    path_of(folder / "gateway.db").unlink()
    database = Database(folder / "gateway.db", "g1")
    with database._transaction() as db:
        db.execute("DELETE FROM meta WHERE key IN ('identity', 'commits', 'lost')")
    database.mark = CommitMark("", 0, 0)
    path_of(folder / "gateway.db").unlink()
    database.db.execute("DELETE FROM meta WHERE key = 'commits'")
    database._mark_file.close()
    database.db.close()
    database._lock.close()
    assert lost(folder) == ""


def test_a_damaged_database_says_it_once(folder: Path) -> None:
    raw = (folder / "gateway.db").read_bytes()
    (folder / "gateway.db-wal").unlink()
    (folder / "gateway.db").write_bytes(raw.replace(b"CREATE TABLE opening", b"\xff" * 20))
    database = Database(folder / "gateway.db", "g1")
    assert "is damaged" in database.meta("begun_anew")
    assert database.lost == ""
    database.close()
    assert Database(folder / "gateway.db", "g1").lost == ""


def test_the_log_is_written_back_when_a_flow_is_deployed_and_after_some_minutes(tmp_path: Path) -> None:
    now = [0.0]
    database = Database(tmp_path / "gateway.db", "g1", monotonic=lambda: now[0])
    database.put_flow(flow(E1), SCHEMA, None, {}, 1)

    def without_log() -> list[bytes]:
        shutil.copy(tmp_path / "gateway.db", tmp_path / "copy.db")
        copy = Database(tmp_path / "copy.db", "g1")
        found = [stored.name for stored in copy.flows()], copy.state("f")
        copy.close()
        (tmp_path / "copy.db").unlink()
        path_of(tmp_path / "copy.db").unlink()
        assert found[0] == ["f"]
        return found[1]

    database.commit([commit(ROW, deltas=(b"first",))], {}, 11)
    assert without_log() == []
    now[0] += 601.0
    database.commit([commit(ROW, deltas=(b"second",))], {}, 21)
    assert without_log() == [b"first", b"second"]
    database.close()


@given(st.binary(max_size=200) | st.text("edgrt-1 0123456789abcf", min_size=127, max_size=127).map(str.encode))
def test_bytes_that_are_no_mark_are_none(raw: bytes) -> None:
    assert unpacked_untrusted(raw) is None


@given(st.integers(0, 2**60), st.integers(0, 2**60), st.integers(0, 127), st.integers(0, 7))
def test_a_mark_is_read_as_it_was_written_and_not_with_a_bit_flipped(n: int, messages: int, at: int, bit: int) -> None:
    mark = CommitMark("ab" * 16, n, messages)
    raw = packed(mark)
    assert len(raw) == 128
    assert unpacked_untrusted(raw) == mark
    damaged = bytearray(raw)
    damaged[at] ^= 1 << bit
    assert unpacked_untrusted(bytes(damaged)) in (None, mark)
