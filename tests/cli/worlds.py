"""Documents, figures and tables of flows for the commands."""

from __future__ import annotations

from typing import Any

DOCUMENT = """
name = "city-air"
[operators.readings]
type = "mqtt_source"
topic = "city/{source}/sense"
[operators.valid]
type = "filter"
input = "readings"
where = "temperature > -40 and humidity >= 0"
[operators.kelvin]
type = "map"
input = "valid"
set = { kelvin = "temperature + 273.15" }
[operators.by_place]
type = "key_by"
input = "kelvin"
keys = ["source"]
[operators.minute]
type = "tumbling_window"
input = "by_place"
size_s = 60
aggregates = { n = "count()", mean_k = "mean(kelvin)" }
[operators.central]
type = "ship"
input = "minute"
[operators.again]
type = "publish"
input = "minute"
topic = "minutes/{source}"
"""
SPLIT = DOCUMENT.replace('topic = "city/{source}/sense"\n', 'topic = "city/{source}/sense"\ninstances = 2\n').replace(
    "size_s = 60\n", "size_s = 60\ninstances = 3\n"
)


CHAINS = ("--fusion", "chains")


def rows(told: str) -> dict[str, list[str]]:
    """The table's lines by policy."""
    return {line.split()[0]: line.split()[1:] for line in told.splitlines() if line.split()[:1] and line[0] != " "}


INSTANCE: dict[str, Any] = {
    "slot": -1, "pid": 7, "operators": ["readings"], "kind": "source", "rows_in": 1000, "rows_out": 1000, "turns": 10,
    "busy_s": 0.1, "queued_s": 0.0, "scheduling_s": 0.0, "idle_s": 1.0, "queue_rows": 0, "queue_bytes": 0,
    "head_age_s": 0.0, "at": 10.0,
}  # fmt: skip
FIGURES: dict[str, Any] = {
    "gateway": "g1", "wall": 1e9, "monotonic": 10.0, "cpu_count": 4,
    "flows": {"air": {
        "version": 2, "plan": 0, "delivery": "exactly-once", "latency_s": 0.004, "edges": [],
        "instances": {"readings": INSTANCE, "minute": {**INSTANCE, "slot": 1, "pid": 8}},
    }},
    "threads": [
        {"pid": 7, "tid": 7, "slot": -1, "role": "loop", "cpu_s": 1.0, "start_ticks": 5},
        {"pid": 8, "tid": 9, "slot": 1, "role": "worker", "cpu_s": 2.0, "start_ticks": 6},
    ],
}  # fmt: skip
