"""Everybody who sees the same members picks the same coordinator, and few flows change theirs when one goes."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from agent.placement.rendezvous import coordinator

MEMBERS = st.lists(st.text("abcdefgh", min_size=1, max_size=6), min_size=2, max_size=12, unique=True)


@given(MEMBERS, st.randoms(use_true_random=False))
def test_the_order_of_the_members_does_not_matter(members: list[str], draw: object) -> None:
    assert coordinator("flow", members) == coordinator("flow", sorted(members, reverse=True))


@given(MEMBERS)
def test_only_flows_of_the_member_that_goes_change_their_coordinator(members: list[str]) -> None:
    flows = [f"flow-{number}" for number in range(40)]
    before = {flow: coordinator(flow, members) for flow in flows}
    gone, left = members[0], members[1:]
    assert all(coordinator(flow, left) == at for flow, at in before.items() if at != gone)


def test_flows_are_spread_over_the_members() -> None:
    members = [f"board-{number}" for number in range(10)]
    found = Counter(coordinator(f"flow-{number}", members) for number in range(2_000))
    assert set(found) == set(members)
    assert max(found.values()) < 300
