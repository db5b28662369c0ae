"""The votes, and coordinators that read and write by them: with lost answers, restarts and lapsed leases."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from agent.lease.fences import next_fence
from agent.lease.grants import LEASE_S, Grants, Record, grants_untrusted, record_untrusted
from agent.lease.known import is_majority

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
    assert not grants.write("f", Record(8, "runs", ("a",)), 2 * LEASE_S)


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
    assert grants.write("f", Record(6, "runs", ("a",)), 3.0)
    assert grants.take("f", 7, "b", 23.0)["age_s"] == 20.0


@pytest.mark.parametrize(
    "bad", [None, [], [1, "runs"], [1, "walks", []], [-1, "runs", []], [1, "runs", [2]], [1, "runs", 3]]
)
def test_bad_records_are_refused(bad: object) -> None:
    with pytest.raises(ValueError, match="expected"):
        record_untrusted(bad)


class Coordinators(RuleBasedStateMachine):
    """Each takes what it reaches, and writes what it reaches then; boards start anew, and leases lapse. What a
    majority has written is what every later coordinator with a majority reads, until one writes anew."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.boards = {name: Grants({}, 0.0) for name in BOARDS}
        self.leases: dict[str, tuple[int, Record]] = {}
        self.written: list[Record] = []
        """By a majority, in the order of their numbers."""
        self.tried: list[Record] = []

    @rule(who=st.sampled_from("xyz"), to=reached)
    def take(self, who: str, to: set[str]) -> None:
        number = next_fence([grants.promised("f") for grants in self.boards.values()], who)
        answers = {name: self.boards[name].take("f", number, who, self.now) for name in to}
        granted = {name: answer for name, answer in answers.items() if answer["granted"]}
        self.leases.pop(who, None)
        if is_majority(granted, BOARDS):
            read = max(record_untrusted(answer["record"]) for answer in granted.values())
            if self.written:
                newest = self.written[-1]
                assert read.number >= newest.number
                assert read == newest or read in self.tried  # of a write that did not come to a majority
            self.leases[who] = number, read

    @rule(who=st.sampled_from("xyz"), to=reached, boards=reached)
    def write(self, who: str, to: set[str], boards: set[str]) -> None:
        if who not in self.leases:
            return
        number = next_fence([self.leases[who][0]], who)
        record = Record(number, "runs", tuple(sorted(boards)))
        self.tried.append(record)
        wrote = [name for name in to if self.boards[name].write("f", record, self.now)]
        if is_majority(wrote, BOARDS):
            assert not self.written or number > self.written[-1].number
            self.written.append(record)
        self.leases[who] = number, record

    @rule(board=st.sampled_from(BOARDS))
    def restart(self, board: str) -> None:
        self.boards[board] = Grants(grants_untrusted(self.boards[board].plain()), self.now)

    @rule(seconds=st.sampled_from([1.0, LEASE_S + 1]))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @invariant()
    def a_majority_remembers_the_last_write(self) -> None:
        if self.written:
            knows = [
                name for name, grants in self.boards.items() if grants.record("f").number >= self.written[-1].number
            ]
            assert is_majority(knows, BOARDS)


Coordinators.TestCase.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)
TestCoordinators = Coordinators.TestCase
