"""RIoTBench's applications do what they are said to: the SYS trace through a flow, against plain Python."""

from __future__ import annotations

import json
import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable
from functools import cache
from typing import Any, get_args

import pytest

from benchmarks.ingest.trace import RANGES, TRACE
from benchmarks.riotbench import by_hand
from benchmarks.riotbench.flows import (
    AIR_CLASSES,
    APPLICATIONS,
    CLASSIFIED_BY,
    METADATA,
    REGRESSION,
    TRAINED,
    known_devices,
    pred,
    split,
    train,
)
from edgert.core.batch import RawBatch
from edgert.core.checkpoint.position import Position
from edgert.flow.document import from_plain
from edgert.flow.physical import Fusion
from edgert.operators.base.logic import Message, Now
from edgert.operators.fusion.chain import Chain
from edgert.operators.registry import REGISTRY
from edgert.runtime.checkpoint.packing import pack_state
from edgert.runtime.checkpoint.progress import Progress
from edgert.runtime.flow_run import FlowRun
from edgert.runtime.instance.queue import Entry
from edgert.runtime.run_out import run_out
from tests.named import named
from tests.operators.cart_by_definition import tried

pytestmark = pytest.mark.skipif(not TRACE.exists(), reason=f"the SYS trace is not there: {TRACE}")
CLASSES = TRACE.with_name("SYS-airquality-class.txt")
ROWS = 600
EVERY_FUSION = pytest.mark.parametrize("fusion", get_args(Fusion))
WALL = 1_700_000_000.0


def lines(count: int = ROWS) -> list[bytes]:
    return TRACE.read_bytes().splitlines()[:count]


def packs(count: int = ROWS, devices: int = 0) -> list[dict[str, Any]]:
    """The trace in plain Python: time, source, and the measurements as numbers. With `devices` as if only the first so
    many had sent all of it by turns: in the trace hardly one comes twice."""
    rows: list[dict[str, Any]] = []
    for line in lines(count):
        plain = json.loads(line.partition(b",")[2])
        values = {e["n"]: e.get("sv", e.get("v")) for e in plain["e"]}
        rows.append({"time": plain["bt"] / 1000, **{n: v if n == "source" else float(v) for n, v in values.items()}})
    if devices:
        names = list(dict.fromkeys(row["source"] for row in rows))[:devices]
        rows = [row | {"source": names[at % devices]} for at, row in enumerate(rows)]
    return rows


def flow_run(plain: dict[str, Any], fusion: Fusion) -> FlowRun:
    return FlowRun(from_plain(plain, REGISTRY), REGISTRY, 1, 1, Progress(Position()), fusion)


def feed(made: FlowRun, first: int, last: int, devices: int, size: int = 50) -> list[Message]:
    """What the flow publishes when rows `first` to `last` of the trace are fed by batches of `size`."""
    payloads = [line.partition(b",")[2] for line in lines(last)]
    topics = [f"city/{row['source']}/sense" for row in packs(last, devices)]
    messages: list[Message] = []
    for at in range(first, last, size):
        now = Now(at / 100, WALL + at / 100)
        raw = RawBatch(topics[at : at + size], payloads[at : at + size], now.monotonic, now.wall, 1)
        messages += named(turns(made, raw, now))
    return messages


def turns(made: FlowRun, raw: RawBatch, now: Now) -> list[Message]:
    """What the flow publishes of one batch."""
    messages: list[Message] = []
    ((_, (source,)),) = made.sources()
    source.queue.put(Entry(0, raw))
    for instance in made.all:
        turn = instance.run(instance.queue.take_all(), now)
        assert turn.failed is None
        messages += named(turn.messages)
        for target, batch in turn.out:
            target.instance.queue.put(Entry(target.source, batch))
    return messages


def end(made: FlowRun) -> list[Message]:
    messages: list[Message] = []
    for _, sent in run_out(made, Now(1e3, WALL + 1e3)):
        messages.extend(named(sent))
    return messages


def run(plain: dict[str, Any], fusion: Fusion, count: int = ROWS, devices: int = 0) -> tuple[list[Message], FlowRun]:
    """All that the flow publishes for the first rows of the trace, its end included."""
    made = flow_run(plain, fusion)
    messages = feed(made, 0, count, devices)
    return messages + end(made), made


def checkpoint(made: FlowRun) -> bytes:
    deltas = {name: place.logic.delta() for name, place in made.stages.items()}
    return pack_state({name: delta for name, delta in deltas.items() if delta is not None})


