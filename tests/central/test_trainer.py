"""Training by command and on a schedule, as processes; and when a training is due."""

from __future__ import annotations

import datetime as dt
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from edgert.central import models
from edgert.central.models import Registry
from edgert.central.trainer import is_due
from edgert.central.training import parse
from edgert.flow.document import to_toml
from tests.brokers import Broker
from tests.central.test_models import WHEN, version
from tests.central.test_publication import kept
from tests.central.test_train_spark import line, write
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


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "tables"


def central(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "edgert.cli.main", "central", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=400, check=False, env=os.environ)


@pytest.mark.spark
@pytest.mark.integration
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

    broker.stop()
    done = central("train", str(file), *where)
    assert (done.returncode, len(Registry(str(root)).versions("air"))) == (1, 2)
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
    good.write_text(to_toml(DOCUMENT))
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
    assert [v.state for v in Registry(str(root)).versions("air")] == ["published"]
    assert Registry(str(root)).names() == ["air"]
