"""The votes, and coordinators that read and write by them: with lost answers, restarts and lapsed leases."""

from __future__ import annotations

from collections.abc import Collection
from itertools import product

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from agent.lease.fences import next_fence
from agent.lease.grants import LEASE_S, MOST_FLOWS, Grants, Record, grants_untrusted, record_untrusted
from agent.lease.voters import is_majority

BOARDS = "abcd"
reached = st.sets(st.sampled_from(BOARDS))


def test_a_lease_is_one_coordinators_until_it_is_not_renewed() -> None:
    grants = Grants({}, 0.0)
    assert grants.take("f", 5, "a", 0.0)["granted"]
    assert grants.take("f", 9, "b", LEASE_S - 1) == {"granted": False, "promised": 5, "holder": "a"}
    assert grants.renew("f", 5, "a", LEASE_S - 1)
    assert not grants.take("f", 9, "b", LEASE_S + 1)["granted"]
    assert grants.take("f", 9, "b", 2 * LEASE_S)["granted"]
    assert not grants.renew("f", 5, "a", 2 * LEASE_S)
    assert not grants.write("f", Record(5, 1, "runs", ("a",)), "a", 2 * LEASE_S)


def test_a_board_takes_a_record_of_the_holder_only() -> None:
    grants = Grants({}, 0.0)
    grants.take("f", 5, "a", 0.0)
    assert not grants.write("f", Record(9, 1, "runs", ("b",)), "b", 1.0)
    assert grants.write("f", Record(5, 1, "runs", ("a",)), "a", 1.0)
    assert not grants.write("f", Record(4, 9, "runs", ("a",)), "a", 1.0)
    assert grants.record("f") == Record(5, 1, "runs", ("a",))


def test_a_board_forgets_removed_flows_first_and_never_promises_their_numbers_again() -> None:
    grants = Grants({}, 0.0)
    for number in range(MOST_FLOWS):  # the first of them runs, the second is only asked for
        flow = f"flow-{number}"
        assert grants.take(flow, 10 + number, "a", 0.0)["granted"]
        if number != 1:
            state = "runs" if number == 0 else "removed"
            assert grants.write(flow, Record(10 + number, 1, state, ()), "a", 0.0)
    assert not grants.take("new", 9_999, "a", 1.0)["granted"]  # all are held
    later = LEASE_S + 1
    for number in range(3):
        assert grants.take(f"new-{number}", 20_000 + number, "b", later)["granted"]
    assert len(grants.plain()) == MOST_FLOWS
    assert grants.record("flow-0").state == "runs"
    assert [grants.promised(f"flow-{number}") for number in range(1, 5)] == [13, 13, 13, 14]
    again = Grants(grants_untrusted(grants.plain()), later, grants.floor)
    for one in (grants, again):
        assert one.take("flow-3", 13, "b", later) == {"granted": False, "promised": 13}
        assert not one.write("flow-3", Record(12, 9, "runs", ("b",)), "b", later)
    assert grants.take("flow-3", 14, "b", later)["granted"]


def test_a_board_full_of_flows_that_run_takes_no_other() -> None:
    grants = Grants({}, 0.0)
    for number in range(MOST_FLOWS):
        assert grants.write(f"flow-{number}", Record(7, 1, "runs", ("a",)), "a", 0.0)
    assert not grants.take("new", 9, "a", 2 * LEASE_S)["granted"]
    assert not grants.write("new", Record(9, 1, "runs", ("a",)), "a", 2 * LEASE_S)
    assert grants.take("flow-3", 9, "a", 2 * LEASE_S)["granted"]


def test_a_lease_that_is_given_back_is_free_at_once() -> None:
    grants = Grants({}, 0.0)
    grants.take("f", 5, "a", 0.0)
    grants.release("f", 5, "a")
    assert grants.take("f", 6, "b", 0.1)["granted"]
    assert grants.take("f", 6, "b", 0.2) == {"granted": False, "promised": 6}


def test_a_lease_lasts_across_a_restart_of_the_board_that_granted_it() -> None:
    before = Grants({}, 0.0)
    before.take("f", 5, "a", 100.0)
    after = Grants(grants_untrusted(before.plain()), 7.0)
    assert not after.take("f", 6, "b", 8.0)["granted"]
    assert after.take("f", 6, "b", 7.0 + LEASE_S)["granted"]


