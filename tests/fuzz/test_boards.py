"""What comes from outside about boards, their updates and their lists of revoked certificates."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import stat
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest import mock

from hypothesis import example, given
from hypothesis import strategies as st

from edgert.boards.authority import Authority, create
from edgert.boards.board_state import PHASES, BoardState, UpdateProgress, state_untrusted
from edgert.boards.requests import MOST_BYTES, UpdateRequest, read_request_untrusted, request_untrusted
from edgert.boards.revocation import is_newer_untrusted
from edgert.boards.waves import cut, waves_untrusted
from edgert.cli.board import requests
from edgert.cli.fleet.board_watch import MOST_REFUSAL, BoardWatch
from edgert.cli.fleet.revoked import Told
from edgert.core.errors import EdgertError
from edgert.core.settings.connection import Connection
from gateway.control.revoked import RevokedList
from tests.fuzz.nearly import as_bytes, nearly, texts

REQUEST = {"id": "r-1", "url": "https://host/bundle.raucb", "version": "1.2", "drain": True}
STATE = json.loads(BoardState("A", "1.2", "", UpdateProgress("installing", "1.3", "r-1", "https://h/b", 40, "")).text())
TOPICS = st.one_of(st.sampled_from(["status", "update/state", "answers/token", "crl/state", ""]), texts)
BOARDS = st.one_of(st.sampled_from(["g1", "g2"]), texts)


@given(st.one_of(texts, st.text(alphabet="0123456789.,% e-", max_size=20), st.just("5%,25%,100%")), st.integers(0, 50))
@example("0.0000000000000000000000000000001,100", 3)
def test_waves_of_an_update(text: str, boards: int) -> None:
    """Every board is in one wave, or none is asked."""
    with suppress(EdgertError):
        percents = waves_untrusted(text)
        names = [f"g{n}" for n in range(boards)]
        waves = cut(names, percents)
        assert [name for wave in waves for name in wave] == names[: sum(map(len, waves))]
        assert percents[-1] < 100 or sum(map(len, waves)) == boards


@given(as_bytes(STATE))
@example(b"[" * 16_000)
@example(json.dumps({**STATE, "update": {**STATE["update"], "percent": True}}).encode())
def test_states_of_boards(content: bytes) -> None:
    state = state_untrusted(content)
    if state is not None:
        assert type(state.slot) is type(state.version) is type(state.refuses) is str
        assert state.update is None or (state.update.phase in PHASES and str(state.update))
        assert state_untrusted(state.text().encode()) == state


@given(as_bytes(REQUEST), nearly(REQUEST))
@example(b'{"id": 1}', {"url": "https://user:secret@host/x", "id": "x"})
def test_requests_for_updates(content: bytes, value: Any) -> None:
    reads: list[Callable[[], UpdateRequest]] = [
        lambda: read_request_untrusted(content),
        lambda: request_untrusted(value if isinstance(value, dict) else {"id": value}),
    ]
    for read in reads:
        with suppress(EdgertError):
            request = read()
            assert read_request_untrusted(request.text().encode()) == request
            assert "@" not in request.url.partition("://")[2].partition("/")[0]


class Fleet:
    """A CA, the certificate of a board, and two lists one after the other."""

    def __init__(self) -> None:
        with TemporaryDirectory() as folder:
            now, life = datetime(2026, 1, 1, tzinfo=UTC), timedelta(days=365)
            create(Path(folder) / "ca", "farm", now)
            authority = Authority(Path(folder) / "ca")
            self.root, self.own = authority.root_pem, authority.board("g1", now, life).certificate
            self.first = authority.crl_pem
            authority.board("g2", now, life)
            authority.revoke("g2", now)
            self.second = authority.crl_pem


FLEET = Fleet()


@given(st.one_of(st.binary(max_size=200), as_bytes({"x": 1}), st.integers(0, 2**32)), st.binary(max_size=60))
def test_lists_of_revoked_certificates_and_what_is_compared_with_them(came: bytes | int, other: bytes) -> None:
    """A number: a list with a byte of it changed. Nothing that is not of this CA is newer."""
    if isinstance(came, int):
        raw = bytearray(FLEET.second)
        raw[came % len(raw)] ^= 1 + came % 255
        came = bytes(raw)
    for pem, own, root, before in (
        (came, FLEET.own, FLEET.root, FLEET.first),
        (FLEET.second, other, FLEET.root, FLEET.first),
        (FLEET.second, FLEET.own, other, FLEET.first),
        (FLEET.second, FLEET.own, FLEET.root, other),
    ):
        with suppress(EdgertError):
            assert is_newer_untrusted(pem, own, root, before) in (True, False)
    assert is_newer_untrusted(FLEET.second, FLEET.own, FLEET.root, FLEET.first)


def folder_with_something(path: Path) -> None:
    path.mkdir()
    (path / "x").touch()


def local_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(str(path))


KINDS: dict[str, Callable[[Path], None]] = {
    "nothing": lambda path: None,
    "link": lambda path: path.symlink_to("/etc/hostname"),
    "loop": lambda path: path.symlink_to(path),
    "pipe": os.mkfifo,
    "folder": Path.mkdir,
    "full folder": folder_with_something,
    "socket": local_socket,
}


@given(st.lists(st.one_of(st.sampled_from(list(KINDS)), as_bytes(REQUEST), st.just(b"x" * 9_000)), max_size=4))
@example(["full folder", "full folder", "full folder"])
def test_what_the_gateways_user_may_leave_for_root(left: list[str | bytes]) -> None:
    """It is gone after one look, whatever it is, and no link is followed."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "update.request"
        for one in left:
            if isinstance(one, bytes):
                path.write_bytes(one)
                assert requests.left_untrusted(path, MOST_BYTES) == one[: MOST_BYTES + 1]
                path.write_bytes(one)
            else:
                KINDS[one](path)
            with mock.patch.object(requests, "REQUEST", path), suppress(EdgertError):
                taken = requests.take_untrusted()
                assert isinstance(taken, UpdateRequest) if taken is not None else one == "nothing"
            assert not os.path.lexists(path)


