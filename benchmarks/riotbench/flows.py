"""RIoTBench's applications as flows (Shukla, Chaturvedi, Simmhan 2017; EdgeWise, figure 6)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Final

from benchmarks.ingest.trace import RANGES, TRACE, messages

TREE: Final[dict[str, Any]] = {
    "kind": "decision_tree",
    "tree": {
        "field": "temperature",
        "threshold": 24.0,
        "at_most": {"value": "GOOD"},
        "above": {
            "field": "humidity",
            "threshold": 60.0,
            "at_most": {"value": "AVERAGE"},
            "above": {"value": "BAD"},
        },
    },
}
"""Two splits."""
CLASSIFIED_BY: Final = ("temperature", "humidity")
REGRESSION: Final[dict[str, Any]] = {
    "kind": "linear_regression",
    "intercept": 22.0,
    "coefficients": {"temperature": 0.12, "humidity": -0.03, "dust": 0.002},
}
"""Three inputs."""
WINDOW: Final = 10
"""Rows of the block average."""
BLOOM: Final[dict[str, Any]] = {"mode": "known", "false_positive_rate": 0.01}
STRANGER: Final = 10
"""Every so manieth device is not in the list."""
TRAINED: Final = 500
"""Rows of a model."""
AIR_CLASSES: Final = ((5, "BAD"), (10, "GOOD"), (15, "VERYGOOD"), (20, "EXCELLENT"))
"""From which air quality on it is called so: RIoTBench's SYS-airquality-class.txt, which does not say how it is meant.
Read so, each class has rows of the trace, and what is below the first is of the first, too."""
METADATA: Final = TRACE.with_name("city-metadata.txt")


@cache
def known_devices() -> tuple[str, ...]:
    """The devices of the trace, but for some."""
    sources = dict.fromkeys(message.topic.split("/")[1] for message in messages()[0])
    return tuple(source for at, source in enumerate(sources) if (at + 1) % STRANGER)


@cache
def notes_of_devices() -> dict[str, dict[str, str]]:
    """RIoTBench's two annotations of each device, or some like them where they are missing."""
    told = {}
    if METADATA.exists():
        for line in METADATA.read_text(encoding="utf-8").splitlines():
            source, _, words = line.partition(":")
            told[source] = words
    notes = {}
    for at, source in enumerate(known_devices()):
        place, _, kind = told.get(source, f"building{at % 9},analog").partition(",")
        notes[source] = {"place": place, "kind": kind}
    return notes


def pred() -> dict[str, Any]:
    """PRED: parse → {decision tree, linear regression → error estimate ← block-window average} → publish."""
    return {
        "name": "pred",
        "operators": {
            "readings": {"type": "mqtt_source", "topic": "city/{source}/sense", "codec": "senml", "qos": 0},
            "classify": {
                "type": "predict",
                "input": "readings",
                "model": "air-class",
                "fields": list(CLASSIFIED_BY),
                "output": "class",
                "initial": TREE,
            },
            "regress": {
                "type": "predict",
                "input": "readings",
                "model": "air-quality",
                "fields": ["temperature", "humidity", "dust"],
                "output": "predicted",
                "initial": REGRESSION,
            },
            "by_sensor": {"type": "key_by", "input": "readings", "keys": ["source"]},
            "average": {
                "type": "count_window",
                "input": "by_sensor",
                "size": WINDOW,
                "aggregates": {"mean_air": "mean(airquality_raw)"},
            },
            "beside": {"type": "join_latest", "inputs": ["regress", "average"], "fields": ["mean_air"]},
            "error": {
                "type": "map",
                "input": "beside",
                "set": {"error": "abs(predicted - mean_air) / mean_air"},
            },
            "brief_class": {"type": "select", "input": "classify", "fields": ["class"]},
            "brief_error": {"type": "select", "input": "error", "fields": ["predicted", "error"]},
            "classes": {"type": "publish", "input": "brief_class", "topic": "pred/{source}/class", "qos": 0},
            "errors": {"type": "publish", "input": "brief_error", "topic": "pred/{source}/error", "qos": 0},
        },
    }


def etl() -> dict[str, Any]:
    """ETL: parse → range filter → Bloom filter → interpolation → join → annotate → to SenML → publish.

    As in RIoTBench each measurement goes through the interpolation by itself, and the join makes one row of them again.
    """
    valid = {name: f"if({low} <= {name} <= {high}, {name}, null)" for name, (low, high) in RANGES.items()}
    operators: dict[str, Any] = {
        "readings": {"type": "mqtt_source", "topic": "city/{source}/sense", "codec": "senml", "qos": 0},
        "valid": {"type": "map", "input": "readings", "set": valid},
        "known": {"type": "bloom_filter", "input": "valid", "values": list(known_devices()), **BLOOM},
        "by_sensor": {"type": "key_by", "input": "known", "keys": ["source"]},
    }
    for name in RANGES:
        operators[f"only_{name}"] = {"type": "select", "input": "by_sensor", "fields": [name]}
        operators[f"filled_{name}"] = {"type": "interpolate", "input": f"only_{name}", "field": name, "window": 5}
    operators |= {
        "joined": {
            "type": "join_observations",
            "inputs": [f"filled_{name}" for name in RANGES],
            "fields": list(RANGES),
            "timeout_s": 10.0,
        },
        "noted": {"type": "annotate", "input": "joined", "table": notes_of_devices()},
        "tell": {
            "type": "publish", "input": "noted", "topic": "etl/{source}/observation", "codec": "senml", "qos": 0,
        },
    }  # fmt: skip
    return {"name": "etl", "operators": operators}


