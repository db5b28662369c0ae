"""Training by command and on a schedule, as processes; and when a training is due."""

from __future__ import annotations

import datetime as dt
import json
import math
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from edgert.central.tables import models
from edgert.central.tables.models import ModelRegistry
from edgert.central.training.document import parse
from edgert.central.training.publication import NotPublished
from edgert.central.training.schedule import TrainingSchedule, is_due, judged
from edgert.central.training.train import TrainingFigures
from edgert.core.errors import EdgertError
from edgert.core.settings.connection import Connection
from edgert.core.toml import to_toml
from tests.brokers import Broker
from tests.central.worlds import WHEN, kept, line, version, write
from tests.integration.rig import ROOT, Process
from tests.waiting import wait_until

DOCUMENT = {
    "name": "air", "kind": "linear_regression", "table": "fleet/air", "label": "y", "features": ["a", "b"],
    "least_rows": 5, "every_s": 60,
}  # fmt: skip


def test_a_training_is_due_by_its_schedule_unless_a_rollback_holds() -> None:
    training = parse(to_toml(DOCUMENT))
    hour = dt.timedelta(hours=1)
    versions = [version(2, models.REJECTED), version(1)]  # trained an hour apart, the second two hours after WHEN
    assert is_due(training, [], WHEN)
    assert not is_due(training, versions, WHEN + 2 * hour)
    assert not is_due(training, versions, WHEN + 2 * hour + dt.timedelta(seconds=59))
    assert is_due(training, versions, WHEN + 2 * hour + dt.timedelta(seconds=60))
    assert not is_due(training, [versions[0], replace(versions[1], pinned=True)], WHEN + 9 * hour)
    assert not is_due(replace(training, every_s=0.0), [], WHEN)
    assert is_due(training, versions, WHEN - dt.timedelta(days=7_300)), "a clock that was ahead holds nothing up"


NUMBERS, CLASSES = (
    replace(version(1), label="y"),
    replace(version(1), label="y", holdout_rmse=None, holdout_accuracy=0.8),
)
ON_COMMON_ROWS, ON_OWN_ROWS, NOT_AT_ALL = "there", "on its own", "cannot be compared"


@pytest.mark.parametrize(
    ("figure", "there", "now", "good", "why"),
    [
        (1.0, (1.0, 1.1), NUMBERS, True, ON_COMMON_ROWS),
        (1.0, (1.0, 0.9), NUMBERS, False, ON_COMMON_ROWS),
        (1.0, (1.0, math.nan), NUMBERS, False, ON_COMMON_ROWS),
        # Other columns: the one in use had 1.5.
        (1.4, None, NUMBERS, True, ON_OWN_ROWS),
        (5.9, None, NUMBERS, False, ON_OWN_ROWS),
        (math.nan, None, NUMBERS, False, ON_OWN_ROWS),
        (0.1, None, replace(NUMBERS, label="z"), False, NOT_AT_ALL),
        (0.1, None, CLASSES, False, NOT_AT_ALL),
        (9.9, None, None, True, "the first version"),
    ],
)
def test_a_model_is_published_only_if_it_was_found_to_be_no_worse(
    figure: float, there: tuple[float, float] | None, now: models.ModelVersion | None, good: bool, why: str
) -> None:
    found = there and tuple(TrainingFigures(10, rmse=rmse) for rmse in there)
    trained: Any = SimpleNamespace(
        training=parse(to_toml(DOCUMENT)), on_holdout=TrainingFigures(10, rmse=figure), compare=lambda _: found
    )
    published, reason = judged(trained, now, now)
    assert published == good
    assert why in reason
    assert f"rmse {figure:g}" in reason


def test_a_version_that_came_meanwhile_and_has_other_columns_is_no_reason_to_publish() -> None:
    trained: Any = SimpleNamespace(
        training=parse(to_toml(DOCUMENT)), on_holdout=TrainingFigures(10, rmse=0.1), compare=lambda _: None
    )
    with pytest.raises(EdgertError, match="came while another was trained"):
        judged(trained, None, NUMBERS)


class Refusing:
    """Takes no model with a name that is in `refused`."""

    def __init__(self, refused: dict[str, Exception]) -> None:
        self.refused = refused
        self.told: list[str] = []

    def publish(self, _registry: ModelRegistry, name: str, _lease: Any) -> list[str]:
        if name in self.refused:
            raise self.refused[name]
        self.told.append(name)
        return []


def test_a_model_that_cannot_be_told_keeps_no_other_untold_and_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    trainer = TrainingSchedule(cast(Any, None), str(tmp_path), [], Connection(), "f")
    for name in "abc":
        ModelRegistry(str(tmp_path)).add(name, lambda _, name=name: version(1, name=name))  # type: ignore[misc]
    broker = Refusing({"a": NotPublished("too large for the broker"), "b": TypeError("a row of somebody else's")})
    monkeypatch.setattr(trainer, "_publication", broker)
    trainer.say()
    assert broker.told == ["c"]
    assert trainer.unsaid.is_set()
    assert "too large for the broker; trying again" in caplog.text
    assert "model b: could not be published" in caplog.text
    broker.refused.clear()
    trainer.say()
    assert broker.told == ["c", "a", "b", "c"]
    assert not trainer.unsaid.is_set()


