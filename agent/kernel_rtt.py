"""Round-trip times that the kernel has measured on this board's TCP connections (Linux, sock_diag(7), INET_DIAG_INFO).

They cost no packet, and no busy process is in them. It is one netlink question: a library for it takes 14 MB.
"""

from __future__ import annotations

import ipaddress
import os
import socket
import struct
import sys
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from agent.fleet.status import section_untrusted
from agent.membership.members import State
from agent.membership.roster import Roster

Endpoint = tuple[str, int]
NETLINK_SOCK_DIAG: Final = 4
_HEADER: Final = struct.Struct("=IHHII")
"""nlmsghdr: length, type, flags, sequence, port."""
_REQUEST: Final = struct.Struct("=BBBBI48x")
"""inet_diag_req_v2: family, protocol, extensions, padding, states, socket."""
_ANSWER: Final = struct.Struct("=4x2s2s16s16s32x")
"""inet_diag_msg: the socket's ports and addresses, in network order."""
_ATTRIBUTE: Final = struct.Struct("=HH")
SOCK_DIAG_BY_FAMILY, NLMSG_ERROR, NLMSG_DONE = 20, 2, 3
DUMP: Final = 0x301
"""NLM_F_REQUEST and NLM_F_DUMP."""
ESTABLISHED: Final = 1 << 1
INET_DIAG_INFO: Final = 2
MIN_RTT: Final = struct.Struct("=148xI")
"""`tcpi_min_rtt` in tcp_info, µs: the least of the last minutes. The smoothed one has the other side's delayed
acknowledgements in it, some 40 ms on a connection with little to say."""
UNKNOWN: Final = 0xFFFFFFFF
WAIT_S: Final = 0.5
READ_BYTES: Final = 1 << 16


class TcpConnection(NamedTuple):
    """An established TCP connection of this board."""

    ours: Endpoint
    theirs: Endpoint
    rtt_s: float


def connections() -> Iterator[TcpConnection]:
    """Connections with a round-trip time, IPv4 before IPv6. Raises OSError where the kernel does not tell."""
    for family in (socket.AF_INET, socket.AF_INET6):
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_SOCK_DIAG) as door:
            door.settimeout(WAIT_S)
            door.send(_question(family))
            going_on = True
            while going_on:
                found, going_on = parse(family, door.recv(READ_BYTES))
                yield from found


def _question(family: int) -> bytes:
    extensions = 1 << (INET_DIAG_INFO - 1)
    body = _REQUEST.pack(family, socket.IPPROTO_TCP, extensions, 0, ESTABLISHED)
    return _HEADER.pack(_HEADER.size + len(body), SOCK_DIAG_BY_FAMILY, DUMP, 1, 0) + body


def parse(family: int, data: bytes) -> tuple[list[TcpConnection], bool]:
    """The connections of one part of an answer, and whether more parts follow. What is cut off is left out.

    Raises OSError for the kernel's error.
    """
    found: list[TcpConnection] = []
    at = 0
    while at + _HEADER.size <= len(data):
        length, kind, *_ = _HEADER.unpack_from(data, at)
        if kind == NLMSG_DONE or not _HEADER.size <= length <= len(data) - at:
            return found, False
        body = data[at + _HEADER.size : at + length]
        if kind == NLMSG_ERROR:
            code = -int.from_bytes(body[:4], sys.byteorder, signed=True)
            raise OSError(code, f"sock_diag: {os.strerror(code)}")
        if (connection := _connection(family, body)) is not None:
            found.append(connection)
        at += -(-length // 4) * 4
    return found, bool(data)


def _connection(family: int, body: bytes) -> TcpConnection | None:
    if len(body) < _ANSWER.size:
        return None
    our_port, their_port, ours, theirs = _ANSWER.unpack_from(body)
    at = _ANSWER.size
    while at + _ATTRIBUTE.size <= len(body):
        length, kind = _ATTRIBUTE.unpack_from(body, at)
        if length < _ATTRIBUTE.size:
            return None
        info = body[at + _ATTRIBUTE.size : at + length]
        if kind == INET_DIAG_INFO and len(info) >= MIN_RTT.size:
            (rtt_us,) = MIN_RTT.unpack_from(info)
            if not 0 < rtt_us < UNKNOWN:
                return None
            here, there = _address(family, ours), _address(family, theirs)
            return TcpConnection((here, int.from_bytes(our_port)), (there, int.from_bytes(their_port)), rtt_us / 1e6)
        at += -(-length // 4) * 4
    return None


def _address(family: int, packed: bytes) -> str:
    """IPv4 addresses of sockets for both versions as IPv4."""
    if family == socket.AF_INET:
        return str(ipaddress.IPv4Address(packed[:4]))
    address = ipaddress.IPv6Address(packed)
    return str(address.ipv4_mapped or address)


def by_member(roster: Roster) -> Mapping[str, float]:
    """Round-trip time in seconds to each member that a link between gateways leads to; the least of several.

    A link that this board opened is known by the member's address and port, one that came in by its address alone, if
    only one member has it. Raises as `connections`.
    """
    links: dict[Endpoint, str] = {}
    names: dict[str, list[str]] = {}
    our_port = 0
    for member in roster:
        match section_untrusted(member, "board").get("link"):
            case [str(host), int(port)] if member is roster.own:
                our_port = port
            case [str(host), int(port)] if member.state is State.ALIVE:
                links[host, port] = member.name
                names.setdefault(host, []).append(member.name)
    alone = {host: found[0] for host, found in names.items() if len(found) == 1}
    least: dict[str, float] = {}
    for connection in connections() if links else ():
        name = links.get(connection.theirs)
        if name is None and connection.ours[1] == our_port:
            name = alone.get(connection.theirs[0])
        if name is not None:
            least[name] = min(connection.rtt_s, least.get(name, connection.rtt_s))
    return least
