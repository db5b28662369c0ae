"""`bloom_filter`: rows of known keys, and rows of new ones."""

from __future__ import annotations

import math
import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgert.core.batch import NO_WATERMARK, Batch
from edgert.core.errors import DocumentError
from edgert.core.packing import pack, unpack
from edgert.flow.document import from_plain
from edgert.flow.physical import fields_needed, plan
from edgert.operators.base.logic import Now
from edgert.operators.bloom import REMEMBERED, FirstSeen, KnownKeys
from edgert.operators.registry import REGISTRY
from edgert.runtime.instance.build import build

NOW = Now(0.0, 0.0)


def row(key: Any, **more: Any) -> dict[str, Any]:
    return {"time": 0.0, "source": "s", "k": key, **more}


def passed(made: KnownKeys | FirstSeen, *keys: Any) -> list[Any]:
    out = made.process(Batch([row(key) for key in keys], 0.0, NO_WATERMARK, 100), 0, NOW)
    return [r["k"] for emission in out for r in emission.batch.rows]


def test_known_keys_go_through_and_nearly_no_others() -> None:
    made = KnownKeys(["k"], [f"device-{n}" for n in range(500)], 0.01)
    assert passed(made, *(f"device-{n}" for n in range(500))) == [f"device-{n}" for n in range(500)]
    others = [f"stranger-{n}" for n in range(5_000)]
    assert 0 < len(passed(made, *others)) < 100
    assert not made.drops, "a filter chooses; that is no loss"
    assert made.delta() is made.snapshot() is None


def test_a_known_key_that_is_a_number_is_one_in_a_row_too() -> None:
    made = KnownKeys(["k"], ["1", "-2.5", "007", "x"], 1e-6)
    keys = ["1", 1, 1.0, True, -2.5, "-2.5", 7, "007", "7", "x", 3]
    assert [(type(key), key) for key in passed(made, *keys)] == [
        (str, "1"), (int, 1), (float, 1.0), (float, -2.5), (str, "-2.5"), (str, "007"), (str, "x"),
    ]  # fmt: skip


def test_a_known_key_that_is_a_long_integer_is_that_one_and_not_the_next() -> None:
    """Identifiers of 64 bits and of SIM cards: integers of a row of JSON, doubles where a codec has no others."""
    eui, sim = 1234567890123456789, 89310410106543789301
    made = KnownKeys(["k"], [str(eui), str(-eui), str(sim), "9007199254740993"], 1e-6)
    keys = [eui, str(eui), eui + 1, eui - 1, float(eui), -eui, -eui - 1, sim, float(sim), sim + 1, 2**53 + 1, 2**53 + 3]
    assert passed(made, *keys) == [eui, str(eui), float(eui), -eui, sim, float(sim), 2**53 + 1]


def test_known_keys_are_numbers_where_json_spells_them_so() -> None:
    made = KnownKeys(["k"], ["1e5", "-2.5E-1", "1.50", "0.12345678901234567", "1e999", "9" * 5_000], 1e-6)
    numbers = [100_000, -0.25, 1.5, 0.12345678901234567]
    assert passed(made, *numbers, math.inf) == numbers
    made = KnownKeys(["k"], ["007", "+5", ".5", "5.", " 6", "1_0", "0x1F", "٧", "nan", "Infinity", "1e", "-"], 1e-6)
    assert passed(made, 7, 5, 0.5, 6, 10, 31, math.inf) == []


def test_verdicts_are_remembered_for_a_while() -> None:
    made = KnownKeys(["k"], [f"device-{n}" for n in range(REMEMBERED)], 0.001)
    keys = [f"{name}-{n}" for n in range(REMEMBERED) for name in ("device", "stranger")] * 2
    assert passed(made, *keys, 1, True) == [key for key in keys if key.startswith("device")]
    assert len(made.verdicts) <= REMEMBERED
    assert all(type(key) is str for key in made.verdicts)


def test_verdicts_on_long_keys_take_no_room() -> None:
    long = [f"{n}" + "x" * 10_000 for n in range(50)]
    made = KnownKeys(["k"], long[:25], 1e-6)
    assert passed(made, *long, "short") == long[:25]
    assert list(made.verdicts) == ["short"]


def test_a_row_without_a_key_is_counted() -> None:
    for made in (KnownKeys(["k"], ["a"], 0.01), FirstSeen(["k"], 10, 0.01)):
        assert passed(made, None, "a", float("nan"), ["x"]) == ["a"]
        assert made.drops == {"no key": 3}


def test_only_the_first_row_of_a_key_goes_through() -> None:
    made = FirstSeen(["k"], 100, 1e-6)
    assert passed(made, "a", "b", "a", 1, 1.0, "1", True) == ["a", "b", 1, "1", True]
    assert passed(made, "b", "c", True) == ["c"]
    assert not made.process(Batch([row("a")], 0.0), 0, NOW)
    (emission,) = made.process(Batch([row("a"), row("z")], 0.0, 5.0, 100), 0, NOW)
    assert (len(emission.batch), emission.batch.watermark, emission.batch.size) == (1, 5.0, 50)
    (emission,) = made.process(Batch([row("a")], 0.0, 6.0, 100), 0, NOW)
    assert (emission.batch.rows, emission.batch.watermark) == ([], 6.0), "the watermark goes on without rows"