def test_names_of_models_that_cannot_be_read_are_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = TrainingSchedule(cast(Any, None), str(tmp_path), [], Connection(), "f")
    monkeypatch.setattr(trainer, "_registry", SimpleNamespace())
    trainer.say()
    assert trainer.unsaid.is_set()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "tables"


def central(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "edgert.cli.main", "central", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=400, check=False, env=os.environ)


@pytest.mark.spark
@pytest.mark.integration
@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.xdist_group("spark")
def test_by_command(mosquitto: Callable[..., Broker], tmp_path: Path, root: Path) -> None:
    write(root, [line(at) for at in range(100)])
    file, broker = tmp_path / "air.toml", mosquitto()
    file.write_text(to_toml(DOCUMENT))
    where = ("--root", str(root), "--broker", f"127.0.0.1:{broker.port}", "--fleet", "f")
    done = central("train", str(file), *where)
    assert done.returncode == 0, done.stderr
    assert "model air: version 1 published" in done.stdout
    assert "sent to edgert/v1/f/@models/air" in done.stdout
    (payload,) = kept(broker, "edgert/v1/#").values()
    document = json.loads(payload)
    assert (document["version"], document["about"]["rows"], document["about"]["holdout_rows"]) == (1, 79, 21)

    file.write_text(to_toml({**DOCUMENT, "features": ["a"]}))
    done = central("train", str(file), *where)
    assert done.returncode == 1
    assert "version 2 is not published: rmse" in done.stderr
    assert "Traceback" not in done.stderr
    assert kept(broker, "edgert/v1/#") == {"edgert/v1/f/@models/air": payload}

    file.write_text(to_toml({**DOCUMENT, "label": "a", "features": ["b"]}))
    done = central("train", str(file), *where)
    assert (done.returncode, "so they cannot be compared; --force would" in done.stderr) == (1, True), done.stderr
    done = central("train", str(file), *where, "--force")
    assert (done.returncode, "version 4 published" in done.stdout) == (0, True), done.stderr
    assert json.loads(kept(broker, "edgert/v1/#")["edgert/v1/f/@models/air"])["version"] == 4

    broker.stop()
    done = central("train", str(file), *where)
    assert (done.returncode, len(ModelRegistry(str(root)).versions("air"))) == (1, 4)
    assert f"edgert: no connection to 127.0.0.1:{broker.port}: Connection refused; no model was changed" in done.stderr


@pytest.fixture
def service(tmp_path: Path, root: Path) -> Iterator[Callable[..., Process]]:
    started: list[Process] = []

    def start(broker: Broker, *files: Path) -> Process:
        config = tmp_path / "central.toml"
        config.write_text(to_toml({
            "collector": {"fleet": "f", "table_root": str(root)}, "central": {"port": broker.port},
            "training": {"files": [str(file) for file in files]},
        }))  # fmt: skip
        process = Process(["edgert.cli.main", "central", "run", "--config", str(config)], tmp_path / "run.log")
        process.start()
        started.append(process)
        return process

    yield start
    for process in started:
        if process.running:
            process.kill()


@pytest.mark.spark
@pytest.mark.integration
@pytest.mark.timeout(900)
@pytest.mark.xdist_group("spark")
def test_on_a_schedule(
    mosquitto: Callable[..., Broker], service: Callable[..., Process], tmp_path: Path, root: Path
) -> None:
    """A bad document costs the good one nothing, and a broker that lost all is told again."""
    write(root, [line(at) for at in range(100)])
    good, bad, broker = tmp_path / "air.toml", tmp_path / "bad.toml", mosquitto()
    good.write_text(to_toml({**DOCUMENT, "every_s": 3600}))  # once, however slow the machine
    bad.write_text(to_toml({**DOCUMENT, "name": "bad", "label": "nosuch"}))
    by_hand = tmp_path / "by-hand.toml"
    by_hand.write_text(to_toml({key: value for key, value in DOCUMENT.items() if key != "every_s"}))
    process = service(broker, tmp_path / "gone.toml", bad, by_hand, good)
    topic = "edgert/v1/f/@models/air"
    wait_until(lambda: topic in kept(broker, "edgert/v1/#"), f"the model; log: {process.text()}", 400)
    broker.restart()  # it keeps nothing
    wait_until(lambda: topic in kept(broker, "edgert/v1/#"), f"the model again; log: {process.text()}", 200)
    assert process.terminate(200) == 0
    log = process.text()
    assert "gone.toml: expected a readable file" in log
    assert "bad.toml: training bad: 1 error" in log
    assert "by-hand.toml: expected every_s in a document of training.files" in log
    assert "model air: version 1 is published" in log
    assert "Traceback" not in log
    assert [v.state for v in ModelRegistry(str(root)).versions("air")] == ["published"]
    assert ModelRegistry(str(root)).names() == ["air"]
