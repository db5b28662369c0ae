"""Models go back to the gateways: trained with real Spark on a fleet table, published by a real broker, used by a flow
of a real gateway daemon; and what that flow says is what MLlib says."""

from __future__ import annotations

import datetime as dt
import json
import math
import queue
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from edgert.central.tables.models import ModelRegistry
from edgert.central.training.document import parse
from edgert.central.training.mllib import PREDICTION
from edgert.central.training.publication import Publication
from edgert.central.training.schedule import TrainingOutcome, train_and_publish
from edgert.cli.main import main
from edgert.core.settings.connection import Connection
from tests.brokers import Broker
from tests.examples import examples
from tests.integration.rig import FLEET, Gateway, Rig

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [
    pytest.mark.spark, pytest.mark.integration, pytest.mark.timeout(900), pytest.mark.xdist_group("spark"),
]  # fmt: skip
START = dt.datetime(2026, 3, 1, tzinfo=dt.UTC)
FEATURES = ("temperature", "humidity", "wind")
ROWS = examples(2_000, 10_000)


@pytest.fixture
def rig(tmp_path: Path, mosquitto: Callable[..., Broker]) -> Iterator[Rig]:
    made = Rig(tmp_path, mosquitto(persistence=True, settings="max_queued_messages 0\nmax_inflight_messages 0"))
    yield made
    made.close()


@pytest.fixture
def publication(rig: Rig) -> Iterator[Publication]:
    made = Publication(Connection(port=rig.broker.port), FLEET)
    made.start()
    made.wait(60.0)
    yield made
    made.close()


def write(rig: Rig, rows: int = 2_000, seed: int = 1) -> None:
    """`fleet/air`: windows of a minute; `ozone` follows from the features, but for some noise, and so does `grade`."""
    rng = random.Random(seed)
    table = []
    for at in range(rows):
        temperature, humidity, wind = rng.uniform(-20, 40), rng.uniform(0, 100), rng.uniform(0, 30)
        ozone = 12.5 + 0.75 * temperature - 0.2 * humidity - 1.1 * wind + rng.gauss(0, 2)
        grade = "BAD" if ozone > 5 else "AVERAGE" if ozone > -20 else "GOOD"
        start = START + dt.timedelta(minutes=at)
        table.append({
            "window_start": start, "temperature": temperature, "humidity": humidity, "wind": wind, "ozone": ozone,
            "grade": grade, "day": start.date(),
        })  # fmt: skip
    uri = str(rig.tables / "fleet" / "air")
    write_deltalake(uri, pa.Table.from_pylist(table), partition_by=["day"], mode="overwrite")


def train(
    spark: SparkSession, rig: Rig, publication: Publication, kind: str, label: str, **more: object
) -> TrainingOutcome:
    lines = [f"{key} = {json.dumps(value)}" for key, value in more.items() if key != "parameters"]
    lines += ["[parameters]", *(f"{k} = {v}" for k, v in dict(more.get("parameters", {})).items())]  # type: ignore[call-overload]
    text = f'name = "air"\nkind = "{kind}"\ntable = "fleet/air"\nlabel = "{label}"\nfeatures = {json.dumps(FEATURES)}\n'
    outcome = train_and_publish(spark, str(rig.tables), parse(text + "\n".join(lines)), publication)
    assert outcome is not None
    return outcome


@contextmanager
def listening(rig: Rig, topic: str) -> Iterator[queue.Queue[bytes]]:
    """What is published there meanwhile; not what the broker had kept."""
    inbox: queue.Queue[bytes] = queue.Queue()
    client = rig.client()
    subscribed: queue.Queue[bool] = queue.Queue()
    client.on_message = lambda _c, _d, message: None if message.retain else inbox.put(bytes(message.payload))
    client.on_subscribe = lambda *_: subscribed.put(True)
    client.subscribe(topic, 1)
    subscribed.get(timeout=60)
    yield inbox
    client.disconnect()
    client.loop_stop()


def flow(fields: Sequence[str] = FEATURES) -> dict[str, Any]:
    return {
        "name": "guesses",
        "operators": {
            "in": {"type": "mqtt_source", "topic": "in/{source}", "codec": "json"},
            "guess": {"type": "predict", "input": "in", "model": "air", "fields": list(fields), "output": "expected"},
            "tell": {"type": "publish", "input": "guess", "topic": "told", "codec": "json"},
        },
    }


def ready(rig: Rig) -> Gateway:
    gateway = rig.gateway()
    gateway.start_ready()
    gateway.wait(lambda s: s["central"]["connected"], "the control connection")
    assert rig.deploy(gateway, flow())["accepted"]
    return gateway


def predictions(rig: Rig, rows: Sequence[Sequence[float]]) -> list[Any]:
    """What the flow says to rows of the features, in their order."""
    with listening(rig, "told") as told:
        rig.publish(
            ("in/s", json.dumps({"n": n, **dict(zip(FEATURES, row, strict=True))}).encode())
            for n, row in enumerate(rows)
        )
        said: dict[int, Any] = {}
        while len(said) < len(rows):
            row = json.loads(told.get(timeout=60))
            said[row["n"]] = row["expected"]
    return [said[n] for n in range(len(rows))]


