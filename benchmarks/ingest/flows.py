"""What the gateway is given to do: the flow that is measured, and the one that latency is measured with."""

from __future__ import annotations

from typing import Any

from benchmarks.ingest.trace import RANGES

FLOW = "ingest"


def measured(qos: int) -> dict[str, Any]:
    """SenML decode, range filter, keyed 60 s mean of 5 measurements, shipped."""
    valid = " and ".join(f"{name} >= {low} and {name} <= {high}" for name, (low, high) in RANGES.items())
    return {
        "name": FLOW,
        "operators": {
            "readings": {"type": "mqtt_source", "topic": "city/{source}/sense", "codec": "senml", "qos": qos},
            "valid": {"type": "filter", "input": "readings", "where": valid},
            "by_sensor": {"type": "key_by", "input": "valid", "keys": ["source"]},
            "minute": {
                "type": "tumbling_window",
                "input": "by_sensor",
                "size_s": 60.0,
                "aggregates": {f"mean_{name}": f"mean({name})" for name in RANGES},
            },
            "central": {"type": "ship", "input": "minute"},
        },
    }


def probe() -> dict[str, Any]:
    """Publishes again at once what comes in: through the same connection, queues and worker."""
    return {
        "name": "probe",
        "operators": {
            "in": {"type": "mqtt_source", "topic": "probe/in", "codec": "json", "qos": 0},
            "out": {"type": "publish", "input": "in", "topic": "probe/out", "codec": "json", "qos": 0},
        },
    }
