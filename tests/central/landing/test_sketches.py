"""Bytes that a gateway calls a sketch: all that the library makes land, and nothing that Spark could not unite."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from edgert.central.landing.arrow_rows import landing_rows
from edgert.central.landing.checks import check_rows
from edgert.central.landing.sketch_checks import CHECKS
from edgert.core.batch import Batch
from edgert.core.results.result_schema import Schema, row_columns
from edgert.core.results.results import RowsBatch, pack_result, unpack_result_untrusted
from edgert.operators.base.logic import Now
from edgert.operators.state.aggregate_calls import parse_aggregate
from edgert.operators.state.sketch_kinds import KINDS
from edgert.operators.windows import CONTRIBUTION, TumblingWindow
from tests.central.sketch_examples import KIND_OF, damaged, sketch

SCHEMA = Schema(60.0, (), (("u", "distinct"), ("s", "distinct_set"), ("q", "quantiles")))
SIZES = [1, 2, 3, 7, 8, 20, 100, 250, 384, 385, 1000, 5000, 60_000]


@pytest.mark.parametrize("how", KIND_OF)
@pytest.mark.parametrize("size", SIZES)
def test_whatever_the_library_makes_is_good(how: str, size: int) -> None:
    rng = random.Random(size)
    kind = KINDS[KIND_OF[how]]
    one, other = kind.fresh(), kind.fresh()
    for _ in range(size):
        one.update(rng.gauss(0, 1))
        other.update(rng.gauss(5, 1))
    packed = [kind.pack(one), kind.pack(kind.unpack(kind.stored(one) or b"")), kind.pack(kind.merge(one, other))]
    assert all(data and CHECKS[how](data) for data in packed)


@pytest.mark.parametrize("how", KIND_OF)
def test_what_is_empty_is_told_as_null(how: str) -> None:
    kind = KINDS[KIND_OF[how]]
    assert kind.pack(kind.fresh()) is None
    assert not CHECKS[how](b"")


def others(how: str) -> list[tuple[str, bytes]]:
    from datasketches import hll_sketch, kll_doubles_sketch, tgt_hll_type, update_theta_sketch

    def filled(made: Any) -> Any:
        for i in range(3000):
            made.update(float(i))
        return made

    if how == "distinct":
        wide = filled(hll_sketch(14, tgt_hll_type.HLL_4))
        return [
            ("another lgK", wide.serialize_compact()),
            ("HLL_8", filled(hll_sketch(12, tgt_hll_type.HLL_8)).serialize_compact()),
            ("updatable", filled(hll_sketch(12, tgt_hll_type.HLL_4)).serialize_updatable()),
            ("empty", hll_sketch(12, tgt_hll_type.HLL_4).serialize_compact()),
        ]
    if how == "distinct_set":
        return [
            ("another seed", filled(update_theta_sketch(12, 1.0, 123)).compact().serialize()),
            ("too many", filled(filled(update_theta_sketch(14))).compact().serialize() + bytes(16_000)),
            ("compressed", filled(update_theta_sketch(12)).compact().serialize(True)),
            ("not ordered", filled(update_theta_sketch(12)).compact(False).serialize()),
            ("empty", update_theta_sketch(12).compact().serialize()),
        ]
    nan = filled(kll_doubles_sketch(200)).serialize()
    return [
        ("another k", filled(kll_doubles_sketch(300)).serialize()),
        ("not a number", nan[:-8] + b"\0\0\0\0\0\0\xf8\x7f"),
        ("empty", kll_doubles_sketch(200).serialize()),
    ]


@pytest.mark.parametrize(("how", "why", "data"), [(how, *other) for how in KIND_OF for other in others(how)])
def test_what_is_of_another_kind_or_size_is_refused(how: str, why: str, data: bytes) -> None:
    assert not CHECKS[how](data), why


def test_a_bad_sketch_goes_alone_and_says_what_was_expected() -> None:
    good = [1e9, 1e9 + 60, sketch("distinct", 9), sketch("distinct_set", 9), sketch("quantiles", 9)]
    bad = [*good[:3], good[4], good[3]]
    batch = RowsBatch(
        gateway="g", flow="f", epoch=1, stream=0, sequence=2, flow_version=1,
        columns=row_columns(SCHEMA), rows=[good, bad, [*good[:2], None, None, None], [*good[:4], "text"]],
    )  # fmt: skip
    checked = check_rows(batch, SCHEMA)
    assert checked.count == 2
    assert [reason.split(",")[0] for _, reason in checked.refused] == [
        "s__theta: expected the bytes of an ordered theta sketch of at most 4096 hashes or null",
        "q__kll: expected the bytes of a KLL sketch of at most 1099511627776 finite doubles of k 200 or null",
    ]


@given(st.sampled_from(list(KIND_OF)), st.binary(max_size=5000))
@example("distinct", b"\x0a\x01\x07\x0c\x00\x08\x00\x02" + bytes(2080))
@example("quantiles", b"\x05\x01\x0f\x00\xc8\x00\x08\x00" + b"\xff" * 200)
def test_any_bytes_get_an_answer(how: str, data: bytes) -> None:
    assert CHECKS[how](data) in (True, False)


@pytest.mark.parametrize("how", KIND_OF)
def test_what_passes_the_library_reads_and_unites(how: str) -> None:
    """Bits turned, bytes cut and put in, header bytes first of all."""
    rng = random.Random(5)
    kind = KINDS[KIND_OF[how]]
    passed = 0
    for data in damaged(how, rng, 3000):
        if CHECKS[how](data):
            passed += 1
            whole = kind.merge(kind.unpack(data), kind.unpack(sketch(how, 500)))
            kind.results(whole)
            assert CHECKS[how](kind.pack(whole) or b"")
    assert passed > 0, "some damage cannot be told: another value, as any gateway may tell one"


def test_what_a_window_ships_comes_through_the_wire_and_lands() -> None:
    written = {"u": "distinct(v)", "s": "distinct_set(v)", "q": "quantiles(v)"}
    window = TumblingWindow("w", 60.0, [parse_aggregate(*pair) for pair in written.items()])
    rows = [{"time": float(i % 120), "source": "a", "v": i / 3} for i in range(10_000)]
    (emission,) = [e for e in window.process(Batch(rows, 0.0, 120.0), 0, Now(0.0, 0.0)) if e.port == CONTRIBUTION]
    columns = row_columns(SCHEMA)
    shipped = [[row[column] for column in columns] for row in emission.batch.rows]
    number: dict[str, Any] = {"gateway": "g", "flow": "f", "epoch": 1, "stream": 0, "sequence": 2, "flow_version": 1}
    batch = unpack_result_untrusted(pack_result(RowsBatch(**number, columns=columns, rows=shipped)))
    assert isinstance(batch, RowsBatch)
    checked = check_rows(batch, SCHEMA)
    assert (checked.count, checked.refused) == (2, [])
    landed = landing_rows([(batch, checked)], SCHEMA).to_pylist()
    for name, kind in (("u__hll", "hll"), ("s__theta", "theta")):
        told = [KINDS[kind].results(KINDS[kind].unpack(row[name]))[""] for row in landed]
        assert told == [pytest.approx(5_000, rel=0.08)] * 2
