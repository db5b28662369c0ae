"""Strategies for messages of the membership protocol."""

from __future__ import annotations

from hypothesis import strategies as st

from agent.membership.members import State
from agent.membership.messages import Ack, Claim, Known, MembershipMessage, Nack, Ping, PingRequest, SectionUpdate

NAMES = st.sampled_from(["me", "other", "board-1", "board-2", "b.3_x"])
NUMBERS = st.integers(0, 2**63 - 1)
SMALL = st.integers(0, 3)
FLOATS = st.floats(-1e9, 1e9, allow_nan=False, width=32)
CLAIMS = st.builds(
    Claim, NAMES, SMALL, SMALL, st.sampled_from(list(State)), st.just("127.0.0.1"), st.integers(1, 65_535), NAMES
)
MESSAGES: st.SearchStrategy[MembershipMessage] = st.one_of(
    st.builds(Ping, NUMBERS, NAMES),
    st.builds(Ack, NUMBERS, st.lists(FLOATS, max_size=16).map(tuple)),
    st.builds(PingRequest, NUMBERS, NAMES),
    st.builds(Nack, NUMBERS),
    CLAIMS,
    st.builds(SectionUpdate, NAMES, SMALL, NAMES, SMALL, st.binary(max_size=100)),
    st.builds(Known, NAMES, SMALL, NAMES, SMALL),
)
