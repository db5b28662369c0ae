"""A database whose own structure is damaged is set aside, and another begun with what can be read of its flows."""

from __future__ import annotations

import os
import random
import sqlite3
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from edgert.core.checkpoint.position import Position
from edgert.core.errors import StoreError
from edgert.store import transactions
from edgert.store.database import Database
from edgert.store.file import file as file_module
from edgert.store.file import salvage
from edgert.store.file.salvage import is_suspect
from edgert.store.file.schema import upgrade
from tests.store.worlds import E1, SCHEMA, commit, flow

LONG = [0.0, 60.0, random.Random(1).randbytes(200_000).hex(), 1]


def made(path: Path) -> Database:
    """One flow, with state and a long result in the outbox."""
    database = Database(path, "g1")
    database.put_flow(flow(E1, version=3), SCHEMA, None, {}, 1)
    database.commit([commit(LONG, deltas=(os.urandom(100_000),))], {3: b"page"}, 7)
    return database


def overwrite(path: Path, beside: bytes) -> None:
    """20 kB in the midst of a payload, and the links between its pages."""
    raw = path.read_bytes()
    at = raw.index(beside[50_000:50_020])
    path.write_bytes(raw[:at] + b"\xff" * 20_000 + raw[at + 20_000 :])


def spoil_state(path: Path) -> None:
    with sqlite3.connect(path) as db:
        (state,) = db.execute("SELECT blob FROM state").fetchone()
    overwrite(path, state)


def test_the_documents_of_its_flows_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "gateway.db"
    database = made(path)
    database.set_meta("subscriptions", "what was asked for")
    database.close()
    spoil_state(path)
    database = Database(path, "g1")
    assert "is damaged" in database.meta("begun_anew")
    database.close()
    database = Database(path, "g1")
    rescued = database.rescued()
    assert rescued is not None, "also after a crash at once"
    assert database.meta("subscriptions") == "what was asked for"
    (old,) = rescued
    assert (old.name, old.document, old.version, old.epoch, old.position) == ("f", {"name": "f"}, 3, E1, Position())
    assert (database.flows(), database.pages(), database.outbox_size.batches) == ([], [], 0)
    assert (tmp_path / "gateway.db.damaged").stat().st_mode & 0o777 == 0o600
    database.restored()
    assert database.rescued() is None
    assert (database.meta("begun_anew"), database.meta("flows_unread")) == (None, None)
    database.close()
    path.write_bytes(b"a second time" * 1_000)

    def makes_room(db: sqlite3.Connection) -> None:
        assert not (tmp_path / "gateway.db.damaged").exists()
        monkeypatch.undo()
        upgrade(db)

    monkeypatch.setattr(transactions, "upgrade", makes_room)
    database = Database(path, "g1")
    assert database.rescued() == []
    assert (tmp_path / "gateway.db.damaged").read_bytes().startswith(b"a second time")
    database.restored()
    assert "is damaged" in database.meta("flows_unread"), "whose they were shows when they are deployed again"


class Killed(BaseException):
    """The process ends here."""


def killed(*_: object) -> None:
    raise Killed


