"""Unix sockets as both ends of the control socket use them: addresses of any length, and who is at the other end."""

from __future__ import annotations

import array
import contextlib
import os
import socket
import struct
from collections.abc import Iterator
from typing import Final

READ_BYTES: Final = 65_536
_LONGEST_ADDRESS: Final = 107
"""Bytes of a path that fit into a Unix socket's address."""
_SO_PEERGROUPS: Final = 59
_CREDENTIALS: Final = struct.Struct("3i")


def peer(sock: socket.socket) -> tuple[int, int, tuple[int, ...]]:
    """(process id, user id, group ids) of the process at the other end, as they were when it connected."""
    pid, uid, gid = _CREDENTIALS.unpack(sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
    more = array.array("I")
    with contextlib.suppress(OSError):  # before Linux 4.13, or with more than 256 groups: then the first alone counts
        more.frombytes(sock.getsockopt(socket.SOL_SOCKET, _SO_PEERGROUPS, 256 * more.itemsize))
    return pid, uid, (gid, *more)


def may_speak(uid: int, groups: tuple[int, ...], our_uid: int, group: int) -> bool:
    """True if a process of user `uid` and `groups` may use a socket of `group` that a process of `our_uid` serves."""
    return uid in (0, our_uid) or group in groups


@contextlib.contextmanager
def address_of(path: str) -> Iterator[str]:
    """A socket's address for `path`, however long that is: through a descriptor of its folder where it must be."""
    if len(os.fsencode(path)) <= _LONGEST_ADDRESS:
        yield path
        return
    folder = os.open(os.path.dirname(path), os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{folder}/{os.path.basename(path)}"
    finally:
        os.close(folder)
