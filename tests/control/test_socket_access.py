"""The control socket's path: who may speak there, and what may be in the way."""

from __future__ import annotations

import asyncio
import os
import socket
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from edgert.control.client import BlockingClient, ControlClient, call
from edgert.control.messages import (
    ControlError,
)
from edgert.control.server import ControlServer
from edgert.control.socket import may_speak, peer
from tests.control.control_rig import serving
from tests.waiting import in_loop


def test_root_our_own_user_and_the_sockets_group_may_speak() -> None:
    assert may_speak(0, (0,), our_uid=990, group=990)
    assert may_speak(990, (5,), our_uid=990, group=991)
    assert may_speak(1000, (1000, 27, 991), our_uid=990, group=991)
    assert not may_speak(1000, (1000, 27), our_uid=990, group=991)
    assert not may_speak(1000, (), our_uid=0, group=0)


def test_the_kernel_says_who_is_at_the_other_end() -> None:
    one, other = socket.socketpair(socket.AF_UNIX)
    with one, other:
        pid, uid, groups = peer(one)
        assert (pid, uid) == (os.getpid(), os.geteuid())
        assert {os.getegid(), *os.getgroups()} == set(groups)


ASK = """
import os, sys
from edgert.control.client import call
from edgert.control.messages import ControlError
os.setgroups([int(g) for g in sys.argv[3].split(",") if g])
os.setgid(int(sys.argv[2])); os.setuid(int(sys.argv[2]))
try:
    print(call(sys.argv[1], "echo", {"a": 1}))
except ControlError as error:
    print(error)
"""


@pytest.mark.root
@pytest.mark.parametrize("mode", [0o660, 0o666], ids=["as made", "mode loosened"])
def test_another_user_is_kept_out_and_a_member_of_the_group_is_not(mode: int) -> None:
    """By the file's mode, and where somebody loosened that, by the credentials that the kernel tells."""
    folder = Path(f"/tmp/edgert-control-{os.getpid()}-{mode:o}")
    folder.mkdir(mode=0o755)
    path = folder / "c.sock"

    def ask(user: int, groups: str) -> str:
        done = subprocess.run(
            [sys.executable, "-c", ASK, str(path), str(user), groups],
            capture_output=True, text=True, check=True, timeout=60,
        )  # fmt: skip
        return done.stdout

    @in_loop
    async def run() -> None:
        async with serving(path) as server:
            os.chown(path, -1, 54_321)
            server._group = path.stat().st_gid
            path.chmod(mode)
            assert "{'a': 1}" in await asyncio.to_thread(ask, 54_322, "54321,5")
            told = await asyncio.to_thread(ask, 54_322, "5")
            assert "a member of the socket's group" in told or "may not use this socket" in told, told
            assert server.refused == (mode == 0o666)

    try:
        run()
    finally:
        (folder / "c.sock.lock").unlink(missing_ok=True)
        folder.rmdir()


@in_loop
async def test_the_socket_is_for_user_and_group_and_goes_with_the_server(tmp_path: Path) -> None:
    path = tmp_path / "new folder" / "c.sock"
    before = os.umask(0o077)
    try:
        async with serving(path):
            assert stat.S_IMODE(path.stat().st_mode) == 0o660
    finally:
        os.umask(before)
    assert not path.exists()


@in_loop
async def test_the_socket_of_a_server_that_was_killed_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "c.sock"
    left = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    left.bind(str(path))
    left.close()
    with pytest.raises(ControlError, match="no program serves it any more"):
        call(path, "echo")
    async with serving(path):
        assert await asyncio.to_thread(call, path, "echo") == {}


@in_loop
async def test_a_second_server_is_refused_and_the_first_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "c.sock"
    async with serving(path):
        second = ControlServer(path, {})
        with pytest.raises(ControlError, match=f"the control socket {path} is served by another process already"):
            await second.start()
        await second.stop()
        assert await asyncio.to_thread(call, path, "echo") == {}
    async with serving(path):
        assert await asyncio.to_thread(call, path, "echo") == {}


@in_loop
async def test_a_file_in_the_place_of_the_socket_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "c.sock"
    path.write_text("precious")
    with pytest.raises(ControlError, match="expected a socket there, or nothing; a file is in its place"):
        await ControlServer(path, {}).start()
    assert path.read_text() == "precious"


@in_loop
async def test_a_folder_that_cannot_be_made_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ControlError, match=r"the control socket .*file/c.sock cannot be made: "):
        await ControlServer(tmp_path / "file" / "c.sock", {}).start()


@in_loop
async def test_a_path_longer_than_a_sockets_address_does(tmp_path: Path) -> None:
    path = tmp_path / ("x" * 100) / ("y" * 100) / "control.sock"
    async with serving(path):
        assert await asyncio.to_thread(call, path, "echo", {"a": 1}) == {"a": 1}
        client = ControlClient(path)
        assert await client.call("echo", {"a": 2}) == {"a": 2}
        await client.close()
    assert not path.exists()


def test_a_server_that_answers_rubbish_is_an_error_of_the_client(tmp_path: Path) -> None:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    with listener:
        listener.bind(str(tmp_path / "c.sock"))
        listener.listen()

        def answer() -> None:
            sock, _ = listener.accept()
            with sock:
                sock.recv(1000)
                sock.sendall(b"\x01\0\0\0\x05")

        thread = threading.Thread(target=answer)
        thread.start()
        with BlockingClient(tmp_path / "c.sock") as client, pytest.raises(ControlError, match="expected an answer"):
            client.call("echo")
        thread.join()