@pytest.mark.parametrize(
    ("where", "what"),
    [(transactions, "upgrade"), (salvage, "set_aside"), (salvage, "trust"), (Database, "_begin")],
    ids=["it is made", "it is whole", "the damaged one is aside", "it is in use"],
)
def test_a_kill_when_another_one_is_begun_loses_no_flow(
    where: Any, what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "gateway.db"
    made(path).close()
    spoil_state(path)
    with monkeypatch.context() as patch:
        patch.setattr(where, what, killed)
        with pytest.raises(Killed):
            Database(path, "g1")
    database = Database(path, "g1")
    assert [stored.name for stored in database.rescued() or ()] == ["f"]
    assert "is damaged" in database.meta("begun_anew")
    assert not Path(f"{path}.new").exists()


def test_a_full_disk_leaves_the_damaged_one_to_the_next_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "gateway.db"
    made(path).close()
    spoil_state(path)
    with monkeypatch.context() as patch:
        full = sqlite3.OperationalError("database or disk is full")
        patch.setattr(transactions, "upgrade", mock.Mock(side_effect=[full]))
        with pytest.raises(StoreError, match=r"cannot be begun: .* disk is full; make room"):
            Database(path, "g1")
    assert Database(path, "g1").rescued()


@pytest.mark.parametrize("content", [b"hello" * 1_000, b"SQLite format 3\0" + b"\0" * 5_000])
def test_what_is_no_database_is_set_aside(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "gateway.db"
    path.write_bytes(content)
    assert Database(path, "g1").rescued() == []


def test_a_file_that_was_cut_off_is_set_aside(tmp_path: Path) -> None:
    path = tmp_path / "gateway.db"
    made(path).close()
    path.write_bytes(path.read_bytes()[:50_000])
    assert Database(path, "g1").rescued() is not None


def test_a_large_file_is_looked_at_without_its_outbox(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_module, "CHECKED_BYTES", 0)
    path = tmp_path / "gateway.db"
    database = made(path)
    long = database.outbox("f", E1, 0, 1, 1)[0].payload
    database.close()
    overwrite(path, long)
    database = Database(path, "g1")
    assert (database.rescued(), database.outbox_size.batches) == (None, 2)
    database.close()
    spoil_state(path)
    assert Database(path, "g1").rescued()


def test_what_is_found_while_it_runs_has_the_next_start_look_at_all_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_module, "CHECKED_BYTES", 0)
    path = tmp_path / "gateway.db"
    database = made(path)
    long = database.outbox("f", E1, 0, 1, 1)[0].payload
    database.close()
    overwrite(path, long)
    database = Database(path, "g1")
    assert not database.damaged
    with pytest.raises(StoreError, match="could not be"):
        database.departing("f", E1, 0, 0, 10)
    assert "malformed" in database.damaged
    with pytest.raises(StoreError, match="nothing is written any more"):
        database.commit([commit(LONG)], {}, 1)
    assert database.last_state("f") == 1, "it can still be read"
    database.close()
    assert is_suspect(path)
    assert [stored.name for stored in Database(path, "g1").rescued() or ()] == ["f"]
    assert not is_suspect(path)


def test_one_that_is_whole_after_all_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "gateway.db"
    made(path).close()
    Path(f"{path}.suspect").touch()
    database = Database(path, "g1")
    assert (database.rescued(), len(database.flows())) == (None, 1)
    assert not is_suspect(path)


@pytest.mark.parametrize("column", ["document", "missing"])
def test_a_flow_that_is_damaged_in_itself_is_known_by_its_name(column: str, tmp_path: Path) -> None:
    path = tmp_path / "gateway.db"
    made(path).close()
    with sqlite3.connect(path) as db:
        db.execute(f"UPDATE flow SET {column} = ?", ('{"na' if column == "document" else b"\xc1",))
    database = Database(path, "g1")
    (stored,) = database.flows()
    assert (stored.name, list(stored.document)) == ("f", ["damaged"])


@pytest.mark.parametrize("byte", [b"\xff", b"X"])
def test_a_damaged_definition_is_found_at_the_start(byte: bytes, tmp_path: Path) -> None:
    path = tmp_path / "gateway.db"
    made(path).close()
    raw = path.read_bytes()
    at = raw.index(b"departed INTEGER")
    path.write_bytes(raw[: at + 2] + byte + raw[at + 3 :])
    rescued = Database(path, "g1").rescued()
    assert [stored.name for stored in rescued or ()] == ["f"]


def test_text_that_is_none_hides_no_other_flow(tmp_path: Path) -> None:
    path = tmp_path / "gateway.db"
    database = made(path)
    for name in ("a", "z"):
        database.put_flow(replace(flow(E1), name=name), SCHEMA, None, {}, 1)
    database.set_meta("subscriptions", "what was asked for")
    database.close()
    with sqlite3.connect(path) as db:
        db.execute("UPDATE flow SET document = CAST(x'7b22ff227d' AS TEXT) WHERE name = 'a'")
        db.execute("UPDATE meta SET value = CAST(x'ff' AS TEXT) WHERE key = 'subscriptions'")
    assert [row[0] for row in salvage.flows(path)] == ["f", "z"]
    assert salvage.subscriptions(path) == ""


def test_text_that_is_none_is_that_flow_s_trouble(tmp_path: Path) -> None:
    path = tmp_path / "gateway.db"
    made(path).close()
    with sqlite3.connect(path) as db:
        db.execute("UPDATE flow SET document = CAST(x'7b226e61ff' AS TEXT)")
    (stored,) = Database(path, "g1").flows()
    assert list(stored.document) == ["damaged"]