@pytest.mark.parametrize("application", APPLICATIONS)
def test_an_application_in_copies_is_a_flow(application: str) -> None:
    flow = from_plain(split(application, 3), REGISTRY)
    assert {node.instances for node in flow.nodes.values()} >= {3}
    assert flow.nodes["readings"].instances == 3


@EVERY_FUSION
@pytest.mark.parametrize("application", APPLICATIONS)
def test_restored_from_checkpoints_it_goes_on_as_if_nothing_had_been(application: str, fusion: Fusion) -> None:
    plain = APPLICATIONS[application]()
    devices = 0 if application == "etl" else 20  # of many devices some observations are incomplete when it stops
    straight, _ = run(plain, "full", 700, devices)
    made = flow_run(plain, fusion)
    messages: list[Message] = []
    blobs = []
    for first, last in ((0, 250), (250, 500)):
        messages += feed(made, first, last, devices)
        blobs.append(checkpoint(made))
    for again, more in ((flow_run(plain, "full"), blobs), (flow_run(plain, "none"), [made.compact(blobs)])):
        again.restore(more, b"", Now(5.0, WALL + 5.0))
        rest = feed(again, 500, 700, devices) + end(again)
        assert counted(messages + rest) == counted(straight)


def counted(messages: list[Message]) -> Counter[tuple[str, str]]:
    """Messages by what they say: the order of a row's fields depends on what was fused."""
    return Counter((m.topic, json.dumps(json.loads(m.payload), sort_keys=True)) for m in messages)


def drops(made: FlowRun) -> dict[str, int]:
    return dict(sum((place.logic.drops for place in made.stages.values()), Counter[str]()))


def of_known(rows: list[dict[str, Any]], seen: set[str]) -> list[dict[str, Any]]:
    """Rows that a Bloom filter lets through: those of known devices, and of the few strangers in `seen`."""
    strangers = {row["source"] for row in rows} - set(known_devices())
    assert strangers
    assert len(strangers & seen) <= 3, "false positives, at a rate of 0.01"
    return [row for row in rows if row["source"] not in strangers - seen]


@EVERY_FUSION
@pytest.mark.parametrize("devices", [0, 20])
def test_etl_cleans_fills_and_annotates(fusion: Fusion, devices: int) -> None:
    messages, made = run(APPLICATIONS["etl"](), fusion, devices=devices)
    told = dict(line.split(":") for line in METADATA.read_text().splitlines()) if METADATA.exists() else {}
    last: dict[tuple[str, str], list[float]] = defaultdict(list)
    expected = {}
    absent = filled = 0
    for row in of_known(packs(devices=devices), {message.topic.split("/")[1] for message in messages}):
        source = row["source"]
        out: dict[str, Any] = {}
        for name, (low, high) in RANGES.items():
            values = last[source, name]
            if low <= row[name] <= high:
                values.append(row[name])
                out[name] = row[name]
            elif values:
                out[name] = statistics.fmean(values[-5:])
                filled += 1
            else:
                absent += 1
        if source in known_devices() and told:
            out["place"], out["kind"] = told[source].split(",")
        expected[source, row["time"]] = out
    got = {}
    for message in messages:
        first, *more = json.loads(message.payload)
        source = first["bn"].removesuffix(":")
        assert message.topic == f"etl/{source}/observation"
        got[source, first["bt"]] = {r["n"]: r.get("v", r.get("vs")) for r in (first, *more) if "n" in r}
    assert len(messages) == len(got) == len(expected)
    assert {at: set(out) for at, out in got.items()} == {at: set(out) for at, out in expected.items()}
    for at, out in expected.items():
        assert got[at] == {n: pytest.approx(v) if isinstance(v, float) else v for n, v in out.items()}, at
    assert (filled if devices else absent) > 0, "the trace does not show what is tested here"
    assert drops(made) == ({"absent (values)": absent} if absent else {})


@EVERY_FUSION
def test_stats_follows_estimates_and_counts(fusion: Fusion) -> None:
    messages, made = run(APPLICATIONS["stats"](), fusion, devices=20)
    by_topic: dict[str, list[Any]] = defaultdict(list)
    for message in messages:
        by_topic[message.topic].append(json.loads(message.payload))
    rows = of_known(packs(devices=20), {topic.split("/")[1] for topic in by_topic if topic.endswith("trend")})
    assert len(messages) == 3 * len(rows)
    by_source: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        by_source[row["source"]].append(row)
    assert min(map(len, by_source.values())) >= 30
    for source, own in by_source.items():
        estimates = kalman([row["temperature"] for row in own])
        trend = by_topic[f"stats/{source}/trend"]
        assert [r["estimate"] for r in trend] == pytest.approx(estimates)
        assert [r.get("ahead") for r in trend] == [pytest.approx(line(estimates[: n + 1])) for n in range(len(own))]
        seen: Counter[float] = Counter()
        for row, r in zip(own, by_topic[f"stats/{source}/moment"], strict=True):
            seen[row["airquality_raw"]] += 1
            true = sum(n * n for n in seen.values())
            assert abs(r["moment"] - true) <= 4 * math.sqrt(2 / 64) * true
    counts = [len({row["source"] for row in rows[: n + 1]}) for n in range(len(rows))]
    got = [r["distinct"] for r in by_topic["stats/devices"]]
    assert got == [pytest.approx(count, rel=4 * 0.0325, abs=1) for count in counts]
    assert drops(made) == {}


