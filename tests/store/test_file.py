"""The database's file: whole, of a version that is known, and nobody else's, or it is refused rather than guessed."""

from __future__ import annotations

import os
import random
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from edgert.core.errors import StoreError
from edgert.store import file as file_module
from edgert.store.database import Database
from edgert.store.schema import UPGRADES
from tests.store.test_database import COMMITS, E1, SCHEMA, commit, flow


def test_a_long_outbox_is_not_read_at_a_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The payload's pages are written over: who reads them fails."""
    path = tmp_path / "gateway.db"
    database = Database(path, "g1")
    database.put_flow(flow(E1), SCHEMA, None, {}, 1)
    database.commit([commit([0.0, 60.0, random.Random(1).randbytes(200_000).hex(), 1])], {}, 1)
    size, long = database.outbox_size, database.outbox("f", E1, 0, 1, 1)[0].payload
    database.close()
    raw = path.read_bytes()
    at = raw.index(long[100_000:100_040])
    path.write_bytes(raw[:at] + b"\xff" * 20_000 + raw[at + 20_000 :])
    with pytest.raises(StoreError, match="damaged"):
        Database(path, "g1")
    monkeypatch.setattr(file_module, "CHECKED_BYTES", 0)
    assert Database(path, "g1").outbox_size == size


def test_a_large_file_whose_other_tables_are_damaged_is_still_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_module, "CHECKED_BYTES", 0)
    test_a_damaged_file_is_refused_and_told_what_to_do("torn", tmp_path)


def test_two_processes_on_one_database_are_one_too_many(tmp_path: Path) -> None:
    path = tmp_path / "gateway.db"
    database = Database(path, "g1")
    with pytest.raises(StoreError, match=rf"in use by another gateway \(process {os.getpid()}\): stop that one"):
        Database(path, "g1")
    database.close()
    command = [sys.executable, "-c", COMMITS, str(path)]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2])
    assert child.stdout
    child.stdout.readline()
    with pytest.raises(StoreError, match=f"process {child.pid}"):
        Database(path, "g1")
    child.kill()
    child.wait()
    child.stdout.close()
    Database(path, "g1").close()


def test_nobody_else_may_read_the_database(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    old = os.umask(0)
    try:
        database = Database(folder / "gateway.db", "g1")
        database.put_flow(flow(E1), SCHEMA, None, {}, 1)
        files = {f.name: f.stat().st_mode & 0o777 for f in folder.iterdir()}
    finally:
        os.umask(old)
    assert set(files) >= {"gateway.db", "gateway.db-wal", "gateway.db-shm"}
    assert (set(files.values()), folder.stat().st_mode & 0o777) == ({0o600}, 0o700)
    database.close()
    (folder / "gateway.db").chmod(0o644)
    Database(folder / "gateway.db", "g1").close()
    assert (folder / "gateway.db").stat().st_mode & 0o777 == 0o600


def test_a_database_of_version_0_is_brought_up_to_date_and_a_newer_one_refused(tmp_path: Path) -> None:
    path = tmp_path / "gateway.db"
    sqlite3.connect(path).close()
    Database(path, "g1").close()
    with sqlite3.connect(path) as raw:
        assert raw.execute("PRAGMA user_version").fetchone()[0] == len(UPGRADES)
        raw.execute(f"PRAGMA user_version = {len(UPGRADES) + 1}")
    with pytest.raises(StoreError, match=f"schema version {len(UPGRADES) + 1}, this edgert knows up to"):
        Database(path, "g1")


@pytest.mark.parametrize("damage", ["not a database", "torn", "a folder"])
def test_a_damaged_file_is_refused_and_told_what_to_do(damage: str, tmp_path: Path) -> None:
    path = tmp_path / "gateway.db"
    if damage == "not a database":
        path.write_bytes(b"hello" * 1_000)
    elif damage == "a folder":
        path.mkdir()
    else:
        made = Database(path, "g1")
        made.put_flow(flow(E1), SCHEMA, None, {}, 1)
        made.commit([commit(deltas=(os.urandom(100_000),))], {}, 1)
        made.close()
        raw = bytearray(path.read_bytes())
        raw[4096:40_960] = b"\xff" * 36_864
        path.write_bytes(raw)
    with pytest.raises(StoreError, match=r"check the folder|move it away"):
        Database(path, "g1")