def test_the_next_coordinator_learns_how_long_ago_the_last_one_wrote() -> None:
    grants = Grants({}, 0.0)
    grants.take("f", 5, "a", 0.0)
    assert grants.write("f", Record(5, 1, "runs", ("a",)), "a", 3.0)
    assert grants.take("f", 7, "b", 23.0)["age_s"] == 20.0


@pytest.mark.parametrize(
    "bad",
    [
        None,
        [],
        [1, "runs", []],
        [1, 1, "walks", []],
        [-1, 1, "runs", []],
        [1, -1, "runs", []],
        [1, 1, "runs", [2]],
        [2**63, 1, "runs", []],
        [1, 1, "runs", 3],
    ],
)
def test_bad_records_are_refused(bad: object) -> None:
    with pytest.raises(ValueError, match="expected"):
        record_untrusted(bad)


class Coordinators:
    """Each takes what it reaches, and writes what it reaches then, also long after another one has taken its place.
    Only the last one to which a majority granted the flow can have a majority write, and what a majority has written is
    what every later one reads, until one writes anew."""

    def __init__(self, boards: str) -> None:
        self.now = 0.0
        self.boards = {name: Grants({}, 0.0) for name in boards}
        self.leases: dict[str, tuple[int, int, int]] = {}
        """Number, records tried, and the turn: how many leases a majority had granted."""
        self.turns = 0
        self.written: tuple[int, Record] | None = None
        """By a majority: the turn of the coordinator, and its last record."""
        self.tried: dict[Record, int] = {}

    def take(self, who: str, to: Collection[str]) -> None:
        number = next_fence([grants.promised("f") for grants in self.boards.values()], who)
        answers = {name: self.boards[name].take("f", number, who, self.now) for name in to}
        granted = {name: answer for name, answer in answers.items() if answer["granted"]}
        if is_majority(granted, self.boards):
            read = max(record_untrusted(answer["record"]) for answer in granted.values())
            if self.written:
                turn, newest = self.written
                assert read == newest or self.tried[read] >= turn  # of a write that did not come to a majority
            self.turns += 1
            self.leases[who] = number, 0, self.turns

    def write(self, who: str, to: Collection[str], on: Collection[str]) -> None:
        if who not in self.leases:
            return
        number, step, turn = self.leases[who]
        record = Record(number, step + 1, "runs", tuple(sorted(on)))
        self.leases[who] = number, step + 1, turn
        self.tried[record] = turn
        wrote = [name for name in to if self.boards[name].write("f", record, who, self.now)]
        if is_majority(wrote, self.boards):
            assert turn == self.turns
            self.written = turn, record

    def restart(self, board: str) -> None:
        self.boards[board] = Grants(grants_untrusted(self.boards[board].plain()), self.now)

    def check(self) -> None:
        """A majority remembers the last write."""
        if self.written:
            newest = self.written[1]
            assert is_majority([n for n, grants in self.boards.items() if grants.record("f") >= newest], self.boards)


class AnyWalk(RuleBasedStateMachine):
    """Boards start anew, and leases lapse."""

    def __init__(self) -> None:
        super().__init__()
        self.all = Coordinators(BOARDS)

    @rule(who=st.sampled_from("xyz"), to=reached)
    def take(self, who: str, to: set[str]) -> None:
        self.all.take(who, to)

    @rule(who=st.sampled_from("xyz"), to=reached, on=reached)
    def write(self, who: str, to: set[str], on: set[str]) -> None:
        self.all.write(who, to, on)

    @rule(board=st.sampled_from(BOARDS))
    def restart(self, board: str) -> None:
        self.all.restart(board)

    @rule(seconds=st.sampled_from([1.0, LEASE_S + 1]))
    def wait(self, seconds: float) -> None:
        self.all.now += seconds

    @invariant()
    def a_majority_remembers_the_last_write(self) -> None:
        self.all.check()


AnyWalk.TestCase.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)
TestAnyWalk = AnyWalk.TestCase


def test_all_short_walks_of_two_coordinators_over_three_boards() -> None:
    steps = [(verb, who, to) for verb in ("take", "write") for who in "xy" for to in ("ab", "bc")]
    for walk in product([("wait", "", ""), *steps], repeat=4):
        begun = Coordinators("abc")
        begun.take("x", "abc")
        for verb, who, to in walk:
            if verb == "wait":
                begun.now += LEASE_S + 1
            elif verb == "take":
                begun.take(who, to)
            else:
                begun.write(who, to, who)
            begun.check()
