"""The packed form of what boards tell each other."""

from __future__ import annotations

import contextlib
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.membership.parameters import Parameters
from agent.osched.cooperation.terms import (
    ENTRY,
    MAX_BYTES,
    BoardTerms,
    FlowTerms,
    code,
    differ,
    number,
    pack,
    unpack_untrusted,
)
from edgert.core.errors import ProtocolError
from edgert.core.packing import pack as pack_plain

NAMES = st.text(st.characters(categories=("L", "N", "P")), min_size=1, max_size=30)
NUMBERS = st.just(0.0) | st.floats(1e-20, 1e20)
FLOWS = st.builds(
    FlowTerms,
    st.integers(0, 1 << 40),
    st.dictionaries(NAMES, st.none() | NUMBERS, max_size=3),
    st.dictionaries(NAMES, st.dictionaries(st.sampled_from(ENTRY), NUMBERS), max_size=3),
)
SPANS = st.none() | st.tuples(NUMBERS, NUMBERS).map(lambda pair: (min(pair), max(pair)))
TERMS = st.builds(BoardTerms, st.sampled_from(["qs", "hr"]), SPANS, st.dictionaries(NAMES, FLOWS, max_size=8))


@given(st.floats(1e-29, 1e29))
def test_a_number_is_rounded_by_a_thousandth_of_a_decade(value: float) -> None:
    found = number(code(value))
    assert found == pytest.approx(value, rel=0.0012)
    assert code(found) == code(value)


def test_numbers_beyond_the_code() -> None:
    assert (number(code(0.0)), number(code(-3.0)), number(code(None)), number(code(math.nan))) == (0.0, 0.0, None, None)
    assert number(code(math.inf)) == number(code(1e300)) == pytest.approx(1e30)


@settings(max_examples=50)
@given(TERMS)
def test_what_is_read_is_what_was_packed_as_far_as_there_is_room(terms: BoardTerms) -> None:
    payload, left_out = pack(terms)
    assert len(payload) <= MAX_BYTES
    found = unpack_untrusted(payload)
    assert len(found.flows) == len(terms.flows) - left_out
    assert sorted(found.flows) == sorted(terms.flows)[: len(found.flows)]
    assert found.policy == terms.policy
    assert pack(found)[0] == payload, "rounded once, then exact"
    if not left_out:
        assert not differ(found, terms, 1.01)


def test_a_packet_has_room_for_a_dozen_cut_flows_and_the_gossip_for_the_packet() -> None:
    entry = dict.fromkeys(ENTRY, 1.234)
    flows = {f"flow-{n:02}": FlowTerms(12, {"parse+filter": 0.01}, {"window+alert": entry}) for n in range(40)}
    payload, left_out = pack(BoardTerms("hr", (0.5, 4000.0), flows))
    assert left_out <= 40 - 15
    assert len(payload) <= MAX_BYTES <= Parameters().max_section_bytes


@given(st.binary(max_size=200))
def test_other_bytes_raise_one_kind_of_error(payload: bytes) -> None:
    with contextlib.suppress(ProtocolError):
        assert isinstance(unpack_untrusted(payload), BoardTerms)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([1, "qs", [5, 1], []], "expected the least and the greatest"),
        ([1, "qs", None, [["f", 1, [["a", 99_999]], []]]], "expected a number as 1000 times its logarithm"),
        ([1, "qs", None, [["f", True, [], []]]], "expected a flow as"),
        ([1, "qs", None, [["f", 1, [], [["a", 1, 2, 3]]]]], "expected .operator, queue_size"),
        ([1, "qs", None, [["", 1, [], []]]], "expected a name of 1 to 200"),
        ([2, "qs", None, []], "expected .1, policy, span, flows"),
        ([1, "qs", None, [["f", 1, [["a" * 1000, 1]], []]]], "expected at most 900 bytes"),
    ],
)
def test_terms_of_another_form_are_refused_with_what_was_expected(value: object, message: str) -> None:
    with pytest.raises(ProtocolError, match=message):
        unpack_untrusted(pack_plain(value))


@settings(max_examples=50)
@given(st.recursive(st.none() | st.integers() | st.text(max_size=5), lambda x: st.lists(x, max_size=5), max_leaves=30))
def test_other_values_raise_one_kind_of_error(value: object) -> None:
    with pytest.raises(ProtocolError):
        unpack_untrusted(pack_plain([1, "qs", None, [value]]))


def test_terms_differ_by_a_factor_or_in_their_form() -> None:
    def terms(queue: float, plan: int = 1, policy: str = "qs", operator: str = "o") -> BoardTerms:
        return BoardTerms(policy, (1.0, 100.0), {"f": FlowTerms(plan, {}, {operator: {"queue_size": queue}})})

    assert not differ(terms(100.0), terms(120.0), 1.25)
    assert differ(terms(100.0), terms(130.0), 1.25)
    assert not differ(terms(0.0), terms(0.2), 1.25)
    assert differ(terms(0.0), terms(1.0), 1.25)
    assert differ(terms(1.0), terms(1.0, plan=2), 1.25)
    assert differ(terms(1.0), terms(1.0, policy="hr"), 1.25)
    assert differ(terms(1.0), terms(1.0, operator="p"), 1.25)
