"""Streams between gateways: exactly once and in order, whatever happens to connections and processes."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from edgert.core.errors import ProtocolError
from edgert.links.messages import MAX_BODY, NOTHING, Ack, Close, Credit, Data, Number, Ping, Pong, Resume, Skip, encode
from edgert.links.protocol import MOST_GAPS, Gap, Receiver, Sender, Stored, Wanted
from edgert.links.session import MOST_STREAMS, SILENT_S, FellBehind, LinkSession
from tests.examples import examples
from tests.links.worlds import FLOW, GREATEST, WINDOW, World


class Walk(RuleBasedStateMachine):
    @initialize()
    def begin(self) -> None:
        self.world = World()
        self.world.connect()

    @rule(sizes=st.lists(st.integers(0, GREATEST), min_size=1, max_size=6), fill=st.integers(0, 255))
    def origin_commits(self, sizes: list[int], fill: int) -> None:
        self.world.origin.commit(*(bytes([fill]) * size for size in sizes))

    @rule()
    def origin_opens_an_epoch(self) -> None:
        self.world.origin.open_epoch()

    @rule(forward=st.integers(0, 9_000), back=st.integers(0, 300))
    def bytes_travel(self, forward: int, back: int) -> None:
        self.world.carry(forward, back)

    @rule()
    def all_travels(self) -> None:
        self.world.carry(1 << 30, 1 << 30)

    @rule()
    def connection_is_lost(self) -> None:
        self.world.lose()

    @rule()
    def connection_comes_back(self) -> None:
        self.world.lose()
        self.world.connect()

    @rule()
    def a_newer_connection_replaces_the_old_one(self) -> None:
        self.world.connect()

    @rule()
    def origin_dies(self) -> None:
        self.world.lose()
        self.world.origin.crash()

    @rule()
    def destination_dies(self) -> None:
        self.world.lose()
        self.world.destination.crash()

    @rule()
    def slot_dies(self) -> None:
        self.world.destination.rewind()

    @rule(batches=st.integers(1, 5))
    def flow_works(self, batches: int) -> None:
        self.world.destination.work(batches)

    @rule()
    def destination_commits(self) -> None:
        self.world.destination.commit()

    @invariant()
    def holds(self) -> None:
        if hasattr(self, "world"):
            self.world.check()

    def teardown(self) -> None:
        if hasattr(self, "world"):
            self.world.finish()
            assert not self.world.destination.gaps


Walk.TestCase.settings = settings(max_examples=examples(50, 150), stateful_step_count=60, deadline=None)
test_everything_committed_arrives_exactly_once_in_order = Walk.TestCase


def feed(receiver: Receiver, *numbers: tuple[int, int]) -> list[tuple[int, int]]:
    return [n for n in numbers if receiver.take(Data(receiver.channel, Number(*n), b"x"))]


def test_duplicates_and_earlier_epochs_are_dropped_and_counted() -> None:
    receiver = Receiver(Number(2, 3))
    receiver.resume(1, FLOW)
    assert feed(receiver, (2, 3), (2, 4), (1, 9), (2, 4), (3, 1), (2, 5)) == [(2, 4), (3, 1)]
    assert (receiver.refusals.duplicates, receiver.refusals.stale) == (2, 2)


@pytest.mark.parametrize("number", [(2, 5), (3, 2), (9, 9)])
def test_a_batch_that_is_not_the_next_is_refused_and_asked_for_again(number: tuple[int, int]) -> None:
    session = LinkSession()
    session.connected(0.0)
    session.receive(FLOW, Number(2, 3))
    first = session.take_output()
    assert not session.receive_untrusted(encode(Data(1, Number(*number), b"x")), 0.0)
    assert session.take_output() == first[:4] + encode(Resume(2, FLOW, Number(2, 3), Number(2, 3), 2**20))[4:]
    assert session.receivers[FLOW].refusals.out_of_order == 1


def test_a_sender_that_never_gives_the_next_batch_loses_its_connection() -> None:
    session = LinkSession()
    session.connected(0.0)
    session.receive(FLOW, NOTHING)
    wrong = b"".join(encode(Data(channel, Number(1, 7), b"x")) for channel in range(1, MOST_GAPS + 1))
    with pytest.raises(ProtocolError, match="expected the batch that follows"):
        session.receive_untrusted(wrong, 0.0)


def test_only_what_a_commit_covers_is_acknowledged() -> None:
    world = World()
    world.origin.commit(b"a", b"b", b"c")
    world.connect()
    for _ in range(5):
        world.carry(1 << 30, 1 << 30)
        world.destination.work(9)
    assert [body for _, body in world.destination.taken] == [b"a", b"b", b"c"]
    assert len(world.origin.outbox) == 3
    world.destination.commit()
    world.carry(1 << 30, 1 << 30)
    assert not world.origin.outbox


def test_a_flow_that_takes_nothing_stops_the_sender_after_its_window() -> None:
    world = World()
    world.origin.commit(*[bytes(1_000)] * 50)
    world.connect()
    for _ in range(20):
        world.carry(1 << 30, 1 << 30)
    assert len(world.destination.taken) == 4
    world.destination.work(2)
    for _ in range(20):
        world.carry(1 << 30, 1 << 30)
    assert len(world.destination.taken) == 6


def test_a_body_larger_than_the_window_passes_alone() -> None:
    receiver, sender = Receiver(NOTHING, window=10), Sender(Number(1, 2))
    sender.resume(receiver.resume(1, FLOW))
    wanted = sender.wants()
    assert wanted
    (sent,) = sender.offer(wanted, [Stored(1, 1, bytes(500)), Stored(1, 2, b"y")])
    assert isinstance(sent, Data)
    assert receiver.take(sent)
    assert sender.wants() is None
    receiver.taken(Number(1, 1))
    credit = receiver.grant()
    assert credit
    sender.credit(credit.total)
    assert sender.wants()


def test_batches_that_are_gone_are_said_once_and_passed() -> None:
    world = World()
    world.origin.commit(*[b"%d" % n for n in range(8)])
    del world.origin.outbox[2:5]  # a quota
    world.connect()
    for _ in range(5):
        world.carry(1 << 30, 1 << 30)
    assert [n.sequence for n, _ in world.destination.taken] == [1, 2, 6, 7, 8]
    assert world.destination.gaps == [Gap(Number(1, 2), Number(1, 6))]


def test_a_destination_whose_database_is_older_learns_of_its_gap() -> None:
    world = World()
    world.origin.commit(b"a", b"b", b"c")
    world.finish()
    world.destination.position = Number(1, 1)
    world.destination.crash()
    world.origin.commit(b"d")
    world.connect()
    for _ in range(5):
        world.carry(1 << 30, 1 << 30)
    assert world.destination.gaps == [Gap(Number(1, 1), Number(1, 4))]


def test_an_origin_whose_database_was_put_back_sends_nothing_until_it_opens_a_later_epoch() -> None:
    world = World()
    world.origin.commit(*[b"old"] * 9)
    world.finish()
    world.origin.sequence = 4
    world.origin.crash()
    world.connect()
    world.carry(1 << 30, 1 << 30)
    assert world.origin.behind == Number(1, 9)
    world.origin.commit(b"another fifth")
    world.carry(1 << 30, 1 << 30)
    assert not world.to_destination
    assert len(world.origin.outbox) == 1, "it was not taken for acknowledged"
    world.origin.open_epoch()
    world.origin.commit(b"new")
    for _ in range(5):
        world.carry(1 << 30, 1 << 30)
    assert world.destination.taken == [(Number(2, 1), b"new")]


def test_a_flow_that_the_peer_asks_for_early_is_sent_when_this_gateway_has_it() -> None:
    origin, destination = LinkSession(), LinkSession()
    for session in (origin, destination):
        session.connected(0.0)
    destination.receive(FLOW, Number(1, 5))
    assert not origin.receive_untrusted(destination.take_output(), 0.0)
    assert origin.send(FLOW, Number(1, 2)) == FellBehind(FLOW, Number(1, 5))
    origin.send_no_more(FLOW)
    origin.send(FLOW, Number(1, 7))
    ((flow, wanted),) = origin.wanted()
    assert (flow, wanted.after, wanted.upto) == (FLOW, Number(1, 5), Number(1, 7))


def test_a_store_read_of_an_older_request_is_not_sent() -> None:
    sender = Sender(Number(1, 9))
    sender.resume(Resume(1, FLOW, NOTHING, NOTHING, 1_000))
    wanted = sender.wants()
    assert wanted
    sender.resume(Resume(2, FLOW, NOTHING, NOTHING, 1_000))
    assert sender.offer(wanted, [Stored(1, 1, b"x")]) == []


def test_a_store_read_that_outlasts_its_connection_leaves_no_gap() -> None:
    """Channels are numbered by connection, so the next one has the same number; the destination died in between."""
    world = World()
    origin, destination = world.origin, world.destination
    world.connect()
    origin.commit(b"1", b"2", b"3")
    world.carry(1 << 30, 1 << 30)
    world.carry(1 << 30, 1 << 30)
    assert len(destination.taken) == 3
    origin.commit(b"4", b"5")
    ((_, late),) = origin.session.wanted()
    destination.crash()
    world.lose()
    world.connect()
    origin.hear(destination.session.take_output())
    ((_, wanted),) = origin.session.wanted()
    assert (late.channel, late.after, wanted.after) == (wanted.channel, Number(1, 3), NOTHING)
    origin.session.offer(FLOW, late, origin.outbox[3:])
    world.carry(1 << 30, 1 << 30)
    assert [body for _, body in destination.taken] == [b"1", b"2", b"3", b"4", b"5"]
    assert destination.gaps == []


@pytest.mark.parametrize(
    "batches",
    [
        [Stored(1, 2, b""), Stored(1, 2, b"")], [Stored(1, 0, b"")], [Stored(0, 9, b"")],
        [Stored(1, 1, bytes(MAX_BODY + 1))],
    ],
)  # fmt: skip
def test_a_store_that_gives_what_it_must_not_is_told(batches: list[Stored]) -> None:
    sender = Sender(Number(1, 9))
    sender.resume(Resume(1, FLOW, NOTHING, Number(1, 0), 1_000))
    wanted = sender.wants()
    assert isinstance(wanted, Wanted)
    with pytest.raises(ValueError, match="expected"):
        sender.offer(wanted, batches)


@pytest.mark.parametrize(
    "message",
    [
        Ack(1, NOTHING), Credit(9, 5), Close(3), Data(1, Number(1, 1), b""), Skip(4, Number(1, 1)),
    ],
)  # fmt: skip
def test_a_channel_that_nobody_opened_is_an_error(message: Ack | Credit | Close | Data | Skip) -> None:
    session = LinkSession()
    session.connected(0.0)
    with pytest.raises(ProtocolError, match="expected a channel"):
        session.receive_untrusted(encode(message), 0.0)


def test_what_was_never_sent_cannot_be_acknowledged() -> None:
    session = LinkSession()
    session.send(FLOW, Number(1, 9))
    session.connected(0.0)
    session.receive_untrusted(encode(Resume(1, FLOW, NOTHING, NOTHING, 100)), 0.0)
    with pytest.raises(ProtocolError, match="expected an acknowledgement of at most"):
        session.receive_untrusted(encode(Ack(1, Number(1, 1))), 0.0)


def test_a_sender_beyond_its_credit_loses_its_connection() -> None:
    session = LinkSession()
    session.connected(0.0)
    session.receive(FLOW, NOTHING, WINDOW)
    flood = b"".join(encode(Data(1, Number(1, sequence), bytes(1_000))) for sequence in range(1, 9))
    with pytest.raises(ProtocolError, match="beyond a credit"):
        session.receive_untrusted(flood, 0.0)


def test_streams_are_bounded() -> None:
    session = LinkSession()
    session.connected(0.0)
    for n in range(1, MOST_STREAMS + 1):
        session.receive_untrusted(encode(Resume(n, f"f{n}", NOTHING, NOTHING, 1)), 0.0)
    with pytest.raises(ProtocolError, match="at most"):
        session.receive_untrusted(encode(Resume(n + 1, "one-more", NOTHING, NOTHING, 1)), 0.0)


def test_a_silent_peer_is_asked_and_then_given_up() -> None:
    session = LinkSession()
    session.connected(100.0)
    session.tick(104.0)
    assert session.take_output() == b""
    session.tick(105.0)
    assert session.take_output() == encode(Ping(0))
    session.tick(106.0)
    assert session.take_output() == b""
    session.receive_untrusted(encode(Pong(0)), 106.0)
    session.tick(106.0 + SILENT_S)
    with pytest.raises(ProtocolError, match="expected a word"):
        session.tick(106.1 + SILENT_S)


def test_a_flow_cannot_commit_or_go_back_to_what_it_was_not_given() -> None:
    receiver = Receiver(Number(1, 5))
    receiver.resume(1, FLOW)
    with pytest.raises(ValueError, match="commit of at most"):
        receiver.commit(Number(1, 6))
    with pytest.raises(ValueError, match="position from"):
        receiver.rewind(Number(1, 4))


@pytest.mark.parametrize("ordinal", [(1 << 31) - 1, 1 << 30, (1 << 24) + 1])
def test_a_position_that_no_flow_can_have_come_to_is_refused(ordinal: int) -> None:
    """The epochs after it would be used up."""
    for place in ("after", "committed"):
        sender = Sender(Number(1 << 32, 5))
        claimed = {"after": NOTHING, "committed": NOTHING, place: Number(ordinal << 32, 1)}
        with pytest.raises(ProtocolError, match="expected a position near 5 of epoch"):
            sender.resume(Resume(1, FLOW, claimed["after"], claimed["committed"], 100))
        assert sender.wants() is None


@pytest.mark.parametrize("epoch", [(1 << 63) - 1, ((1 << 24) + 1) << 32])
def test_an_epoch_that_no_flow_can_have_come_to_is_never_a_position(epoch: int) -> None:
    """The origin would refuse the position at each connection, and no other stream would go over it."""
    receiver = Receiver(Number(1 << 32, 5))
    receiver.resume(1, FLOW)
    with pytest.raises(ProtocolError, match="expected an epoch near that of 5 of epoch"):
        receiver.take(Data(1, Number(epoch, 1), b"x"))
    with pytest.raises(ProtocolError, match="expected an epoch near that of 5 of epoch"):
        receiver.skip(Skip(1, Number(epoch, 1)))
    assert receiver.accepted == Number(1 << 32, 5)


def test_an_absurd_sequence_is_outlived_by_a_new_epoch() -> None:
    receiver, sender = Receiver(Number(1 << 32, 5)), Sender(Number(1 << 32, 5))
    receiver.resume(1, FLOW)
    receiver.skip(Skip(1, Number(1 << 32, (1 << 63) - 1)))
    assert receiver.take(Data(1, Number(1 << 32, (1 << 63) - 1), b"x"))
    assert sender.resume(receiver.resume(2, FLOW)) is not None
    sender.stored(Number(2 << 32, 0))
    assert sender.behind is None
    sender.stored(Number(2 << 32, 1))
    wanted = sender.wants()
    assert wanted is not None
    (message,) = sender.offer(wanted, [Stored(2 << 32, 1, b"y")])
    assert isinstance(message, Data)
    assert receiver.take(message)