@given(
    st.lists(
        st.tuples(BOARDS, TOPICS, st.one_of(as_bytes(STATE), as_bytes({"asked": "r-1"}), as_bytes([1, None]))),
        max_size=4,
    )
)
@example([("g1", "answers/token", b'{"error": 1}'), ("g1", "update/state", b"[" * 9_000)])
def test_what_boards_tell_while_they_are_updated(messages: list[tuple[str, str, bytes]]) -> None:
    heard = []
    watch = BoardWatch(Connection(), "farm", "token", lambda: heard.append(1))
    for board, below, payload in messages:
        watch.message_untrusted(f"edgert/v1/farm/{board}/{below}", payload, None)
        watch._take_untrusted("g9", below, payload)
    assert len(heard) == len(messages)
    for board in watch.boards():
        seen = watch.seen(board)
        assert len(seen.refusal) <= MOST_REFUSAL
        assert (type(seen.online), type(seen.taken)) == (bool, bool)


@given(
    st.lists(st.tuples(BOARDS, TOPICS, st.one_of(as_bytes({"digest": "d"}), as_bytes({"state": "online"}))), max_size=4)
)
def test_which_lists_of_revoked_certificates_boards_tell_of(messages: list[tuple[str, str, bytes]]) -> None:
    told = Told()
    for board, below, payload in messages:
        told.message_untrusted(f"{board}/{below}", payload)
    assert all(isinstance(digest, str) for digest in told.lists.values())
    assert set(told.without("d")) <= {board for board, online in told.online.items() if online}


@given(st.lists(st.one_of(st.binary(max_size=50), st.just(b"x" * ((1 << 20) + 1))), max_size=4), st.binary(max_size=5))
def test_lists_that_come_over_mqtt(payloads: list[bytes], stored: bytes) -> None:
    """The newest one that the board lacks is left for root, who alone may read it."""
    with TemporaryDirectory() as folder:
        has, request = Path(folder) / "crl.pem", Path(folder) / "crl.request"
        has.write_bytes(stored)
        revoked = RevokedList(str(has), str(request), lambda state: True, lambda: 1)
        for payload in payloads:
            asyncio.run(revoked.take_untrusted(payload))
        lacks = [payload for payload in payloads if payload and payload != stored and len(payload) <= 1 << 20]
        assert (request.read_bytes() if request.exists() else None) == (lacks[-1] if lacks else None)
        assert not lacks or stat.S_IMODE(request.stat().st_mode) == 0o600
