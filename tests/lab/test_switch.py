"""The switch as a process between two namespaces: real sockets."""

from __future__ import annotations

import errno
import socket
import threading
import time
from collections.abc import Iterator

import pytest

from agent.simulation.described.ways import Way
from tests.lab.lab import SwitchProcess
from tests.lab.namespaces import Namespace
from tests.waiting import DEADLINE_S, wait_until

pytestmark = [pytest.mark.root, pytest.mark.usefixtures("may_make_namespaces")]
DELAY_S = 0.010
ADDRESSES = {"a": "10.77.0.1", "b": "10.77.0.2"}
PORT = 5000
_SO_RCVBUFFORCE = 33


class Two:
    """Places a and b, a datagram socket in each."""

    def __init__(self) -> None:
        self.namespaces = {name: Namespace() for name in ADDRESSES}
        way = Way(delay_s=DELAY_S)
        self.switch = SwitchProcess(self.namespaces, ADDRESSES, {("a", "b"): way, ("b", "a"): way}, seed=1)
        self.sockets = {name: self.socket(name, socket.SOCK_DGRAM) for name in ADDRESSES}

    def socket(self, name: str, kind: socket.SocketKind) -> socket.socket:
        with self.namespaces[name].inside():
            made = socket.socket(socket.AF_INET, kind)
        made.settimeout(DEADLINE_S)
        made.bind((ADDRESSES[name], PORT))
        return made

    def reaches(self, origin: str, destination: str, wait_s: float = DEADLINE_S) -> bool:
        """A datagram arrives."""
        self.sockets[origin].sendto(b"x", (ADDRESSES[destination], PORT))
        self.sockets[destination].settimeout(wait_s)
        try:
            return self.sockets[destination].recv(10) == b"x"
        except TimeoutError:
            return False

    def round_trip_s(self) -> float:
        began = time.monotonic()
        assert self.reaches("a", "b")
        assert self.reaches("b", "a")
        return time.monotonic() - began

    def close(self) -> None:
        for made in self.sockets.values():
            made.close()
        self.switch.close()
        for namespace in self.namespaces.values():
            namespace.close()


@pytest.fixture
def two() -> Iterator[Two]:
    made = Two()
    try:
        assert made.reaches("a", "b")  # after it each knows the other's hardware address
        yield made
    finally:
        made.close()


def test_round_trip_takes_twice_the_delay(two: Two) -> None:
    measured = [two.round_trip_s() for _ in range(20)]
    assert 2 * DELAY_S <= min(measured) < 2 * DELAY_S + 0.010, "a busy machine makes it longer, never shorter"
    two.switch.set({("a", "b"): Way(delay_s=0.05)})
    assert two.round_trip_s() >= 0.05 + DELAY_S


def test_one_way_cut_stops_one_direction_only(two: Two) -> None:
    two.switch.set({("a", "b"): Way(cut=True)})
    assert not two.reaches("a", "b", 0.3)
    assert two.reaches("b", "a")
    wait_until(lambda: two.switch.figures()["a b"]["cut"] >= 1, "the frame that the cut drops")
    assert two.switch.figures()["b a"]["cut"] == 0
    two.switch.set({("a", "b"): Way()})
    assert two.reaches("a", "b")


def test_lost_datagrams_are_those_that_the_switch_counted(two: Two) -> None:
    before = two.switch.figures()["a b"]
    two.switch.set({("a", "b"): Way(loss=0.2)})
    two.sockets["b"].setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, 2**20)
    for number in range(300):
        two.sockets["a"].sendto(str(number).encode(), (ADDRESSES["b"], PORT))

    def since(what: str) -> int:
        return two.switch.figures()["a b"][what] - before[what]

    wait_until(lambda: since("lost") + since("forwarded") == 300, "all of them at the switch")
    lost = since("lost")
    two.sockets["b"].settimeout(DEADLINE_S)
    for _ in range(300 - lost):
        assert two.sockets["b"].recv(10)
    two.sockets["b"].settimeout(0.3)
    with pytest.raises(TimeoutError):
        two.sockets["b"].recv(10)
    assert 25 < lost < 95  # 60, and five standard deviations


def test_connection_is_as_fast_as_its_bandwidth(two: Two) -> None:
    two.switch.set({("a", "b"): Way(delay_s=0.001, bytes_per_s=1_000_000, queue_bytes=100_000)})
    size, times, took_s = 500_000, 5, []
    with two.socket("b", socket.SOCK_STREAM) as listener, two.socket("a", socket.SOCK_STREAM) as caller:
        listener.listen()

        def take() -> None:
            connection, _ = listener.accept()
            with connection:
                for _ in range(times):
                    connection.recv(size, socket.MSG_WAITALL)
                    connection.sendall(b"x")

        reader = threading.Thread(target=take)
        reader.start()
        caller.connect((ADDRESSES["b"], PORT))
        for _ in range(times):
            began = time.monotonic()
            caller.sendall(bytes(size))
            assert caller.recv(1) == b"x"
            took_s.append(time.monotonic() - began)
        reader.join(DEADLINE_S)
    assert 0.45 < min(took_s) < 2.0


def test_nothing_leaves_the_namespaces(two: Two) -> None:
    with pytest.raises(OSError, match="unreachable") as caught:
        two.sockets["a"].sendto(b"x", ("192.0.2.1", 9))
    assert caught.value.errno == errno.ENETUNREACH
