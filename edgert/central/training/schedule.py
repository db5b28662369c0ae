"""Training by hand and on a schedule: train, compare with the model in use, decide, publish."""

from __future__ import annotations

import datetime as dt
import json
import logging
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from edgert.central.tables import models
from edgert.central.tables.models import PUBLISHED, REJECTED, ModelRegistry, ModelVersion
from edgert.central.training import mllib
from edgert.central.training.document import Training, load
from edgert.central.training.publication import NotPublished, Publication, changing
from edgert.central.training.train import Trained, TrainingFigures, train
from edgert.core.errors import EdgertError
from edgert.core.settings.connection import Connection
from edgert.flow.document import read_untrusted
from edgert.operators.models.models import model_untrusted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger("edgert.central.models")
LOOK_S: Final = 5.0
LONGEST_WAIT_S: Final = 600.0


@dataclass(frozen=True, slots=True)
class TrainingOutcome:
    """Result of a training."""

    version: ModelVersion
    trained: Trained
    """Its rows are no longer kept by Spark."""
    topics: list[str]
    """Where it was published; none if it is rejected."""


def train_and_publish(
    spark: SparkSession, root: str, training: Training, publication: Publication, *, scheduled: bool = False,
    force: bool = False,
) -> TrainingOutcome | None:  # fmt: skip
    """Trains, enters the version into the table, and publishes it if it is as good as the one in use, or with `force`.

    With `scheduled`, None if another was quicker, or if a rollback came meanwhile. Raises `EdgertError`: nothing is in
    the table then, or (`NotPublished`) all but the broker knows.
    """
    registry = ModelRegistry(root)
    before = registry.current(training.name)
    began = _now()
    also = sorted(mllib.fields_of(json.loads(before.document))) if before else []
    trained = train(spark, root, training, began, also)
    try:
        with changing(root, training.name) as lease:
            versions = registry.versions(training.name)
            if scheduled and not is_due(training, versions, began):
                return None
            published, reason = judged(trained, before, models.current(versions))
            if force and not published:
                published, reason = True, f"{reason}; published by --force"
            lease.hold()
            version = registry.add(training.name, lambda known: _version(trained, known, began, published, reason))
            return TrainingOutcome(
                version, trained, publication.publish(registry, training.name, lease) if published else []
            )
    finally:
        trained.close()


def is_due(training: Training, versions: Sequence[ModelVersion], now: dt.datetime) -> bool:
    """True if its schedule says so, and no rollback speaks against it."""
    if not training.every_s or any(v.pinned for v in versions):
        return False
    # One that was trained long after now was so by a clock that was ahead.
    return all(abs((now - v.trained).total_seconds()) >= training.every_s for v in versions)


def judged(trained: Trained, before: ModelVersion | None, now: ModelVersion | None) -> tuple[bool, str]:
    """(whether it is good enough to be published, why). `before`: what was in use when the training began."""
    mine = trained.on_holdout
    told = f"{mine.told} on the holdout"
    if now is None:
        return True, f"{told}; the first version"
    theirs = TrainingFigures(now.holdout_rows, now.holdout_rmse, now.holdout_r2, now.holdout_accuracy)
    if now.label != trained.training.label or (mine.accuracy is None) != (theirs.accuracy is None):
        return False, f"{told}; version {now.version} tells {now.label} by {theirs.told}, so they cannot be compared"
    figures = trained.compare(json.loads(now.document))
    if figures is not None:
        mine, theirs = figures
        told = f"{mine.told} on the holdout, version {now.version} has {theirs.told} there"
    elif before != now:
        raise EdgertError(f"model {now.name}: version {now.version} came while another was trained; train again")
    else:
        # These rows lack what the other looks at. What it was tried on was another holdout, but the same label.
        told = f"{told}, version {now.version} had {theirs.told} on its own and cannot be tried on these columns"
    return mine.at_least_as_good_as(theirs), told


def _version(
    trained: Trained, known: Sequence[ModelVersion], when: dt.datetime, published: bool, reason: str
) -> ModelVersion:
    training, before, after = trained.training, trained.on_training, trained.on_holdout
    number = 1 + max((v.version for v in known), default=0)
    return ModelVersion(
        name=training.name, version=number, state=PUBLISHED if published else REJECTED, reason=reason, pinned=False,
        kind=training.kind, label=training.label, trained=when, since=trained.since, until=trained.until,
        rows=before.rows, holdout_rows=after.rows, left_out=trained.left_out,
        rmse=before.rmse, r2=before.r2, accuracy=before.accuracy,
        holdout_rmse=after.rmse, holdout_r2=after.r2, holdout_accuracy=after.accuracy,
        gateways=",".join(training.gateways), document=_document(trained, number, when),
    )  # fmt: skip


