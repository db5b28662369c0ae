"""A list of revoked certificates that came to a board: of its own CA, and later than the board's."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgert.boards.authority import Authority, create
from edgert.boards.revocation import MOST_BYTES, is_newer_untrusted
from edgert.cli.board import requests, revoked
from edgert.cli.main import main
from edgert.core.errors import EdgertError

NOW, LIFE = datetime(2026, 1, 1, tzinfo=UTC), timedelta(days=365)


class World:
    """A CA, the certificate of a board, and lists that were made one after the other."""

    def __init__(self, folder: Path) -> None:
        create(folder / "ca", "farm", NOW)
        authority = Authority(folder / "ca")
        self.root, self.own = authority.root_pem, authority.board("g1", NOW, LIFE).certificate
        self.lists = [authority.crl_pem]
        for name in ("g2", "g3"):
            authority.board(name, NOW, LIFE)
            authority.revoke(name, NOW)
            self.lists.append(authority.crl_pem)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return World(tmp_path_factory.mktemp("fleet"))


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> World:
    return World(tmp_path_factory.mktemp("other"))


@pytest.mark.parametrize(("came", "before", "newer"), [(1, 0, True), (2, 0, True), (1, 1, False), (1, 2, False)])
def test_only_a_later_list_is_taken(world: World, came: int, before: int, newer: bool) -> None:
    assert is_newer_untrusted(world.lists[came], world.own, world.root, world.lists[before]) is newer


def test_the_first_list_of_a_board(world: World) -> None:
    assert is_newer_untrusted(world.lists[0], world.own, world.root, b"")


def test_a_list_of_another_ca_is_refused(world: World, other: World) -> None:
    with pytest.raises(EdgertError, match="signed by this board's CA"):
        is_newer_untrusted(other.lists[2], world.own, world.root, world.lists[0])
    with pytest.raises(EdgertError, match="with that of its CA"):
        is_newer_untrusted(other.lists[2], other.own, world.root, world.lists[0])


@pytest.mark.parametrize("content", [b"", b"x", b"-----BEGIN X509 CRL-----\nAAAA\n-----END X509 CRL-----\n"])
def test_what_is_no_list_is_refused(world: World, content: bytes) -> None:
    with pytest.raises(EdgertError, match="expected a certificate revocation list"):
        is_newer_untrusted(content, world.own, world.root, world.lists[0])
    with pytest.raises(EdgertError, match="at most"):
        is_newer_untrusted(world.lists[1] + b" " * MOST_BYTES, world.own, world.root, b"")


@settings(max_examples=50)
@given(data=st.data())
def test_a_list_that_was_changed_is_refused_or_says_the_same(world: World, data: st.DataObject) -> None:
    content = bytearray(world.lists[1])
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    try:
        assert is_newer_untrusted(bytes(content), world.own, world.root, world.lists[0])
    except EdgertError:
        pass  # a change of the signed part is found; the text around it is not signed


class Board:
    def __init__(self, folder: Path, world: World) -> None:
        self.left, self.stored = folder / "crl.request", folder / "crl.pem"
        self.stored.write_bytes(world.lists[0])
        (folder / "board.pem").write_bytes(world.own)
        (folder / "ca.pem").write_bytes(world.root)

    def take(self) -> str:
        return revoked.take(self.left, self.stored.parent)


@pytest.fixture
def board(tmp_path: Path, world: World) -> Board:
    return Board(tmp_path, world)


def test_a_board_stores_a_later_list_for_everybody_to_read(board: Board, world: World) -> None:
    board.left.write_bytes(world.lists[2])
    assert board.take().endswith("a later list of revoked certificates")
    assert board.stored.read_bytes() == world.lists[2]
    assert board.stored.stat().st_mode & 0o777 == 0o644
    assert not board.left.exists()
    board.left.write_bytes(world.lists[1])  # recorded, and sent again
    assert "is not later" in board.take()
    assert board.stored.read_bytes() == world.lists[2]
    assert board.take() == "no list of revoked certificates has come"


def test_a_board_keeps_its_list_when_another_comes(board: Board, world: World, other: World, tmp_path: Path) -> None:
    for content, why in ((other.lists[2], "another's"), (b"nonsense", "expected a certificate revocation list")):
        board.left.write_bytes(content)
        with pytest.raises(EdgertError, match=why):
            board.take()
    (tmp_path / "secret").write_bytes(world.lists[2])
    board.left.symlink_to(tmp_path / "secret")
    with pytest.raises(EdgertError, match="expected a plain file"):
        board.take()
    assert board.stored.read_bytes() == world.lists[0]
    assert not board.left.is_symlink()
    assert requests.left_untrusted(board.left, 1) is None


def test_the_command_says_what_was_done(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(revoked, "take", lambda: "nothing has come")
    assert main(["board", "revoked"]) == 0
    assert capsys.readouterr().err == "nothing has come\n"
