"""The IP address of this board that a setting means: an address, a network interface, or `default` for the interface
of the default route. An address that DHCP replaces is found again by each look (the door to the interfaces)."""

from __future__ import annotations

import errno
import fcntl
import ipaddress
import socket
import struct
from pathlib import Path
from typing import Final

from edgert.core.errors import EdgertError
from edgert.core.settings.checks import is_address

DEFAULT: Final = "default"
LEAST_MTU: Final = 1_280
"""Bytes that each path of IPv6 carries. Paths of IPv4 carry them but for rare ones."""
SEGMENT: Final = LEAST_MTU - 60
"""Bytes of a segment of TCP that such a path carries, with IPv6."""
_ELSEWHERE: Final = ("192.0.2.1", "2001:db8::1")
"""Addresses that no network has: a socket that connects to one takes the source address of the default route."""
_SIOCGIFADDR: Final = 0x8915
_IF_INET6: Final = Path("/proc/net/if_inet6")
_NOT_YET: Final = 0x40 | 0x08
"""Flags of an IPv6 address that is not usable: tentative, or found twice on the network."""


class NoAddressError(EdgertError):
    """This board has no such address now."""


def local_address(text: str) -> str:
    """The IP address that `text` means now, IPv4 before IPv6. Raises `NoAddressError` if this board has none."""
    if is_address(text):
        return _own(text)
    if text == DEFAULT:
        return _of_default_route()
    found = _ipv4_of(text) or _ipv6_of(text)
    if found:
        return found
    known = ", ".join(sorted(name for _, name in socket.if_nameindex()))
    raise NoAddressError(f"expected the interface {text} with an IP address, got none; interfaces: {known}")


def follows(text: str) -> bool:
    """True if the address may be another one at the next look."""
    return not is_address(text)


def bound_segments(listening: socket.socket, host: str) -> None:
    """Connections that are taken here use segments in both directions that a path of `LEAST_MTU` carries. Where a
    router on the path drops larger packets without a word, the kernel sends them again and again."""
    if not ipaddress.ip_address(host).is_loopback:
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, SEGMENT)


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def _own(host: str) -> str:
    try:
        with socket.socket(_family(host), socket.SOCK_DGRAM) as trial:
            trial.bind((host, 0))
    except OSError as error:
        if error.errno in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
            raise NoAddressError(
                f"expected an address of this board, got {host}, which it does not have; where DHCP gives addresses,"
                " name the interface, or default"
            ) from error
    return host


def _of_default_route() -> str:
    for elsewhere in _ELSEWHERE:
        try:
            with socket.socket(_family(elsewhere), socket.SOCK_DGRAM) as trial:
                trial.connect((elsewhere, 9))
                return str(trial.getsockname()[0])
        except OSError:
            continue
    raise NoAddressError("expected a default route, got none: this board has no network now")


def _ipv4_of(interface: str) -> str:
    request = struct.pack("256s", interface.encode()[:15])
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
            answer = fcntl.ioctl(asking.fileno(), _SIOCGIFADDR, request)
    except OSError:
        return ""
    return socket.inet_ntoa(answer[20:24])


def _ipv6_of(interface: str) -> str:
    try:
        lines = _IF_INET6.read_text().splitlines()
    except OSError:
        return ""
    for line in lines:
        number, _, _, scope, flags, name = line.split()
        if name == interface and int(scope, 16) == 0 and not int(flags, 16) & _NOT_YET:
            return str(ipaddress.IPv6Address(int(number, 16)))
    return ""
