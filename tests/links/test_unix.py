"""Links over real socket pairs: no sender waits, nothing is lost or turned around, sockets travel with their frames."""

from __future__ import annotations

import errno
import random
import select
import socket
import threading
from collections.abc import Iterator
from typing import cast

import pytest

from edgert.links.frames import frame
from edgert.links.unix import LinkClosed, UnixLink

Pair = tuple[UnixLink, UnixLink]


@pytest.fixture
def pair() -> Iterator[Pair]:
    one, two = socket.socketpair()
    links = UnixLink(one), UnixLink(two)
    yield links
    for link in links:
        link.close()


def pump(sender: UnixLink, receiver: UnixLink) -> list[list[object]]:
    """Sends all frames of `sender`, and returns those that `receiver` got."""
    got: list[list[object]] = []
    while True:
        done = sender.flush()
        if not select.select([receiver], [], [], 0)[0]:
            if done:
                return got
            continue
        got += receiver.receive()


def test_what_the_socket_does_not_take_waits_and_goes_in_order(pair: Pair) -> None:
    one, two = pair
    seen: list[int] = []
    one.on_backlog = lambda: seen.append(one.backlog_bytes)
    blob = random.Random(1).randbytes(100_000)
    for number in range(100):
        one.send(frame(number, blob))
    assert seen
    assert one.backlog_bytes > 0
    got = pump(one, two)
    assert [number for number, _ in got] == list(range(100))
    assert all(data == blob for _, data in got)
    assert one.backlog_bytes == 0


def test_threads_that_send_at_once_never_mix_their_frames(pair: Pair) -> None:
    one, two = pair
    blob = b"x" * 5_000

    def send(thread: int) -> None:
        for number in range(50):
            one.send(frame(thread, number, blob))

    threads = [threading.Thread(target=send, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    got: list[list[object]] = []
    while any(thread.is_alive() for thread in threads) or len(got) < 200:
        got += pump(one, two)
    for thread_number in range(4):
        assert [n for t, n, _ in got if t == thread_number] == list(range(50))


@pytest.mark.parametrize("crowded", [False, True])
def test_a_socket_travels_with_its_frame(pair: Pair, crowded: bool) -> None:
    one, two = pair
    if crowded:
        while not one.backlog_bytes:
            one.send(frame("filler", b"x" * 100_000))
    near, far = socket.socketpair()
    one.send(frame("here", 1), far)
    far.close()
    one.send(frame("behind"))
    got = [parts for parts in pump(one, two) if parts[0] != "filler"]
    assert got == [["here", 1], ["behind"]]
    near.send(b"hello")
    with two.received.popleft() as received:
        assert received.recv(5) == b"hello"
    near.close()
    assert not two.received


def test_the_end_of_the_other_side_is_told_to_who_receives_and_no_trouble_to_who_sends(pair: Pair) -> None:
    one, two = pair
    one.send(frame("the end"))
    one.close()
    assert list(two.receive()) == [["the end"]]
    with pytest.raises(LinkClosed):
        list(two.receive())
    two.send(frame("nobody hears this"))
    two.send(frame("nor this"))
    assert two.backlog_bytes == 0
    one.send(frame("a closed link takes all"))


def test_nothing_to_read_is_no_frames(pair: Pair) -> None:
    assert list(pair[1].receive()) == []


@pytest.mark.parametrize("number", [errno.ENOBUFS, errno.ENOMEM, errno.ETOOMANYREFS])
def test_a_machine_without_memory_for_a_frame_delays_it(pair: Pair, number: int) -> None:
    one, two = pair

    class Full:
        """The kernel has no memory for what is sent."""

        def send(self, data: memoryview) -> int:
            raise OSError(number, "not now")

    sock, full = one.sock, cast(socket.socket, Full())
    one.sock = full
    one.send(frame("first"))
    one.sock = sock
    one.send(frame("second"))
    assert not one.closed
    assert pump(one, two) == [["first"], ["second"]]