def test_keys_of_several_fields() -> None:
    made = FirstSeen(["source", "k"], 100, 1e-6)
    rows = [row("a"), row("a") | {"source": "t"}, row("a"), {"time": 0.0, "source": "s"}, {"time": 9.0, "source": "s"}]
    (emission,) = made.process(Batch(rows, 0.0), 0, NOW)
    assert emission.batch.rows == [rows[0], rows[1], rows[3]]


def test_memory_is_bounded_and_what_is_forgotten_counted() -> None:
    made = FirstSeen(["k"], 10, 1e-5)
    before = len(made.seen.current.array) + len(made.seen.previous.array)
    assert len(passed(made, *range(1000))) == 1000
    assert len(made.seen.current.array) + len(made.seen.previous.array) == before
    assert made.drops == {"forgotten (keys)": 980}
    assert passed(made, *range(990, 1000)) == []
    assert passed(made, 3) == [3]


BATCHES = st.lists(st.lists(st.integers(0, 60), max_size=30), max_size=6)


@pytest.mark.parametrize("expected", [5, 200])
@given(batches=BATCHES)
def test_deltas_and_snapshots_bring_it_back(expected: int, batches: list[list[int]]) -> None:
    made, by_deltas, by_snapshot = (FirstSeen(["k"], expected, 1e-4) for _ in range(3))
    for batch in batches:
        passed(made, *batch)
        if (delta := made.delta()) is not None:
            by_deltas.restore(unpack(pack(delta)))
        assert made.delta() is None
    if (snapshot := made.snapshot()) is not None:
        by_snapshot.restore(unpack(pack(snapshot)))
    for again in (by_deltas, by_snapshot):
        for name in ("current", "previous"):
            assert getattr(again.seen, name).array == getattr(made.seen, name).array
        assert (again.seen.count, again.seen.previous_count) == (made.seen.count, made.seen.previous_count)


def test_of_few_new_keys_only_those_are_told_and_of_many_the_filter() -> None:
    made = FirstSeen(["k"], 10_000, 0.01)
    passed(made, "a", "b", "a")
    assert made.delta() == {"inserted": made_bytes("a") + made_bytes("b")}
    passed(made, *range(5_000))
    assert set(made.delta() or ()) == {"filters", "counts"}
    passed(made, "c")
    assert made.delta() == {"inserted": made_bytes("c")}


def test_a_key_takes_no_more_memory_than_the_docs_say() -> None:
    keys, beside = 50_000, 20_000  # what the interpreter keeps of rows that were
    tracemalloc.start()
    try:
        made = FirstSeen(["k"], keys, 0.01)
        assert tracemalloc.get_traced_memory()[0] < 2.8 * keys + beside
        most = 0
        for key in range(0, keys // 4, 100):
            passed(made, *range(key, key + 100))
            most = max(most, tracemalloc.get_traced_memory()[0])
    finally:
        tracemalloc.stop()
    assert most < 4.4 * keys + beside
    assert set(made.delta() or ()) == {"filters", "counts"}, "the list was as long as it gets"


def made_bytes(key: str) -> bytes:
    made = FirstSeen(["k"], 10, 0.01)
    passed(made, key)
    delta = made.delta()
    assert delta is not None
    told: bytes = delta["inserted"]
    return told


def test_the_state_of_another_size_is_refused() -> None:
    made = FirstSeen(["k"], 1_000, 0.01)
    passed(made, "a")
    with pytest.raises(ValueError, match="expected a filter of"):
        FirstSeen(["k"], 500, 0.01).restore(made.snapshot())


def document(**parameters: Any) -> dict[str, Any]:
    operators = {
        "in": {"type": "mqtt_source", "topic": "x/{source}"},
        "f": {"type": "bloom_filter", "input": "in", **parameters},
        "brief": {"type": "select", "input": "f", "fields": ["v"]},
        "out": {"type": "publish", "input": "brief", "topic": "y"},
    }
    return {"name": "f", "operators": operators}


@pytest.mark.parametrize(
    ("parameters", "path"),
    [
        ({}, "values"),
        ({"mode": "first_seen", "values": ["a"]}, "values"),
        ({"fields": ["a", "b"], "values": ["a"]}, "fields"),
        ({"values": ["a"], "false_positive_rate": 0.0}, "false_positive_rate"),
        ({"mode": "first_seen", "expected_items": 0}, "expected_items"),
    ],
)
def test_what_cannot_work_is_refused_with_its_place(parameters: dict[str, Any], path: str) -> None:
    with pytest.raises(DocumentError) as refused:
        from_plain(document(**parameters), REGISTRY)
    assert [p.path for p in refused.value.problems] == [f"operators.f.{path}"]


def test_a_flow_decodes_the_key_and_has_the_mode_it_asks_for() -> None:
    for parameters, kind in (({"values": ["a"]}, KnownKeys), ({"mode": "first_seen"}, FirstSeen)):
        flow = from_plain(document(fields=["k"], **parameters), REGISTRY)
        assert fields_needed(flow, REGISTRY, "in") == frozenset({"k", "v"})
        instances = build(plan(flow, REGISTRY, "none"), REGISTRY).instances
        assert type(instances["f"].logic) is kind


def test_a_batch_may_be_larger_than_the_filter() -> None:
    made = FirstSeen(["k"], 10, 1e-5)
    twice = [key for key in range(30) for _ in range(2)]
    assert passed(made, *twice) == list(range(30))
