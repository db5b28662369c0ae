"""Round-trip times from the kernel: of real connections on loopback, and answers that are none."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from contextlib import closing, contextmanager
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent import kernel_rtt
from agent.membership.members import Member, Section, State, Version
from agent.membership.roster import Roster
from edgert.core.packing import pack


@contextmanager
def connection() -> Iterator[tuple[socket.socket, socket.socket]]:
    """A TCP connection over loopback on which something went both ways: who opened it, who took it."""
    with (
        closing(socket.create_server(("127.0.0.1", 0))) as server,
        closing(socket.create_connection(server.getsockname())) as opened,
        closing(server.accept()[0]) as taken,
    ):
        for _ in range(5):
            opened.sendall(b"x")
            assert taken.recv(1) == b"x"
            taken.sendall(b"y")
            assert opened.recv(1) == b"y"
        yield opened, taken


def asked() -> list[kernel_rtt.TcpConnection]:
    try:
        return list(kernel_rtt.connections())
    except OSError as error:
        pytest.skip(f"the kernel does not answer INET_DIAG: {error}")


def member(name: str, link: object, state: State = State.ALIVE) -> Member:
    board = Section(1, 1, pack({"link": link}))
    return Member(name, ("127.0.0.1", 1), Version(1, 1, state), 0.0, {"board": board})


def roster(own_port: int, *others: Member) -> Roster:
    made = Roster(member("g0", ["127.0.0.1", own_port]), Random(1), 100)
    for other in others:
        made._members[other.name] = other
    return made


def test_the_kernel_tells_of_both_ends_of_a_connection() -> None:
    with connection() as (opened, taken):
        found = {(c.ours, c.theirs): c.rtt_s for c in asked()}
        for end in (opened, taken):
            assert 0 < found[end.getsockname(), end.getpeername()] < 1.0


def test_a_link_is_known_by_its_port_and_one_that_came_in_by_its_address() -> None:
    asked()
    with connection() as (opened, taken):
        port = taken.getsockname()[1]
        there = member("g1", ["127.0.0.1", port])
        assert set(kernel_rtt.by_member(roster(1, there))) == {"g1"}
        elsewhere = member("g1", ["127.0.0.1", 1])
        assert set(kernel_rtt.by_member(roster(port, elsewhere))) == {"g1"}
        two = (elsewhere, member("g2", ["127.0.0.1", 2]))
        assert kernel_rtt.by_member(roster(port, *two)) == {}, "either of two boards at one address"
        assert kernel_rtt.by_member(roster(1, member("g1", ["127.0.0.1", port], State.DEAD))) == {}
        assert opened.getpeername()[1] == port


@pytest.mark.parametrize("link", [None, [], ["127.0.0.1"], ["127.0.0.1", "x"], {"host": 1}])
def test_a_member_that_tells_no_link_is_left_out(link: object) -> None:
    assert kernel_rtt.by_member(roster(1, member("g1", link))) == {}


def answer(kind: int, body: bytes) -> bytes:
    return struct.pack("=IHHII", 16 + len(body), kind, 2, 1, 0) + body


def test_an_error_of_the_kernel_is_said() -> None:
    with pytest.raises(OSError, match="sock_diag: No such file"):
        kernel_rtt.parse(socket.AF_INET, answer(kernel_rtt.NLMSG_ERROR, struct.pack("=i", -2)))


def test_a_connection_without_a_time_is_left_out() -> None:
    ends = struct.pack("!4xHH", 1883, 40_000) + bytes([127, 0, 0, 1, *[0] * 12]) * 2 + bytes(32)
    for rtt_us, count in ((250, 1), (0, 0), (kernel_rtt.UNKNOWN, 0)):
        info = bytes(148) + struct.pack("=I", rtt_us)
        data = answer(20, ends + struct.pack("=HH", 4 + len(info), kernel_rtt.INET_DIAG_INFO) + info)
        found, more = kernel_rtt.parse(socket.AF_INET, data)
        assert (len(found), more) == (count, True)
    assert kernel_rtt.parse(socket.AF_INET, answer(kernel_rtt.NLMSG_DONE, b"")) == ([], False)


@given(st.sampled_from([socket.AF_INET, socket.AF_INET6]), st.binary(max_size=400))
def test_what_is_cut_off_or_no_answer_gives_no_connection_that_is_none(family: int, data: bytes) -> None:
    try:
        found, _ = kernel_rtt.parse(family, answer(20, data))
    except OSError:
        return
    assert all(0 < connection.rtt_s < 4295 for connection in found)
