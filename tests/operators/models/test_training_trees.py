"""`train_tree`: its models in use, what it leaves out, and its state."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgert.core.batch import NO_WATERMARK, Batch
from edgert.core.errors import DocumentError
from edgert.core.packing import pack, unpack
from edgert.expr.compile import compile_expression
from edgert.flow.document import from_plain
from edgert.flow.graph import Node
from edgert.flow.physical import fields_needed
from edgert.operators.base.logic import Now
from edgert.operators.builder import stream
from edgert.operators.fusion.chain import Chain
from edgert.operators.models.cart import Tree
from edgert.operators.models.models import model_untrusted
from edgert.operators.models.training import MAX_KEYS
from edgert.operators.models.training_trees import MAX_DEPTH, MAX_LOOKS, TrainTree
from edgert.operators.registry import REGISTRY
from edgert.operators.state.bounded_keys import PORTIONS

NOW = Now(0.0, 0.0)


def row(source: str = "a", time: float = 1.0, **fields: Any) -> dict[str, Any]:
    return {"time": time, "source": source, **fields}


def fed(made: TrainTree, *rows: dict[str, Any]) -> list[dict[str, Any]]:
    return [r for emission in made.process(Batch(list(rows), 0.0), 0, NOW) for r in emission.batch.rows]


def predicted(model: dict[str, Any], fields: list[str], rows: list[dict[str, Any]]) -> list[Any]:
    """By `predict`, the model having come by a message."""
    made = Chain([Node("p", "predict", {"model": "m", "fields": fields, "output": "p", "initial": {}}, ("in",))])
    made.predictions.offer("p", made.predictions.checked_untrusted("p", json.loads(json.dumps(model))))
    (emission,) = made.process(Batch(rows, 0.0), 0, NOW)
    return [r["p"] for r in emission.batch.rows]


@pytest.mark.parametrize("classes", [("GOOD", "AVERAGE", "BAD"), (1, 2.5, -3), (True, False, True)])
def test_predict_classifies_as_many_rows_right_as_the_model_says(classes: tuple[Any, ...]) -> None:
    draw = random.Random(5)
    rows = []
    for n in range(400):
        x, y = draw.gauss(0, 1), draw.randrange(-(2**53), 2**53)
        at = (x > 0) + (y > 0) if draw.random() < 0.9 else draw.randrange(3)
        rows.append(row(time=float(n), x=x, y=y, z=draw.random(), class_=classes[at]))
    (got,) = fed(TrainTree("class_", ["x", "y", "z"], 400, depth=4), *rows)
    assert set(got) == {"time", "source", "model"}
    about = got["model"]["about"]
    told = predicted(got["model"], ["x", "y", "z"], rows)
    right = sum(p == r["class_"] for p, r in zip(told, rows, strict=True))
    assert about == {"target": "class_", "rows": 400, "until": 399.0, "accuracy": right / 400}
    assert {type(p) for p in told} == {type(value) for value in classes}
    assert about["accuracy"] > 0.85


def test_every_so_many_rows_of_a_key_give_a_model() -> None:
    made = TrainTree("c", ["x"], 4, least=1, keys=["source"])
    rows = [row("ab"[n % 2], float(n), x=n, c="low" if n < 5 else "high") for n in range(18)]
    got = fed(made, *rows)
    assert [(r["source"], r["time"], r["model"]["version"]) for r in got] == [
        ("a", 6.0, 1), ("b", 7.0, 1), ("a", 14.0, 2), ("b", 15.0, 2),
    ]  # fmt: skip
    assert [r["model"]["tree"] for r in got] == [
        {"field": "x", "threshold": 5.0, "at_most": {"value": "low"}, "above": {"value": "high"}},
        {"field": "x", "threshold": 4.0, "at_most": {"value": "low"}, "above": {"value": "high"}},
        {"value": "high"},
        {"value": "high"},
    ]
    assert {r["model"]["about"]["accuracy"] for r in got} == {1.0}
    for r in got:  # a class that is constant is a leaf, which predict takes
        model_untrusted(unpack(pack(r["model"])), frozenset({"x"}))


def test_the_watermark_goes_on_without_rows() -> None:
    made = TrainTree("c", ["x"], 2, least=1)
    (emission,) = made.process(Batch([row(x=1, c="a")], 3.0, 9.0), 0, NOW)
    assert (emission.batch.rows, emission.batch.arrival, emission.batch.watermark) == ([], 3.0, 9.0)
    assert made.process(Batch([], 3.0, NO_WATERMARK), 0, NOW) == ()


def bushy(depth: int, at: int = 1) -> Tree:
    if not depth:
        return {"value": f"{at}"}
    parts = {"at_most": bushy(depth - 1, 2 * at), "above": bushy(depth - 1, 2 * at + 1)}
    return {"field": f"x{at % 24}", "threshold": at / 3, **parts}


def test_predict_takes_the_largest_tree_there_can_be() -> None:
    fields = frozenset(f"x{at}" for at in range(24))
    model = model_untrusted({"kind": "decision_tree", "tree": bushy(MAX_DEPTH)}, fields)
    assert compile_expression(model.expression)(dict.fromkeys(fields, 1e3)) == str(2 ** (MAX_DEPTH + 1) - 1)
    with pytest.raises(DocumentError, match="expected at most 4096 parts"):
        model_untrusted({"kind": "decision_tree", "tree": bushy(MAX_DEPTH + 1)}, fields)


BAD: list[dict[str, Any]] = [
    {"x": "1"}, {"x": True}, {"x": float("nan")}, {"x": float("inf")}, {"x": 1e200}, {"x": 10**400}, {"x": [1]},
    {"c": float("nan")}, {"c": float("-inf")}, {"c": 2**63}, {"c": ["a"]}, {"c": {}}, {"c": "\ud800"}, {"c": "a" * 65},
]  # fmt: skip


def test_rows_that_lack_a_value_or_have_a_bad_one_are_left_out_and_counted() -> None:
    made = TrainTree("c", ["x", "y"], 4, least=1)
    good = [row(x=n, y=0, c="ab"[n > 1]) for n in range(4)]
    bad = [row(**{"x": 1, "y": 1, "c": "other", **values}) for values in BAD]
    absent = [row(x=1, y=1), row(x=None, y=1, c="a"), row(c="a")]
    (got,) = fed(made, good[0], *bad, *absent, *good[1:], row(x="1", y=None, c="a"), row(x="1", y="1", c=[]))
    assert got["model"]["tree"] == {
        "field": "x", "threshold": 1.5, "at_most": {"value": "a"}, "above": {"value": "b"},
    }  # fmt: skip
    assert made.drops == {"bad_value (values)": len(BAD) + 3, "absent (values)": 5}


def test_rows_of_more_classes_than_there_may_be_are_left_out_and_counted() -> None:
    made = TrainTree("c", ["x"], 4, least=1, classes=2)
    rows = [row(x=n, c=c) for n, c in enumerate("abccba")]
    (got,) = fed(made, *rows)
    assert got["model"]["about"]["rows"] == 4
    assert made.drops == {"too many classes": 2}
    fed(made, row(x=1, c="c"))
    assert made.drops == {"too many classes": 2}, "the next window has its own"


def test_a_window_of_before_there_were_fewer_classes_takes_no_more() -> None:
    made, fewer = (TrainTree("c", ["x"], 100, least=1, classes=classes) for classes in (4, 2))
    fed(made, *(row(x=n, c=c) for n, c in enumerate("abc")))
    fewer.restore(unpack(pack(made.delta())))
    fed(fewer, *(row(x=n, c=c) for n, c in enumerate("cdef")))
    assert list(fewer.windows[None].classes) == ["a", "b", "c"]
    assert fewer.drops == {"too many classes": 3}


def test_true_is_another_class_than_1_and_1_the_same_as_one_point_nought() -> None:
    made, again = (TrainTree("c", ["x"], 6, least=1) for _ in range(2))
    fed(made, *(row(x=x, c=c) for x, c in enumerate((1, 1.0, True, True, 0))))
    again.restore(unpack(pack(made.delta())))
    for one in (made, again):
        (got,) = fed(one, row(x=5, c=False))
        rows = [row(x=x) for x in range(6)]
        assert list(map(repr, predicted(got["model"], ["x"], rows))) == ["1", "1", "True", "True", "0", "False"]


CLASSES = st.sampled_from(["k", "l", True, 1])
STEPS = st.lists(st.tuples(st.sampled_from("ab"), st.integers(-9, 9), CLASSES), max_size=12)


@given(st.lists(STEPS, max_size=6))
def test_deltas_and_snapshots_bring_it_back(batches: list[list[tuple[str, int, Any]]]) -> None:
    made, by_deltas, by_snapshot, stepwise = (
        TrainTree("c", ["x"], 5, least=1, keys=["source", "room"]) for _ in range(4)
    )
    for batch in batches:
        rows = [row(source, x=x / 3, c=c) for source, x, c in batch]
        assert fed(stepwise, *rows) == fed(made, *rows)
        if (delta := made.delta()) is not None:
            by_deltas.restore(unpack(pack(delta)))
            restarted = TrainTree("c", ["x"], 5, least=1, keys=["source", "room"])
            restarted.restore(unpack(pack(by_deltas.snapshot())))
            stepwise = restarted
        assert made.delta() is None
        assert stepwise.delta() is None
    if (snapshot := made.snapshot()) is not None:
        by_snapshot.restore(unpack(pack(snapshot)))
    rest = [row(source, x=n * n / 7, c="klm"[n % 3]) for n in range(7) for source in "ab"]
    assert fed(by_deltas, *rest) == fed(by_snapshot, *rest) == fed(stepwise, *rest) == fed(made, *rest)


def test_a_checkpoint_tells_a_row_once() -> None:
    made = TrainTree("c", ["x"], 1_000)
    sizes = []
    for _ in range(3):
        fed(made, *(row(x=n, c="a") for n in range(100)))
        sizes.append(len(pack(made.delta())))
    assert max(sizes) < min(sizes) + 10 < 100 * 2 * 8 + 100


def test_a_window_that_was_larger_than_the_new_size_is_full_with_the_next_row() -> None:
    made, again = TrainTree("c", ["x"], 9), TrainTree("c", ["x"], 4)
    fed(made, *(row(x=n, c="a") for n in range(6)))
    again.restore(made.delta())
    (got,) = fed(again, row(x=1, c="a"))
    assert got["model"]["about"]["rows"] == 7


def test_keys_are_bounded_by_number_and_by_memory() -> None:
    made, again = (TrainTree("c", ["x"], 10, keys=["source"]) for _ in range(2))
    for sources in (range(MAX_KEYS), [MAX_KEYS]):
        fed(made, *(row(f"s{n}", x=1, c="a") for n in sources))
        again.restore(made.delta())
    assert made.drops == {"too many keys (keys)": MAX_KEYS // PORTIONS}
    assert list(made.windows) == list(again.windows) == [f"s{n}" for n in range(MAX_KEYS // PORTIONS, MAX_KEYS + 1)]
    large = TrainTree("c", ["x"], 50_000, keys=["source"])
    fed(large, *(row(f"s{n}", x=1, c="a") for n in range(100)))
    assert 64 << 20 > len(large.windows) * 50_000 * 2 * 9 > 60 << 20


def test_the_state_of_another_tree_is_refused() -> None:
    made, other = TrainTree("c", ["x"], 10), TrainTree("c", ["x"], 10)
    fed(made, row(x=1, c="a"))
    delta = made.delta()
    with pytest.raises(ValueError, match="expected rows of 3 columns, got 2"):
        TrainTree("c", ["x", "z"], 10).restore(delta)
    fed(made, row(x=1, c="a"))
    with pytest.raises(ValueError, match="expected rows behind those that are there, got them from value 2 on"):
        other.restore(made.delta())


def document(**parameters: Any) -> dict[str, Any]:
    fit = {"type": "train_tree", "input": "by", "target": "c", "fields": ["x", "z"], **parameters}
    operators = {
        "in": {"type": "mqtt_source", "topic": "x/{source}"},
        "by": {"type": "key_by", "input": "in", "keys": ["room"]},
        "fit": fit,
        "out": {"type": "publish", "input": "fit", "topic": "models/{room}", "payload_field": "model", "retain": True},
    }
    return {"name": "f", "operators": operators}


def test_a_flow_decodes_the_fields_and_the_key() -> None:
    assert fields_needed(from_plain(document(), REGISTRY), REGISTRY, "in") == frozenset({"x", "z", "c", "room"})


def test_the_builder_makes_the_document() -> None:
    built = stream("f").mqtt_source("x/{source}", name="in").key_by("room", name="by")
    flow = built.train_tree("c", "x", "z", name="fit", depth=4)
    flow.publish("models/{room}", name="out", payload_field="model", retain=True)
    assert flow.build().document == from_plain(document(depth=4), REGISTRY).document


@pytest.mark.parametrize(
    ("parameters", "path"),
    [
        ({"fields": ["x", "c"]}, "fields"),
        ({"fields": [f"x{n}" for n in range(25)]}, "fields"),
        ({"size": 9}, "size"),
        ({"size": 40, "least": 21}, "size"),
        ({"size": 50_001, "fields": ["x"], "depth": 1}, "size"),
        ({"size": MAX_LOOKS // 12 + 1, "depth": 6}, "size"),
        ({"depth": 0}, "depth"),
        ({"depth": MAX_DEPTH + 1}, "depth"),
        ({"classes": 1}, "classes"),
        ({"classes": 101}, "classes"),
        ({"output": "time"}, "output"),
        ({"output": "room"}, "output"),
    ],
)
def test_what_cannot_work_is_refused_with_its_place(parameters: dict[str, Any], path: str) -> None:
    plain = document(**parameters)
    plain["operators"]["out"]["payload_field"] = parameters.get("output", "model")
    with pytest.raises(DocumentError) as refused:
        from_plain(plain, REGISTRY)
    assert [p.path for p in refused.value.problems if not p.path.startswith("operators.out")] == [
        f"operators.fit.{path}"
    ]