def stats() -> dict[str, Any]:
    """STATS: parse → Bloom filter → {Kalman → sliding linear regression, second-order moment, approximate distinct
    count} → publish."""
    return {
        "name": "stats",
        "operators": {
            "readings": {"type": "mqtt_source", "topic": "city/{source}/sense", "codec": "senml", "qos": 0},
            "known": {"type": "bloom_filter", "input": "readings", "values": list(known_devices()), **BLOOM},
            "by_sensor": {"type": "key_by", "input": "known", "keys": ["source"]},
            "smooth": {"type": "kalman", "input": "by_sensor", "field": "temperature"},
            "by_sensor_still": {"type": "key_by", "input": "smooth", "keys": ["source"]},
            "ahead": {
                "type": "sliding_regression",
                "input": "by_sensor_still",
                "field": "estimate",
                "window": 10,
                "ahead": 10,
            },
            "moment": {"type": "second_moment", "input": "by_sensor", "field": "airquality_raw"},
            "distinct": {"type": "distinct_count", "input": "known", "field": "source"},
            "brief_ahead": {"type": "select", "input": "ahead", "fields": ["estimate", "ahead"]},
            "brief_moment": {"type": "select", "input": "moment", "fields": ["moment"]},
            "brief_distinct": {"type": "select", "input": "distinct", "fields": ["distinct"]},
            "trends": {"type": "publish", "input": "brief_ahead", "topic": "stats/{source}/trend", "qos": 0},
            "moments": {"type": "publish", "input": "brief_moment", "topic": "stats/{source}/moment", "qos": 0},
            "devices": {"type": "publish", "input": "brief_distinct", "topic": "stats/devices", "qos": 0},
        },
    }  # fmt: skip


def train() -> dict[str, Any]:
    """TRAIN, as far as it makes sense at the edge: every so many rows a linear regression and a decision tree are
    fitted and published as models that PRED takes, and statistics of the rows that they were made of.

    RIoTBench wakes by a timer, queries a range of a central table, trains both, stores them and tells others by MQTT.
    Here rows are trained on as they come, and nothing is queried or stored. The classes are those of the air quality,
    told from what PRED's tree looks at.
    """
    valid = " and ".join(f"{low} <= {name} <= {high}" for name, (low, high) in RANGES.items())
    (_, worst), *better = AIR_CLASSES
    air_class = f"'{worst}'"
    for bound, name in better:
        air_class = f"if(airquality_raw < {bound}, {air_class}, '{name}')"
    means = {f"mean_{name}": f"mean({name})" for name in RANGES}
    return {
        "name": "train",
        "operators": {
            "readings": {"type": "mqtt_source", "topic": "city/{source}/sense", "codec": "senml", "qos": 0},
            "valid": {"type": "filter", "input": "readings", "where": valid},
            "fit": {
                "type": "train_regression",
                "input": "valid",
                "target": "airquality_raw",
                "fields": list(REGRESSION["coefficients"]),
                "size": TRAINED,
            },
            "classify": {"type": "map", "input": "valid", "set": {"class": air_class}},
            "fit_tree": {
                "type": "train_tree",
                "input": "classify",
                "target": "class",
                "fields": list(CLASSIFIED_BY),
                "size": TRAINED,
            },
            "rows": {
                "type": "count_window",
                "input": "valid",
                "size": TRAINED,
                "aggregates": {**means, "spread": "variance(airquality_raw)"},
            },
            "models": {
                "type": "publish", "input": "fit", "topic": "models/air-quality", "payload_field": "model", "qos": 0,
                "retain": True,
            },
            "trees": {
                "type": "publish", "input": "fit_tree", "topic": "models/air-class", "payload_field": "model", "qos": 0,
                "retain": True,
            },
            "told": {"type": "publish", "input": "rows", "topic": "train/air-quality", "qos": 0},
        },
    }  # fmt: skip


APPLICATIONS: Final[Mapping[str, Callable[[], dict[str, Any]]]] = {
    "etl": etl,
    "stats": stats,
    "pred": pred,
    "train": train,
}
BY_TIME: Final = frozenset({"etl"})
"""Those that look at event times: they must go on when the trace begins anew."""


UNDIVIDED: Final = frozenset({"distinct", "fit", "fit_tree", "rows"})
"""Operators that keep one state for all devices."""


def split(application: str, copies: int) -> dict[str, Any]:
    """The application with so many copies of each operator that can have them."""
    plain = APPLICATIONS[application]()
    for name, operator in plain["operators"].items():
        if operator["type"] != "key_by" and name not in UNDIVIDED and copies > 1:
            operator["instances"] = copies
    return plain
