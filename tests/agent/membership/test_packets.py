"""Sealed packets: what is not from a member of the fleet, or not new, is dropped and counted by its reason."""

from __future__ import annotations

import itertools
import random
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.membership.keys import KeyRing
from agent.membership.members import Peer
from agent.membership.messages import body, decode_untrusted, encode
from agent.membership.packets import (
    ANYBODY,
    MAX_DATAGRAM,
    WINDOW,
    Dropped,
    Frame,
    ReplayWindow,
    Sealer,
    hello_at,
    hello_to,
)
from agent.membership.parameters import Parameters
from agent.membership.protocol import Membership
from edgert.core.errors import ProtocolError
from edgert.core.text.key_lines import KeyFileError, key_line, parse_keys
from tests.agent.membership.some_messages import MESSAGES

OLD, NEW = bytes(range(32)), bytes(range(32, 64))
B = Peer("b", 1, ("127.0.0.1", 1))


def sealer(name: str = "a", *keys: bytes, fleet: str = "f", epoch: int = 1) -> Sealer:
    return Sealer(name, fleet, epoch, KeyRing(keys or (OLD,)), random.Random(1).randbytes)


def dropped(receiver: Sealer, packet: bytes) -> str:
    with pytest.raises(Dropped) as caught:
        receiver.open_untrusted(packet)
    assert receiver.drops[caught.value.reason] > 0
    return caught.value.reason


def test_packet_opens_once_with_its_sender() -> None:
    receiver = sealer("b")
    packet = sealer("a", epoch=7).seal(b"hello", B)
    opened = receiver.open_untrusted(packet)
    assert (opened.sender, opened.epoch, opened.body) == ("a", 7, b"hello")
    assert dropped(receiver, packet) == "replay"


def test_packets_of_an_earlier_start_are_dropped_with_the_later_epoch() -> None:
    receiver = sealer("b")
    old = sealer("a", epoch=1).seal(b"old", B)
    receiver.open_untrusted(sealer("a", epoch=2).seal(b"new", B))
    with pytest.raises(Dropped, match="older start") as caught:
        receiver.open_untrusted(old)
    assert caught.value.older == ("a", 1, 1, 2)


def test_second_agent_of_a_name_does_not_mute_the_member() -> None:
    """One packet with a later epoch made all packets of the member replays."""
    receiver, member, thief = sealer("b"), sealer("a", epoch=5), sealer("a", epoch=2**62)
    receiver.member_epoch = {"a": 5}.get
    for _ in range(3):
        first, second = member.seal(b"", B), thief.seal(b"", B)
        receiver.open_untrusted(first)
        receiver.open_untrusted(second)
        assert dropped(receiver, first) == dropped(receiver, second) == "replay"
    receiver.open_untrusted(sealer("a", epoch=2**62 + 1).seal(b"", B))
    assert dropped(receiver, thief.seal(b"", B)) == "older start"
    receiver.open_untrusted(member.seal(b"", B))


def test_packets_of_a_start_that_was_replaced_are_taken_no_more() -> None:
    receiver, before, now = sealer("b"), sealer("a", epoch=5), sealer("a", epoch=6)
    receiver.member_epoch = {"a": 5}.get
    receiver.open_untrusted(before.seal(b"", B))
    receiver.open_untrusted(now.seal(b"", B))
    receiver.member_epoch = {"a": 6}.get
    receiver.open_untrusted(now.seal(b"", B))
    assert dropped(receiver, before.seal(b"", B)) == "older start"


def test_packet_opens_at_its_receiver_only_and_not_after_its_restart() -> None:
    packet = sealer().seal(b"hello", B)
    assert dropped(sealer("c"), packet) == "bad tag"
    assert dropped(sealer("b", epoch=2), packet) == "bad tag"
    receiver = sealer("b")
    receiver.epoch = 2  # raised while it runs
    assert dropped(receiver, packet) == "bad tag"
    assert receiver.open_untrusted(sealer().seal(b"hello", B._replace(epoch=2))).to == "b"


def test_frame_opens_in_its_connection_and_place_only() -> None:
    receiver, here = sealer("b"), Frame(bytes(16), "b", "head")
    packet = sealer().seal_frame(b"hello", here)
    for other in (
        Frame(bytes(15) + b"x", "b", "head"), Frame(bytes(16), "b", "body"), Frame(bytes(16), "b", "answer head"),
        Frame(bytes(16), "c", "head"), Frame(bytes(16), ANYBODY, "head"),
    ):  # fmt: skip
        with pytest.raises(Dropped, match="bad tag"):
            receiver.open_frame_untrusted(packet, other)
    assert receiver.drops == {"bad tag": 5}
    with pytest.raises(Dropped, match="bad tag"):
        receiver.open_untrusted(packet)
    opened = receiver.open_frame_untrusted(packet, Frame(bytes(16), ANYBODY, "head"), here)
    assert (opened.sender, opened.body, opened.to) == ("a", b"hello", "b")


def test_hello_is_taken_once() -> None:
    asker, receiver, hello = sealer(), sealer("b"), hello_to(B)
    recorded = [asker.seal_frame(b"", hello) for _ in range(2)]
    for packet in reversed(recorded):  # connections made at once come in any order
        assert receiver.open_frame_untrusted(packet, hello, hello_at(B.address)).sender == "a"
    for packet in recorded:
        with pytest.raises(Dropped, match="replay"):
            receiver.open_frame_untrusted(packet, hello)
    assert receiver.drops == {"replay": 2}


