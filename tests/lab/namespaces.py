"""Network namespaces and the TAP interfaces in them, by system calls: nothing of it has a name, so that nothing stays
when the processes have ended."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import socket
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

_CLONE_NEWNET: Final = 0x40000000
_TUNSETIFF: Final = 0x400454CA
_TAP_WITHOUT_HEADER: Final = 0x0002 | 0x1000
_SIOCSIFFLAGS, _SIOCSIFADDR, _SIOCSIFNETMASK, _SIOCSIFHWADDR = 0x8914, 0x8916, 0x891C, 0x8924
_SIOCSIFTXQLEN: Final = 0x8943
_UP_AND_RUNNING: Final = 0x1 | 0x40
_QUEUED_FRAMES: Final = 4000
"""That wait on an interface for the switch. The kernel drops more; so many that it is the switch that drops a burst."""
_ETHERNET: Final = 1
_LIBC: Final = ctypes.CDLL(None, use_errno=True)
INTERFACE: Final = "eth0"


def lack() -> str | None:
    """What this machine lacks for namespaces with TAP interfaces; None if nothing."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    if not Path("/dev/net/tun").exists():
        return "there is no /dev/net/tun"
    try:
        namespace = Namespace()
    except OSError as error:
        return f"this process may not make network namespaces: {error}"
    try:
        os.close(namespace.add_tap("10.77.0.1", b"\x02\0\0\0\0\1"))
    except OSError as error:
        return f"this process may not make TAP interfaces: {error}"
    finally:
        namespace.close()
    return None


class Namespace:
    """A network namespace with loopback. It lives as long as this object or a process in it. Raises `OSError`."""

    def __init__(self) -> None:
        with _back_again():
            _checked(_LIBC.unshare(_CLONE_NEWNET), "unshare")
            self._fd = _own()
            for setting in ("all", "default"):  # or each interface would talk to its neighbours on its own
                with contextlib.suppress(OSError):
                    Path(f"/proc/sys/net/ipv6/conf/{setting}/disable_ipv6").write_text("1")
            _configure("lo", "127.0.0.1", "255.0.0.0")

    @property
    def path(self) -> str:
        """For nsenter(1), while this process lives."""
        return f"/proc/{os.getpid()}/fd/{self._fd}"

    @contextlib.contextmanager
    def inside(self) -> Iterator[None]:
        """The calling thread is in the namespace meanwhile: so are the sockets, threads and processes that it makes."""
        with _back_again():
            _checked(_LIBC.setns(self._fd, _CLONE_NEWNET), "setns")
            yield

    def add_tap(self, address: str, hardware: bytes) -> int:
        """An interface with an address of a /24 network; returns the descriptor of its other end, for whole Ethernet
        frames. The interface lives as long as that descriptor."""
        with self.inside():
            tap = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
            try:
                fcntl.ioctl(tap, _TUNSETIFF, struct.pack("16sH22x", INTERFACE.encode(), _TAP_WITHOUT_HEADER))
                with _interface(INTERFACE) as change:
                    change(_SIOCSIFHWADDR, struct.pack("H14s", _ETHERNET, hardware))
                    change(_SIOCSIFTXQLEN, struct.pack("i", _QUEUED_FRAMES))
                _configure(INTERFACE, address, "255.255.255.0")
            except OSError:
                os.close(tap)
                raise
        return tap

    def close(self) -> None:
        os.close(self._fd)


def _own() -> int:
    """A descriptor of the calling thread's namespace."""
    return os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)


@contextlib.contextmanager
def _back_again() -> Iterator[None]:
    before = _own()
    try:
        yield
    finally:
        _checked(_LIBC.setns(before, _CLONE_NEWNET), "setns")
        os.close(before)


def _configure(interface: str, address: str, mask: str) -> None:
    with _interface(interface) as change:
        for what, text in ((_SIOCSIFADDR, address), (_SIOCSIFNETMASK, mask)):
            change(what, struct.pack("HH4s8x", socket.AF_INET, 0, socket.inet_aton(text)))
        change(_SIOCSIFFLAGS, struct.pack("H14x", _UP_AND_RUNNING))


@contextlib.contextmanager
def _interface(name: str) -> Iterator[Any]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        yield lambda request, value: fcntl.ioctl(sock, request, struct.pack("16s24s", name.encode(), value))


def _checked(result: int, call: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{call}: {os.strerror(number)}")