def kalman(values: list[float]) -> list[float]:
    estimates: list[float] = []
    error = 30.0
    for value in values:
        if estimates:
            error += 0.125
            gain = error / (error + 0.32)
            estimates.append(estimates[-1] + gain * (value - estimates[-1]))
            error *= 1 - gain
        else:
            estimates.append(value)
    return estimates


def line(values: list[float]) -> float | None:
    if len(values) < 10:
        return None
    slope, intercept = statistics.linear_regression(range(10), values[-10:])
    return intercept + slope * 19


def predictions(rows: list[dict[str, Any]], size: int) -> list[tuple[str, dict[str, Any]]]:
    """What PRED tells of rows that come `size` at a time: all of a batch meet the mean that was there before it."""
    blocks: dict[str, list[float]] = defaultdict(list)
    told = []
    for first in range(0, len(rows), size):
        batch = rows[first : first + size]
        for row in batch:
            source, temperature, humidity = row["source"], row["temperature"], row["humidity"]
            head = {"time": row["time"], "source": source}
            grade = "GOOD" if temperature <= 24 else "AVERAGE" if humidity <= 60 else "BAD"
            told.append((f"pred/{source}/class", {**head, "class": grade}))
            predicted = 22.0 + 0.12 * temperature - 0.03 * humidity + 0.002 * row["dust"]
            whole = len(blocks[source]) // 10 * 10
            error = abs(predicted / statistics.fmean(blocks[source][whole - 10 : whole]) - 1) if whole else None
            told.append((f"pred/{source}/error", {**head, "predicted": predicted, "error": error}))
        for row in batch:
            blocks[row["source"]].append(row["airquality_raw"])
    return told


def sorted_by_topic(messages: Iterable[tuple[str, bytes]]) -> list[tuple[str, bytes]]:
    """Those of a topic keep their order."""
    return sorted(messages, key=lambda told: told[0])


def same(messages: Iterable[tuple[str, bytes]], expected: list[tuple[str, dict[str, Any]]]) -> None:
    """Topic by topic, in order."""
    got = [(topic, json.loads(payload)) for topic, payload in sorted_by_topic(messages)]
    for (topic, row), (to, other) in zip(got, sorted(expected, key=lambda told: told[0]), strict=True):
        assert topic == to
        assert row == {n: pytest.approx(v) if isinstance(v, float) else v for n, v in other.items()}


@EVERY_FUSION
@pytest.mark.parametrize("size", [100, 40, 5])
def test_pred_classifies_predicts_and_tells_by_how_much_the_newest_mean_differs(fusion: Fusion, size: int) -> None:
    """`size`: as the benchmark feeds it."""
    made = flow_run(pred(), fusion)
    messages = feed(made, 0, ROWS, 7, size) + end(made)
    rows = packs(devices=7)
    expected = predictions(rows, size)
    same([(m.topic, m.payload) for m in messages], expected)
    assert len({row["class"] for topic, row in expected if topic.endswith("class")}) > 1
    incomplete = sum(count % 10 for count in Counter(row["source"] for row in rows).values())
    assert drops(made) == {"incomplete window": incomplete}


@pytest.mark.parametrize("size", [100, 40, 5])
def test_pred_by_hand_sends_byte_by_byte_what_the_engine_sends(size: int) -> None:
    """The whole trace four times over, as the benchmark feeds it: its times go back when it begins anew."""
    payloads = [line.partition(b",")[2] for line in lines(1_000)] * 4
    topics = [f"city/{row['source']}/sense" for row in packs(1_000, 50)] * 4
    assert len(payloads) == 4_000
    made = flow_run(pred(), "full")
    by_engine: list[Message] = []
    told: list[tuple[str, bytes]] = []
    step = by_hand.pred(told.extend)
    for at in range(0, len(payloads), size):
        batch = RawBatch(topics[at : at + size], payloads[at : at + size], 0.0, WALL, 1)
        by_engine += turns(made, batch, Now(0.0, WALL))
        step(batch)
    by_engine += end(made)
    assert sorted_by_topic(told) == sorted_by_topic((m.topic, m.payload) for m in by_engine)
    errors = [payload for topic, payload in told if topic.endswith("error")]
    assert 2_000 < sum(b"null" not in payload for payload in errors) < len(errors) == len(told) / 2