@pytest.mark.parametrize(
    ("packet", "reason"),
    [
        (sealer("a", NEW).seal(b"x", B), "unknown key"),
        (sealer(fleet="other").seal(b"x", B), "bad tag"),
        (sealer().seal_frame(b"x", Frame(bytes(16), "b", "head")), "bad tag"),
        (sealer().seal(b"x", B._replace(name="c")), "bad tag"),
        (sealer().seal(b"x", B._replace(epoch=2)), "bad tag"),
        (sealer().seal(b"x", B)[:-1], "bad tag"),
        (sealer().seal(b"x", B)[:20], "truncated"),
        (b"", "truncated"),
        (b"\x02" + sealer().seal(b"x", B)[1:], "version"),
        (bytes(MAX_DATAGRAM + 1), "too large"),
        (sealer("not a name!").seal(b"x", B), "malformed"),
    ],
)
def test_foreign_packet_is_counted_by_its_reason(packet: bytes, reason: str) -> None:
    assert dropped(sealer("b"), packet) == reason


@given(st.binary(max_size=1_500), st.data())
def test_changed_packet_never_opens(noise: bytes, data: st.DataObject) -> None:
    receiver, packet = sealer("b"), bytearray(sealer().seal(b"hello", B))
    dropped(receiver, noise)
    at = data.draw(st.integers(0, len(packet) - 1))
    packet[at] ^= data.draw(st.integers(1, 255))
    dropped(receiver, bytes(packet))


def test_a_revoked_board_is_not_heard_although_it_holds_the_key() -> None:
    receiver, revoked, other = sealer("b"), sealer("a"), sealer("c")
    receiver.revoked = frozenset({"a"})
    assert dropped(receiver, revoked.seal(b"x", B)) == "revoked"
    assert receiver.open_untrusted(other.seal(b"x", B)).sender == "c"
    receiver.revoked = frozenset()
    assert receiver.open_untrusted(revoked.seal(b"y", B)).sender == "a"


def test_keys_rotate_without_a_lost_packet() -> None:
    steps = [(OLD,), (OLD, NEW), (NEW, OLD), (NEW,)]
    for before, after in itertools.pairwise(steps):  # boards are at most one step apart
        sealer("b", *after).open_untrusted(sealer("a", *before).seal(b"x", B))
        sealer("b", *before).open_untrusted(sealer("a", *after).seal(b"x", B))


@given(st.lists(st.integers(0, 3 * WINDOW), max_size=200))
def test_window_takes_a_number_once_and_refuses_only_old_ones(counters: list[int]) -> None:
    window, taken = ReplayWindow(), set[int]()
    for counter in counters:
        highest = max(taken, default=-1)
        expected = counter not in taken and counter > highest - WINDOW
        assert window.accept(counter) == expected
        if expected:
            taken.add(counter)


def test_key_file_errors_name_the_line_and_show_no_key() -> None:
    good = key_line(OLD)
    assert parse_keys(f"# comment\n\n{good}\n", "k") == [OLD]
    with pytest.raises(KeyFileError, match=r"k, line 2: expected base64") as caught:
        parse_keys(f"{good}\n{good[:-4]}\n", "k")
    assert good[:-4] not in str(caught.value)
    with pytest.raises(KeyFileError, match="expected 1 to 8 keys, got 0"):
        parse_keys("", "k")


@given(st.lists(MESSAGES, max_size=30))
def test_messages_survive_a_round_trip(messages: list) -> None:  # type: ignore[type-arg]
    assert decode_untrusted(body([encode(m) for m in messages]), 1 << 20) == messages


@given(st.one_of(st.binary(max_size=1_400), st.lists(MESSAGES, max_size=4).map(lambda m: body([*map(encode, m)]))))
def test_any_body_is_taken_or_refused_with_one_error(payload: bytes) -> None:
    machine = Membership("me", ("127.0.0.1", 1), 1, Parameters(max_members=8), random.Random(1), 0.0)
    for cut in range(0, len(payload) + 1, max(1, len(payload) // 16)):
        try:
            machine.receive_untrusted(payload[:cut], Peer("other", 1, ("127.0.0.1", 2)), 1.0)
            machine.merge_untrusted(zlib.compress(payload[:cut]), 1.0)
        except ProtocolError:
            continue
    machine.tick(2.0)
    assert len(machine.roster) <= 8
    assert all(len(output.payload) <= 1_200 for output in machine.take_outputs() if hasattr(output, "payload"))


def test_windows_of_boards_that_are_forgotten_make_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """After so many names each new board was refused until a restart."""
    monkeypatch.setattr("agent.membership.packets.MAX_SENDERS", 2)
    receiver = sealer("b")
    for name in ("old", "member"):
        receiver.open_untrusted(sealer(name).seal(b"hello", B))
    receiver.member_epoch = lambda name: 1
    packet = sealer("new").seal(b"hello", B)
    assert dropped(receiver, packet) == "too many senders"
    receiver.member_epoch = {"member": 1}.get
    assert receiver.open_untrusted(packet).sender == "new"
    assert dropped(receiver, sealer("member").seal(b"hello", B)) == "replay"
    receiver.hellos.newest["old"] = (1, 1)
    assert dropped(receiver, sealer("old").seal(b"hello", B)) == "replay", "a hello for an address is remembered"
