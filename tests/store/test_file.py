"""The database's file: of a version that is known, and nobody else's, or it is refused rather than guessed."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from edgert.core.errors import StoreError
from edgert.store.database import Database
from edgert.store.file.schema import UPGRADES
from tests.store.worlds import COMMITS, E1, SCHEMA, flow


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


def test_what_is_no_file_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "gateway.db"
    path.mkdir()
    with pytest.raises(StoreError, match="check the folder"):
        Database(path, "g1")
    assert [found.name for found in tmp_path.iterdir() if "lock" not in found.name] == ["gateway.db"]