@EVERY_FUSION
def test_train_gives_models_that_pred_takes(fusion: Fusion) -> None:
    numpy = pytest.importorskip("numpy")
    messages, made = run(train(), fusion, 1_000)
    rows = valid(packs(1_000))
    assert 2 * TRAINED > len(rows) > TRAINED
    rows = rows[:TRAINED]
    fields = list(REGRESSION["coefficients"])
    by_topic = {message.topic: message for message in messages}
    assert len(by_topic) == len(messages) == 3
    model = json.loads(by_topic["models/air-quality"].payload)
    assert by_topic["models/air-quality"].retain
    inputs = numpy.array([[1.0, *(row[name] for name in fields)] for row in rows])
    target = numpy.array([row["airquality_raw"] for row in rows])
    (intercept, *coefficients), *_ = numpy.linalg.lstsq(inputs, target, rcond=None)
    assert model["intercept"] == pytest.approx(intercept)
    assert model["coefficients"] == pytest.approx(dict(zip(fields, coefficients, strict=True)))
    left = inputs @ numpy.array([intercept, *coefficients]) - target
    assert model["about"]["rmse"] == pytest.approx(math.sqrt(float(numpy.mean(left**2))))
    told = json.loads(by_topic["train/air-quality"].payload)
    assert told["spread"] == pytest.approx(statistics.variance(target.tolist()))
    for name in RANGES:
        assert told[f"mean_{name}"] == pytest.approx(statistics.fmean(row[name] for row in rows))
    assert drops(made) == {"incomplete window": 1_000 - 11 - TRAINED}
    # and PRED predicts by it
    expected = [intercept + sum(c * row[name] for c, name in zip(coefficients, fields, strict=True)) for row in rows]
    assert predicted("regress", model, rows) == pytest.approx(expected)


def predicted(operator: str, model: dict[str, Any], rows: list[dict[str, Any]]) -> list[Any]:
    """By PRED's operator, when the model has come by a message."""
    made = flow_run(pred(), "none").stages[operator].logic
    assert isinstance(made, Chain)
    made.predictions.offer(operator, made.predictions.checked_untrusted(operator, model))
    made.renew()
    output = made.predictions.nodes[operator].parameters["output"]
    return [row[output] for row in made._chain.apply(rows)[0]]


def valid(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [r for r in rows if all(low <= r[name] <= high for name, (low, high) in RANGES.items())]


def air_class(row: dict[str, Any]) -> str:
    return (
        "BAD"
        if (air := row["airquality_raw"]) < 10
        else "GOOD"
        if air < 15
        else "VERYGOOD"
        if air < 20
        else "EXCELLENT"
    )


@cache
def tree_by_hand() -> dict[str, Any]:
    """Of the first rows, by trying all splits."""
    rows = valid(packs(1_000))[:TRAINED]
    classes = list(dict.fromkeys(map(air_class, rows)))
    labelled = [((row["temperature"], row["humidity"]), classes.index(air_class(row))) for row in rows]
    return tried(labelled, CLASSIFIED_BY, classes, 3, 5)


@EVERY_FUSION
def test_train_gives_trees_that_pred_takes(fusion: Fusion) -> None:
    messages, _ = run(train(), fusion, 1_000)
    (message,) = [message for message in messages if message.topic == "models/air-class"]
    assert message.retain
    model = json.loads(message.payload)
    assert model["tree"] == tree_by_hand()
    rows = valid(packs(1_000))[:TRAINED]
    right = sum(map(str.__eq__, predicted("classify", model, rows), map(air_class, rows)))
    most = max(Counter(map(air_class, rows)).values())
    assert right > most, "better than to tell always the same"
    assert model["about"] == {
        "target": "class",
        "rows": TRAINED,
        "until": rows[-1]["time"],
        "accuracy": right / TRAINED,
    }


@pytest.mark.skipif(not CLASSES.exists(), reason=f"RIoTBench's classes are not there: {CLASSES}")
def test_classes_of_the_air_are_those_of_riotbench() -> None:
    lines = [line.split(":") for line in CLASSES.read_text(encoding="utf-8").split()]
    assert [(int(bound), name) for bound, name in lines] == list(AIR_CLASSES)
