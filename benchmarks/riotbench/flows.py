"""RIoTBench's applications as flows (Shukla, Chaturvedi, Simmhan 2017; EdgeWise, figure 6)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

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
REGRESSION: Final[dict[str, Any]] = {
    "kind": "linear_regression",
    "intercept": 22.0,
    "coefficients": {"temperature": 0.12, "humidity": -0.03, "dust": 0.002},
}
"""Three inputs."""
WINDOW: Final = 10
"""Rows of the block average."""


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
                "fields": ["temperature", "humidity"],
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


APPLICATIONS: Final[Mapping[str, Callable[[], dict[str, Any]]]] = {"pred": pred}
"""Those that are built so far."""
