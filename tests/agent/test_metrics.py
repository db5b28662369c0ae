"""The agent's metrics: as Prometheus reads them, and only on request."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from agent.metrics import HEAD, METRICS, MetricsServer, exposition
from edgert.runtime.metrics.metric import markdown

DOCS = Path(__file__).parents[2] / "docs"


def member(name: str, state: str = "alive", own: bool = False) -> dict[str, Any]:
    return {"gateway": name, "state": state, "self": own, "estimated_ms": 2.0, "measured_ms": None if own else 3.0}


STATUS: dict[str, Any] = {
    "members": [member("g1", own=True), member("g2"), member("g3", "dead")],
    "health": 1,
    "local_gateway": {"connected": True},
    "coordinates": {"rounds": 7},
    "counters": {
        "sent_bytes": 10, "received_bytes": 20, "stalls": 0, "refused_connections": 0, "refused_members": 0,
        "drops": {"bad tag": 3, 'odd "reason"\n': 1},
    },
    "replacements": 2,
    "coordination": {"majority": True},
    "moves": {
        "counts": {"made": 3, "refused": 1}, "drained": True, "drain_damaged": False, "changes": {
            "moves": {"person": 2, "drain": 5}, "pause_s": {"person": 0.5}, "bytes": {"person": 10_000},
            "rows_delayed": {"person": 40},
        }, "load": {"cpu": 0.5, "link": 0.1},
        "load_predicted_before": {"cpu": 0.4, "link": 0.1}, "load_predicted": {"cpu": 0.9, "link": 0.2},
    },
    "sched": {
        "policy": "qs", "mechanism": "nice", "periods": 9, "lasted_s": {"action": 0.002, "cpu": 0.005},
        "errors": ["one"],
        "cooperation": {"told_bytes": 80, "boards": {"g2": {"shares": True}, "g3": {"shares": False}}},
        "operators": [
            {
                "driver": "edgert", "operator": "air/in", "priority": 4.0, "nice": 7, "cpu": 0.5, "waited": 0.1,
                "held": 0.2,
            },
            {"driver": "edgert", "operator": "air/out"},
        ],
    },
}  # fmt: skip


def values(text: str) -> dict[tuple[str, ...], float]:
    families = text_string_to_metric_families(text)
    return {(s.name, *s.labels.values()): s.value for family in families for s in family.samples}


def test_prometheus_reads_every_metric() -> None:
    found = values(exposition(STATUS))
    assert {name for name, *_ in found} == {metric.name for metric in METRICS}
    assert found["edgert_agent_members", "alive"] == 2
    assert found["edgert_agent_members", "left"] == 0
    assert found["edgert_agent_gateway_connected",] == 1
    assert found["edgert_agent_rtt_measured_seconds", "g2"] == pytest.approx(0.003)
    assert ("edgert_agent_rtt_measured_seconds", "g3") not in found
    assert found["edgert_agent_moves_total", "refused"] == 1
    assert found["edgert_agent_plan_changes_total", "drain"] == 5
    assert found["edgert_agent_plan_changes_pause_seconds_total", "person"] == 0.5
    assert found["edgert_agent_load_predicted_ratio", "cpu"] == pytest.approx(0.9)
    assert found["edgert_agent_dropped_packets_total", 'odd "reason"\n'] == 1


def test_os_scheduling_is_told_per_operator_as_far_as_it_is_known() -> None:
    found = values(exposition(STATUS))
    assert found["edgert_agent_sched_policy", "qs", "nice"] == 1
    assert found["edgert_agent_sched_nice", "edgert", "air/in"] == 7
    assert ("edgert_agent_sched_nice", "edgert", "air/out") not in found
    assert found["edgert_agent_sched_errors",] == 1
    assert found["edgert_agent_sched_boards",] == 1


def test_an_agent_that_does_not_schedule_tells_nothing_of_it() -> None:
    found = values(exposition({**STATUS, "sched": None}))
    assert not [name for name, *_ in found if "sched" in name]
    assert found["edgert_agent_health",] == 1


@pytest.mark.parametrize(
    ("request_", "answer"),
    [
        (b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", b"HTTP/1.1 200 OK"),
        (b"GET /metrics HTTP/1.0\r\n\r\n", b"HTTP/1.1 200 OK"),
        (b"GET /other HTTP/1.1\r\n\r\n", b"HTTP/1.1 404"),
        (b"POST /metrics HTTP/1.1\r\n\r\n", b"HTTP/1.1 404"),
        (b"\x00\xff\r\n\r\n", b"HTTP/1.1 404"),
        (b"GET /" + b"x" * 20_000 + b"\r\n\r\n", b""),
        (b"", b""),
    ],
)
def test_only_one_request_is_answered(request_: bytes, answer: bytes) -> None:
    asyncio.run(_ask(request_, answer))


async def _ask(request_: bytes, answer: bytes) -> None:
    server = MetricsServer(lambda: STATUS)
    port = await server.start(0)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(request_)
        writer.write_eof()
        try:
            found = await reader.read()
        except ConnectionResetError:
            found = b""
        assert found.startswith(answer)
        assert bool(found) == bool(answer)
    finally:
        writer.close()
        await server.stop()


def test_the_docs_list_the_metrics() -> None:
    page = DOCS / "metrics-agent.md"
    assert page.read_text() == markdown(HEAD, METRICS), "run: python -m agent.metrics > docs/metrics-agent.md"
