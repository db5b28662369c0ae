"""Names and epochs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgert.core.ids import FLOW_NAME, GATEWAY_NAME, epoch_ordinal, gateway_id, make_epoch

ORDINALS = st.integers(0, 2**31 - 1)
RANDOMS = st.integers(0, 2**32 - 1)
MACHINE = "0123456789abcdef0123456789abcdef"


@given(ORDINALS, RANDOMS, ORDINALS, RANDOMS)
def test_epochs_are_ordered_by_ordinal_and_fit_64_bits(a: int, x: int, b: int, y: int) -> None:
    first, second = make_epoch(a, x), make_epoch(b, y)
    assert epoch_ordinal(first) == a
    assert 0 <= first < 2**63
    if a != b:
        assert (first < second) == (a < b)
    assert (first == second) == ((a, x) == (b, y))


@pytest.mark.parametrize(("ordinal", "random32"), [(-1, 0), (2**31, 0), (0, -1), (0, 2**32)])
def test_epoch_parts_that_do_not_fit_are_refused(ordinal: int, random32: int) -> None:
    with pytest.raises(ValueError, match=r"expected an? .* from 0 to"):
        make_epoch(ordinal, random32)


def test_gateway_id_is_stable_and_does_not_show_the_machine_id() -> None:
    got = gateway_id(MACHINE + "\n")
    assert got == gateway_id(MACHINE.upper()) == "gw-291d36ff781d"
    assert GATEWAY_NAME.fullmatch(got)
    assert got[3:] not in MACHINE


@pytest.mark.parametrize("text", ["", "uninitialized\n", "0" * 32, MACHINE[:-1], "g" * 32])
def test_text_that_is_no_machine_id_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="32 hexadecimal digits"):
        gateway_id(text)


@pytest.mark.parametrize(
    ("name", "is_flow", "is_gateway"),
    [
        ("city-air", True, True),
        ("0_a", True, True),
        ("Board.local", False, True),
        ("", False, False),
        ("-a", False, False),
        ("a/b", False, False),
        ("air_v2", False, True),
        ("air_v2_indoor", True, True),
        ("air-v2", True, True),
        ("@acks", False, False),
        ("a" * 63, True, True),
        ("a" * 64, False, False),
        ("a\n", False, False),
    ],
)
def test_names_are_one_topic_level(name: str, is_flow: bool, is_gateway: bool) -> None:
    assert bool(FLOW_NAME.fullmatch(name)) == is_flow
    assert bool(GATEWAY_NAME.fullmatch(name)) == is_gateway