def mllib_says(spark: SparkSession, outcome: TrainingOutcome, rows: Sequence[Sequence[float]]) -> list[Any]:
    frame = spark.createDataFrame(
        [(n, *map(float, row)) for n, row in enumerate(rows)], "n long, f0 double, f1 double, f2 double"
    )
    told = outcome.trained.fitted.transform(frame).select("n", PREDICTION).collect()
    by_number = {row["n"]: row[PREDICTION] for row in told}
    return [by_number[n] for n in range(len(rows))]


def questions(document: dict[str, Any]) -> list[list[float]]:
    """Rows of the features: anything, integers, and values at a threshold and next to it on both sides."""
    rng = random.Random(2)
    edges: dict[str, list[float]] = {name: [0.0] for name in FEATURES}

    def look(node: dict[str, Any]) -> None:
        if "field" in node:
            t = node["threshold"]
            edges[node["field"]] += [t, math.nextafter(t, math.inf), math.nextafter(t, -math.inf)]
            look(node["at_most"])
            look(node["above"])

    look(document.get("tree", {}))
    choices = (
        lambda name: rng.choice(edges[name]),
        lambda name: rng.uniform(-50, 120),
        lambda name: rng.randint(-50, 120),
    )
    return [[rng.choice(choices)(name) for name in FEATURES] for _ in range(ROWS)]


@pytest.mark.parametrize(
    ("kind", "label", "parameters"),
    [
        # in short in the test of a worse model, below
        pytest.param("linear_regression", "ozone", {"regularization": 0.1, "elastic_net": 0.5}, marks=pytest.mark.long),
        pytest.param("decision_tree", "ozone", {"max_depth": 7}, marks=pytest.mark.long),
        ("decision_tree", "grade", {"max_depth": 6}),
    ],
)
def test_a_running_flow_says_what_mllib_says(
    spark: SparkSession, rig: Rig, publication: Publication, kind: str, label: str, parameters: dict[str, float]
) -> None:
    write(rig)
    gateway = ready(rig)
    assert predictions(rig, [[1.0, 2.0, 3.0]]) == [None], "no model yet"
    with listening(rig, f"edgert/v1/{FLEET}/{gateway.name}/models/air/state") as answers:
        outcome = train(spark, rig, publication, kind, label, parameters=parameters)
        answer = json.loads(answers.get(timeout=60))
    assert (answer["accepted"], answer["version"], answer["operators"]) == (True, 1, ["guesses/guess"])
    assert outcome.topics == [f"edgert/v1/{FLEET}/@models/air"]
    rows = questions(json.loads(outcome.version.document))
    ours, theirs = predictions(rig, rows), mllib_says(spark, outcome, rows)
    assert len(set(ours)) > (2 if kind == "decision_tree" else ROWS / 2)
    if kind == "linear_regression":
        assert max(abs(a - b) for a, b in zip(ours, theirs, strict=True)) <= 1e-9
    else:
        assert ours == theirs


def test_a_worse_model_stays_away_a_rollback_brings_the_older_one_and_who_was_away_gets_it(
    spark: SparkSession, rig: Rig, publication: Publication, capsys: pytest.CaptureFixture[str]
) -> None:
    write(rig)
    gateway = ready(rig)
    rows = [[t, 50.0, 5.0] for t in range(-20, 40, 3)]
    with listening(rig, f"edgert/v1/{FLEET}/{gateway.name}/models/air/state") as answers:
        first = train(spark, rig, publication, "decision_tree", "ozone", parameters={"max_depth": 3})
        assert json.loads(answers.get(timeout=60))["version"] == 1
        assert predictions(rig, rows) == mllib_says(spark, first, rows)

        worse = train(spark, rig, publication, "decision_tree", "ozone", parameters={"max_depth": 1})
        assert (worse.version.state, worse.topics) == ("rejected", [])
        assert "version 1 has" in worse.version.reason

        assert gateway.terminate() == 0
        better = train(spark, rig, publication, "linear_regression", "ozone")
        assert (better.version.version, better.version.state) == (3, "published")
        gateway.start_ready()
        assert json.loads(answers.get(timeout=60))["version"] == 3
        assert predictions(rig, rows) == pytest.approx(mllib_says(spark, better, rows), abs=1e-9)

        root, broker = str(rig.tables), f"127.0.0.1:{rig.broker.port}"
        assert main(["central", "rollback", "air", "--root", root, "--broker", broker, "--fleet", FLEET]) == 0
        assert json.loads(answers.get(timeout=60))["version"] == 1
        assert predictions(rig, rows) == mllib_says(spark, first, rows)
    states = {v.version: (v.state, v.pinned) for v in ModelRegistry(root).versions("air")}
    assert states == {1: ("published", True), 2: ("rejected", False), 3: ("rolled back", False)}
    assert main(["central", "models", "--root", root]) == 0
    assert "rolled back" in capsys.readouterr().out
