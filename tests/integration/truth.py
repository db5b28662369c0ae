"""What the tables must hold, computed in plain Python from the messages themselves."""

from __future__ import annotations

import json
import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.integration.rig import Message

DATA = Path(__file__).parents[3] / "shared" / "data" / "riotbench" / "SYS_sample_data_senml.csv"
VALID = (-12.5, 43.1)
"""Validity range of the temperature in RIoTBench."""


def packs() -> list[dict[str, Any]]:
    """The 1,000 real packs of the Sense-your-City stream; skips where the data is missing."""
    if not DATA.exists():
        pytest.skip(f"the RIoTBench trace is not at {DATA}")
    return [json.loads(line.split(",", 1)[1]) for line in DATA.read_text().splitlines()]


def fields(pack: Mapping[str, Any]) -> dict[str, Any]:
    return {e["n"]: e["sv"] if "sv" in e else float(e["v"]) for e in pack["e"]}


def as_messages(some: Iterable[Mapping[str, Any]]) -> list[Message]:
    return [(f"city/{fields(p)['source']}/sense", json.dumps(p).encode()) for p in some]


def shifted(some: Iterable[Mapping[str, Any]], seconds: int) -> list[dict[str, Any]]:
    """The same packs that many seconds later."""
    return [{**p, "bt": p["bt"] + 1000 * seconds} for p in some]


def document(name: str = "city-air", size_s: float = 10.0, interval_s: float = 1.0, **source: Any) -> dict[str, Any]:
    """The flow of these tests: range filter, keyed tumbling window with every aggregate, ship."""
    return {
        "name": name,
        "checkpoint": {"interval_s": interval_s},
        "operators": {
            "readings": {"type": "mqtt_source", "topic": "city/{source}/sense", "codec": "senml", **source},
            "valid": {
                "type": "filter",
                "input": "readings",
                "where": f"temperature >= {VALID[0]} and temperature <= {VALID[1]}",
            },
            "by-sensor": {"type": "key_by", "input": "valid", "keys": ["source"]},
            "window": {
                "type": "tumbling_window",
                "input": "by-sensor",
                "size_s": size_s,
                "late": "ship",
                "aggregates": {
                    "n": "count()",
                    "total": "sum(temperature)",
                    "average": "mean(temperature)",
                    "spread": "variance(temperature)",
                    "low": "min(temperature)",
                    "high": "max(temperature)",
                    "dust": "mean(dust)",
                },
            },
            "central": {"type": "ship", "input": "window"},
        },
    }


def expected(some: Iterable[Mapping[str, Any]], size_s: float = 10.0) -> dict[tuple[float, str], dict[str, Any]]:
    """(window start, source) → the fleet row."""
    groups: dict[tuple[float, str], list[dict[str, Any]]] = defaultdict(list)
    for pack in some:
        row = fields(pack)
        if VALID[0] <= row["temperature"] <= VALID[1]:
            groups[pack["bt"] / 1000 // size_s * size_s, row["source"]].append(row)
    return {key: _aggregates([r["temperature"] for r in g], [r["dust"] for r in g]) for key, g in groups.items()}


def _aggregates(values: Sequence[float], dust: Sequence[float]) -> dict[str, Any]:
    return {
        "n": len(values),
        "total": math.fsum(values),
        "average": math.fsum(values) / len(values),
        "spread": statistics.variance(values) if len(values) > 1 else None,
        "low": min(values),
        "high": max(values),
        "dust": math.fsum(dust) / len(dust),
    }


def assert_equal(rows: Sequence[Mapping[str, Any]], truth: Mapping[tuple[float, str], Mapping[str, Any]]) -> None:
    """Keys, windows, counts, minima and maxima exactly; sums and means to 1e-9 relative."""
    found = {(r["window_start"].timestamp(), r["source"]): r for r in rows}
    assert len(found) == len(rows), "a window stands twice in the table"
    assert set(found) == set(truth)
    wrong = []
    for key, want in truth.items():
        got = found[key]
        exact = all(got[name] == want[name] for name in ("n", "low", "high"))
        close = all(math.isclose(got[name], want[name], rel_tol=1e-9) for name in ("total", "average", "dust"))
        spread = got["spread"] is None if want["spread"] is None else math.isclose(
            got["spread"], want["spread"], rel_tol=1e-6, abs_tol=1e-9
        )  # fmt: skip
        if not (exact and close and spread):
            wrong.append((key, want, dict(got)))
    assert not wrong, f"{len(wrong)} of {len(truth)} windows are wrong, the first: {wrong[0]}"
