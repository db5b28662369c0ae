"""`join_latest`: fields of the newest row of the second input."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgert.core.batch import NO_WATERMARK, Batch
from edgert.core.errors import DocumentError
from edgert.core.packing import pack, unpack
from edgert.flow.document import from_plain
from edgert.flow.physical import fields_needed
from edgert.operators.base.logic import Now
from edgert.operators.joins import JoinLatest
from edgert.operators.registry import REGISTRY
from tests.operators.bounds import limit, limit_to_held

NOW = Now(0.0, 0.0)


def fed(made: JoinLatest, source: int, *rows: dict[str, Any], watermark: float = NO_WATERMARK) -> list[dict[str, Any]]:
    out = made.process(Batch(list(rows), 0.0, watermark, 100), source, NOW)
    return [row for emission in out for row in emission.batch.rows]


def row(time: float, source: str = "a", **more: Any) -> dict[str, Any]:
    return {"time": time, "source": source, **more}


def test_a_row_gets_the_fields_of_the_newest_of_its_key() -> None:
    made = JoinLatest(["source"], ["m"])
    assert fed(made, 0, row(1, v=1)) == [row(1, v=1, m=None)]
    assert fed(made, 1, row(5, m=7.0, other=1), row(3, m=6.0), row(9, "b", m=1.0)) == []
    assert fed(made, 0, row(2, v=1), row(2, "b", v=1), row(2, "c")) == [
        row(2, v=1, m=7.0), row(2, "b", v=1, m=1.0), row(2, "c", m=None),
    ]  # fmt: skip


def test_what_is_missing_or_too_old_can_be_dropped_and_is_counted() -> None:
    made = JoinLatest(["source"], ["m"], "drop", max_age_s=10.0)
    fed(made, 1, row(5, m=7.0))
    assert [r["time"] for r in fed(made, 0, row(15), row(15.5), row(6, "b"))] == [15]
    assert made.drops == {"nothing to join": 2}


def test_keys_of_several_fields_may_be_absent() -> None:
    made = JoinLatest(["source", "room"], ["m"])
    fed(made, 1, row(1, room="x", m=1), row(1, m=2))
    assert [r["m"] for r in fed(made, 0, row(2), row(2, room="x"))] == [2, 1]


def test_the_watermark_is_that_of_the_rows_that_go_through() -> None:
    made = JoinLatest(["source"], ["m"])
    assert not made.process(Batch([row(1, m=1)], 0.0, 40.0), 1, NOW)
    (emission,) = made.process(Batch([], 0.0, 50.0), 0, NOW)
    assert emission.batch.watermark == 50.0


def test_a_row_from_the_future_keeps_nobody_out_for_long() -> None:
    made = JoinLatest(["source"], ["m"])
    for moment, time, m in ((0.0, 4e9, 1), (30.0, 30.0, 2), (61.0, 61.0, 3)):
        now = Now(moment, 1.7e9 + moment)
        made.process(Batch([row(time if time > 1e9 else 1.7e9 + time, m=m)], 0.0), 1, now)
    assert fed(made, 0, row(1.7e9 + 62.0))[0]["m"] == 3


def test_keys_are_bounded() -> None:
    made, again = JoinLatest(["source"], ["m"]), JoinLatest(["source"], ["m"])
    for source in "abc":
        if source == "c":
            limit_to_held(made, again)
        fed(made, 1, row(1, source, m=1))
        again.restore(made.delta())
    assert list(made.latest) == list(again.latest) == ["b", "c"]
    assert made.drops == {"too many keys (keys)": 1}


def test_what_is_remembered_is_bounded_by_memory_whatever_it_is() -> None:
    made = JoinLatest(["source"], ["m", "x"])
    limit(100_000, made)
    for n in range(50):
        fed(made, 1, row(n, f"long-{n}", m="y" * 10_000, x=[1, 2]))
    assert list(made.latest) == [f"long-{n}" for n in range(41, 50)]
    for n in range(50):
        fed(made, 1, row(n, "long-45", m="y" * 10_000 if n < 49 else 1.0))
    assert len(made.latest) == 9
    fed(made, 1, row(60, "long-45", m=2.0))
    fed(made, 1, row(60, "new", m="y" * 10_000))
    assert len(made.latest) == 10, "what is small again has made room"
    assert made.drops == {"too many keys (keys)": 41}


@pytest.mark.parametrize("value", ["y" * 10_000, ["y" * 1_000] * 10, {"a": [{"b": "y" * 10_000}]}, [1.5] * 400])
def test_a_restart_does_not_make_what_is_remembered_light(value: Any) -> None:
    made, by_deltas, by_snapshot = (JoinLatest(["source"], ["m"]) for _ in range(3))
    limit(100_000, made, by_deltas, by_snapshot)
    for n in range(50):
        fed(made, 1, row(n, f"long-{n}", m=value))
        by_deltas.restore(unpack(pack(made.delta())))
    assert len(made.latest) < 12
    for again in (by_deltas, by_snapshot):
        if again is not by_deltas:
            again.restore(unpack(pack(made.snapshot())))
        assert again.latest == made.latest
        for n in range(60, 80):
            fed(again, 1, row(n, f"long-{n}", m=value))
            assert len(again.latest) == len(made.latest)
        assert again.drops == {"too many keys (keys)": 20}


STEPS = st.lists(st.tuples(st.integers(0, 1), st.sampled_from("ab"), st.integers(0, 9)), max_size=12)


@given(STEPS)
def test_deltas_and_snapshots_bring_it_back(steps: list[tuple[int, str, int]]) -> None:
    made, by_deltas = JoinLatest(["source"], ["m"]), JoinLatest(["source"], ["m"])
    for source, key, time in steps:
        fed(made, source, row(time, key, m=time))
        if (delta := made.delta()) is not None:
            by_deltas.restore(unpack(pack(delta)))
    by_snapshot = JoinLatest(["source"], ["m"])
    if (snapshot := made.snapshot()) is not None:
        by_snapshot.restore(unpack(pack(snapshot)))
    assert by_deltas.latest == by_snapshot.latest == made.latest


def joining(**first: Any) -> dict[str, Any]:
    """`first`: the operator whose rows go through; the mean of `v` is joined to them as `m`."""
    return {"name": "f", "operators": {
        "in": {"type": "mqtt_source", "topic": "x/{source}"},
        "first": {"input": "in", **first},
        "by": {"type": "key_by", "input": "in", "keys": ["room"]},
        "mean": {"type": "count_window", "input": "by", "size": 3, "aggregates": {"m": "mean(v)"}},
        "joined": {"type": "join_latest", "inputs": ["first", "mean"], "on": ["room"], "fields": ["m"]},
        "brief": {"type": "select", "input": "joined", "fields": ["t", "m"]},
        "out": {"type": "publish", "input": "brief", "topic": "y"},
    }}  # fmt: skip


def test_state_tells_fields_by_their_names_as_it_always_did() -> None:
    """What an earlier version wrote, or a document with its fields in another order, must come back the same."""
    made = JoinLatest(["source"], ["m", "k"])
    fed(made, 1, row(5, m=7.0, k="x"))
    stored = {"gone": [], "latest": [["a", 5, {"m": 7.0, "k": "x"}]]}
    assert unpack(pack(made.snapshot())) == stored
    for fields in (["m", "k"], ["k", "new", "m"]):
        again = JoinLatest(["source"], fields)
        again.restore(stored)
        found: dict[str, Any] = {"m": 7.0, "k": "x", "new": None}
        assert fed(again, 0, row(6)) == [{**row(6), **{field: found[field] for field in fields}}]


def test_a_source_decodes_joined_fields_only_where_something_else_looks_at_them() -> None:
    def needed(**first: Any) -> frozenset[str]:
        found = fields_needed(from_plain(joining(**first), REGISTRY), REGISTRY, "in")
        assert found is not None
        return found

    assert needed(type="filter", where="t > 0") == {"t", "room", "v"}
    assert needed(type="filter", where="m > 0") == {"t", "room", "v", "m"}, "the source may have one of its own"


def test_a_joined_field_must_arrive() -> None:
    plain = joining(type="select", fields=["t", "room"])
    from_plain(plain, REGISTRY)
    plain["operators"]["joined"]["fields"] = ["n"]
    with pytest.raises(DocumentError, match=r"operators\.joined: expected fields that arrive here .*got 'n'"):
        from_plain(plain, REGISTRY)


def test_a_document_must_name_two_inputs_and_fields_of_its_own() -> None:
    plain: dict[str, Any] = {"name": "f", "operators": {
        "in": {"type": "mqtt_source", "topic": "x/{source}"},
        "j": {"type": "join_latest", "inputs": ["in"], "fields": ["time"]},
        "out": {"type": "publish", "input": "j", "topic": "y"},
    }}  # fmt: skip
    with pytest.raises(DocumentError) as refused:
        from_plain(plain, REGISTRY)
    assert [p.path for p in refused.value.problems] == ["operators.j.inputs", "operators.j.fields"]
    plain["operators"]["k"] = {"type": "key_by", "input": "in", "keys": ["source"]}
    plain["operators"]["j"] |= {"inputs": ["in", "k"], "fields": ["m"]}
    with pytest.raises(DocumentError, match="two operators"):
        from_plain(plain, REGISTRY)