def _document(trained: Trained, number: int, when: dt.datetime) -> str:
    """The JSON form that gateways get. Raises `EdgertError` for one that they would refuse."""
    training, after = trained.training, trained.on_holdout
    quality = {"rmse": after.rmse, "r2": after.r2, "accuracy": after.accuracy}
    about = {
        "label": training.label,
        "trained": _told(when),
        "since": _told(trained.since),
        "until": _told(trained.until),
        "rows": trained.on_training.rows,
        "holdout_rows": after.rows,
        "holdout": {name: value for name, value in quality.items() if value is not None},
        "tables": dict(trained.tables),
    }
    document: dict[str, Any] = {**trained.fitted.document, "version": number, "about": about}
    try:
        text = json.dumps(document, allow_nan=False)
        model_untrusted(read_untrusted(text, format="json", what="model"), frozenset(training.features))
    except (EdgertError, ValueError) as error:
        hint = "a smaller max_depth" if training.kind == "decision_tree" else "other features"
        raise EdgertError(
            f"training {training.name}: expected a model that gateways take, got one that they would refuse; try "
            f"{hint}: {error}"
        ) from error
    return text


class TrainingSchedule:
    """Trains what is due, and keeps the broker to what the table says: a thread beside the fleet job."""

    def __init__(self, spark: SparkSession, root: str, files: Sequence[str], broker: Connection, fleet: str) -> None:
        """`files`: training documents, read anew with each look."""
        self._spark = spark
        self._root = root
        self._registry = ModelRegistry(root)
        self._files = files
        self.unsaid = threading.Event()
        # At each connection: a broker that comes back may have lost what it had.
        self._publication = Publication(broker, fleet, self.unsaid.set)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="training", daemon=True)
        self._failures: dict[str, int] = {}
        self._not_before: dict[str, float] = {}
        self._told: dict[str, str] = {}
        """The last message about a file, so that it is not repeated with every look."""

    def start(self) -> None:
        self._publication.start()
        self._thread.start()

    def close(self, patience_s: float = 30.0) -> None:
        """Ends after the training under way; one that takes longer is given up, and begun anew some other time."""
        self._stopping.set()
        self._thread.join(patience_s)
        if self._thread.is_alive():
            log.warning("a training under way is given up")
        self._publication.close()

    def _run(self) -> None:
        """Runs until it is stopped; no content of a document or a table ends it."""
        while not self._stopping.is_set():
            if self.unsaid.is_set() and self._publication.connected:
                self.say()
            for file in self._files:
                if not self._stopping.is_set() and time.monotonic() >= self._not_before.get(file, 0.0):
                    self._look(file)
            self._stopping.wait(LOOK_S)

    def say(self) -> None:
        """One model that cannot be told keeps no other from it."""
        self.unsaid.clear()
        names: list[str] = []
        with self._tried("the models"):
            names = self._registry.names()
        for name in names:
            with self._tried(f"model {name}"), changing(self._root, name) as lease:
                self._publication.publish(self._registry, name, lease)

    @contextmanager
    def _tried(self, what: str) -> Iterator[None]:
        """Reports an error within; the next look tries again."""
        try:
            yield
        except EdgertError as error:
            log.error("%s; trying again", error)
            self.unsaid.set()
        except Exception:
            log.exception("%s: could not be published; trying again", what)
            self.unsaid.set()

    def _look(self, file: str) -> None:
        try:
            training = load(file)
            if not training.every_s:
                raise EdgertError("expected every_s in a document of training.files, got none: it is never trained")
            if is_due(training, self._registry.versions(training.name), _now()):
                self._train(training)
            # A look reads a table, which may lie far away.
            self._not_before[file] = time.monotonic() + min(LOOK_S * 12, training.every_s / 10)
            self._failures.pop(file, None)
            self._told.pop(file, None)
        except NotPublished as error:
            log.error("%s; trying again", error)
            self.unsaid.set()
        except Exception as error:
            failures = self._failures[file] = self._failures.get(file, 0) + 1
            wait_s = min(LONGEST_WAIT_S, LOOK_S * 2.0 ** min(failures, 20))
            self._not_before[file] = time.monotonic() + wait_s
            if self._told.get(file) != str(error):
                log.error("%s: %s; trying again", file, error, exc_info=not isinstance(error, EdgertError))
            self._told[file] = str(error)

    def _train(self, training: Training) -> None:
        log.info("model %s: training", training.name)
        outcome = train_and_publish(self._spark, self._root, training, self._publication, scheduled=True)
        if outcome is None:
            log.info("model %s: another was quicker", training.name)
        else:
            log.info("model %s: version %d is %s: %s", training.name, outcome.version.version,
                     outcome.version.state, outcome.version.reason)  # fmt: skip


def _now() -> dt.datetime:
    return dt.datetime.now(dt.UTC)


def _told(when: dt.datetime) -> str:
    return when.isoformat(timespec="milliseconds").replace("+00:00", "Z")
