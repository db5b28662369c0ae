"""What an agent believes does not depend on the order in which claims arrive, nor on repetitions."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.membership.events import Changed, Datagram
from agent.membership.gossip import MAX_BODY
from agent.membership.members import Peer, State, Version
from agent.membership.messages import Ack, Claim, Ping, body, decode_untrusted, encode
from agent.membership.parameters import Parameters
from agent.membership.protocol import Membership
from tests.agent.membership.some_messages import CLAIMS

HERE = ("127.0.0.1", 1)


def machine(own: str = "me") -> Membership:
    made = Membership(own, HERE, 1, Parameters(), Random(1), 0.0)
    for name in ("other", "board-1", "board-2", "b.3_x"):
        made.claims.consider(claim(name, 0, State.ALIVE), 0.0)
    made.take_events()
    return made


def claim(name: str, incarnation: int, state: State, epoch: int = 0) -> Claim:
    return Claim(name, epoch, incarnation, state, *HERE, "other")


def beliefs(of: Membership) -> dict[str, Version]:
    return {member.name: member.version for member in of.roster if member.name != "me"}


@given(st.lists(CLAIMS, max_size=12), st.randoms())
def test_order_and_repetition_of_claims_do_not_matter(claims: list[Claim], random: Random) -> None:
    first, second = machine(), machine()
    for item in claims:
        first.claims.consider(item, 1.0)
    shuffled = [*claims, *claims]
    random.shuffle(shuffled)
    for item in shuffled:
        second.claims.consider(item, 1.0)
    assert beliefs(first) == beliefs(second)
    assert first.roster.present == second.roster.present == sum(member.present for member in first.roster)


@given(st.lists(CLAIMS, max_size=12))
def test_nobody_makes_us_believe_that_we_are_dead(claims: list[Claim]) -> None:
    us = machine()
    for item in claims:
        us.claims.consider(item, 1.0)
    assert us.roster.own.state is State.ALIVE
    about_us = [Version(c.epoch, c.incarnation, c.state) for c in claims if c.name == "me" and c.address == HERE]
    assert all(us.roster.own.version >= version for version in about_us if version.state is not State.ALIVE)


def test_suspicion_grows_shorter_with_each_independent_witness() -> None:
    parameters = Parameters()
    times = [parameters.suspicion(1_000, witnesses) for witnesses in range(5)]
    assert times == sorted(times, reverse=True)
    assert times[0] == parameters.suspicion_spread * parameters.least_suspicion(1_000)
    assert times[3] == times[4] == parameters.least_suspicion(1_000)


def test_suspect_that_is_heard_of_directly_gets_its_time_anew() -> None:
    us = machine()
    us.claims.consider(claim("board-1", 0, State.SUSPECT), 10.0)
    before = us.claims.next_deadline()
    us.receive_untrusted(b"\x90", Peer("board-1", 0, HERE), 12.0)
    assert us.claims.next_deadline() == before + 2.0
    assert us.claims.due_to_check(before + 1.9) == []
    assert [member.name for member in us.claims.due_to_check(before + 2.0)] == ["board-1"]
    us.claims.expire(before + 2.0)
    assert Changed("board-1", "died", State.DEAD) not in us.take_events()
    us.claims.expire(before + 2.0 + us.parameters.last_look_s)
    assert Changed("board-1", "died", State.DEAD) in us.take_events()


def test_an_outdated_suspicion_in_a_ping_is_set_right_by_the_answer() -> None:
    us = machine()
    us.claims.consider(claim("board-1", 5, State.ALIVE), 10.0)
    while us.queue.claims:
        us.tick(us.next_wakeup(10.0))  # nothing is left to ride along by chance
    us.take_outputs()
    ping = [encode(Ping(7, "me")), encode(claim("board-1", 4, State.SUSPECT))]
    us.receive_untrusted(body(ping), Peer("board-2", 0, HERE), 99.0)
    (answer,) = [output for output in us.take_outputs() if isinstance(output, Datagram)]
    ack, better = decode_untrusted(answer.payload)
    assert isinstance(ack, Ack)
    assert isinstance(better, Claim)
    assert (better.name, better.incarnation, better.state) == ("board-1", 5, State.ALIVE)


def test_an_answer_sets_as_many_suspicions_right_as_fit_into_its_packet() -> None:
    """Eight claims about boards with long names were more than a packet holds, and the answer was lost."""
    us, names, host = machine("m" * 63), [f"{number:063d}" for number in range(12)], "192.168.100.100"
    for name in names:
        us.claims.consider(Claim(name, 0, 1, State.ALIVE, host, 7946, name), 10.0)
    us.take_outputs()
    outdated = [encode(Claim(name, 0, 0, State.SUSPECT, host, 7946, "b")) for name in names]
    ping = body([encode(Ping(7, us.name)), *outdated[:9]])
    us.receive_untrusted(ping, Peer("board-2", 0, HERE), 99.0)
    (answer,) = [output for output in us.take_outputs() if isinstance(output, Datagram)]
    assert len(answer.payload) <= MAX_BODY
    ack, *better = decode_untrusted(answer.payload)
    assert isinstance(ack, Ack)
    assert [one.name for one in better if isinstance(one, Claim)][:5] == names[:5]


def test_the_last_look_asks_the_suspect_and_others_and_its_answer_saves_it() -> None:
    us = machine()
    us.claims.consider(claim("board-1", 0, State.SUSPECT), 10.0)
    ends = us.claims.next_deadline()
    us.take_outputs()
    us._look_once_more(ends)
    asked = [decode_untrusted(output.payload) for output in us.take_outputs() if isinstance(output, Datagram)]
    pinged = {m[0].target for m in asked if isinstance(m[0], Ping) and isinstance(m[1], Claim)}
    assert "board-1" in pinged
    assert len(pinged) > 1
    us.receive_untrusted(body([encode(claim("board-1", 1, State.ALIVE))]), Peer("other", 0, HERE), ends + 0.1)
    us.claims.expire(ends + 100.0)
    assert Changed("board-1", "died", State.DEAD) not in us.take_events()


def test_a_refutation_goes_to_several_members_at_once() -> None:
    us = machine()
    for number in range(20):
        us.claims.consider(claim(f"n{number}", 0, State.ALIVE), 0.0)
    us.receive_untrusted(body([encode(claim("me", 0, State.SUSPECT, epoch=1))]), Peer("other", 0, HERE), 1.0)
    told = [decode_untrusted(output.payload) for output in us.take_outputs() if isinstance(output, Datagram)]
    refutations = [
        m for (m,) in told if isinstance(m, Claim) and (m.name, m.incarnation, m.state) == ("me", 1, State.ALIVE)
    ]
    assert len(refutations) == us.parameters.refutation_fanout
    us.receive_untrusted(body([encode(claim("me", 0, State.SUSPECT, epoch=1))]), Peer("other", 0, HERE), 1.0)
    assert us.take_outputs() == [], "it is answered once"


def test_a_member_that_refuted_is_waited_for_longer_but_not_for_ever() -> None:
    us, parameters = machine(), Parameters()
    ends = []
    for incarnation in range(6):
        us.claims.consider(claim("board-1", incarnation, State.SUSPECT), 10.0)
        ends.append(us.claims.next_deadline() - 10.0 + parameters.last_look_s)
        us.claims.consider(claim("board-1", incarnation + 1, State.ALIVE), 10.0)
    assert ends[0] == parameters.suspicion(5, 0)
    assert ends[1] == pytest.approx(2 * ends[0])
    assert ends[-1] == pytest.approx(parameters.suspicion_patience * ends[0])


def test_member_that_is_long_dead_is_forgotten() -> None:
    us = machine()
    us.claims.consider(claim("board-1", 0, State.DEAD), 10.0)
    us.claims.forget(10.0 + us.parameters.forget_dead_s)
    assert us.roster.get("board-1") is not None
    us.claims.forget(11.0 + us.parameters.forget_dead_s)
    assert us.roster.get("board-1") is None
    assert us.roster.present == 4


def test_a_revoked_member_counts_as_dead_and_cannot_come_back() -> None:
    me = machine()
    me.revoke(frozenset({"other", "unheard-of"}), 1.0)
    assert beliefs(me)["other"].state is State.DEAD
    assert [event for event in me.take_events() if isinstance(event, Changed)] == [Changed("other", "died", State.DEAD)]
    before = beliefs(me)
    me.claims.consider(claim("other", 7, State.ALIVE, epoch=7), 2.0)
    me.claims.consider(claim("unheard-of", 1, State.ALIVE), 2.0)
    assert beliefs(me) == before
    me.claims.consider(claim("board-1", 7, State.ALIVE, epoch=7), 2.0)
    assert beliefs(me) != before
    me.revoke(frozenset(), 3.0)
    me.claims.consider(claim("unheard-of", 1, State.ALIVE), 3.0)
    assert beliefs(me)["unheard-of"].state is State.ALIVE
