"""A gateway's status with every field filled, for tests that need one."""

from __future__ import annotations

from typing import Any

from gateway.status.conditions import conditions, worst


def example_status() -> dict[str, Any]:
    """A new, changeable status: one flow `air` of three operators."""
    return judged(
        {
            "gateway": "g1",
            "fleet": "demo",
            "version": "0.1.0",
            "uptime_s": 12.5,
            "rss_bytes": 48_000_000,
            "state_limit_bytes": 96_000_000,
            "cpu_percent": 12.5,
            "written_bytes": 3_000_000,
            "ingest": {
                "connected": True,
                "broker": "127.0.0.1:1883",
                "protocol": "5",
                "messages": 100,
                "rate": 10.0,
                "message_age_s": 0.5,
                "bytes": 37_000,
                "unacknowledged": 5,
                "reconnects": 0,
                "sessions_lost": 0,
                "unknown_sessions": 0,
                "redelivered": 0,
                "ambiguous": 0,
                "perhaps_repeated": 0,
                "broker_dropped": 3,
                "broker_drops_unseen": "",
                "window": 20,
                "window_checkpoints": 7,
                "refused": {},
                "refused_topics": [],
                "paused_s": 0.0,
                "error": "",
            },
            "central": {
                "enabled": True,
                "connected": True,
                "broker": "127.0.0.1:1883",
                "unacknowledged_s": 0.0,
                "outbox_batches": 2,
                "outbox_rows": 20,
                "outbox_bytes": 2000,
                "outbox_quota_bytes": 2_147_483_648,
                "acknowledged": 9,
                "lost_by_tables": 0,
                "not_authentic_acks": 2,
                "sent_bytes": 4000,
                "too_large": 0,
                "hung_up": 0,
                "last_ack_age_s": 0.4,
                "error": "",
            },
            "certificate": {
                "file": "/var/edgert/identity/board.pem",
                "ends": "2027-01-01T00:00:00+00:00",
                "left_s": 8_000_000,
                "life_s": 9_000_000,
                "error": "",
                "renewal_error": "",
            },
            "slots": [
                {
                    "slot": 0,
                    "pid": 7,
                    "running": True,
                    "restarts": 1,
                    "instances": 3,
                    "backlog_bytes": 0,
                    "cpu_s": 1.5,
                    "rss_bytes": 36_000_000,
                    "unsent_bytes": 0,
                }
            ],
            "checkpoint": {"commits": 3, "failures": 0, "missed": 0, "last_ms": 2.5, "pause_ms": 1.5, "error": ""},
            "drops": [
                {"flow": "air", "operator": "in", "reason": "ahead of time (kept)", "rows": 26, "lost": False},
                {"flow": "air", "operator": "valid", "reason": "bad row", "rows": 7, "lost": True},
            ],
            "flows": [
                {
                    "name": "air",
                    "version": 2,
                    "state": "running",
                    "epoch": 1 << 32,
                    "description": "an example",
                    "operators": [
                        operator("readings", "mqtt_source", 100),
                        operator("valid", "filter", 90),
                        operator("ship", "ship", 10),
                    ],
                    "edges": [["readings", "valid"], ["valid", "ship"]],
                    "delivery": "at-least-once",
                    "rows_shipped": 10,
                    "spilled_messages": 0,
                    "gap": "",
                    "rows_repeated": 4,
                    "state_bytes": 5_000_000,
                    "balance": 0.5,
                    "latency_ms": {"p50": 1.5, "p99": 9.0},
                    "latest": [{"time": 1.0, "source": "a", "mean": 2.5}],
                    "latest_kept": 1,
                    "latest_total": 1,
                    "keys": ["source"],
                    "dropped": 7,
                    "dropping": [],
                    "unusable": [],
                    "ahead": None,
                    "recent": {
                        "row_age_s": 0.5,
                        "refused_age_s": None,
                        "result_age_s": 1.5,
                        "refusing_s": None,
                        "refused_since_row": 0,
                    },
                    "possible_loops": [],
                    "filters": ["air/+"],
                    "outbox_rows": 20,
                    "unacknowledged_s": 0.0,
                    "still": None,
                    "window_s": 60.0,
                    "malformed": None,
                    "never_seen": [],
                }
            ],
        }
    )


def judged(status: dict[str, Any]) -> dict[str, Any]:
    """The status with `health`, and the flows' conditions, as it is now."""
    found = conditions(status)
    for flow in status["flows"]:
        [flow["condition"]] = [c.plain() for c in found if (c.part, c.name) == ("flow", flow["name"])]
    return status | {"health": {"level": worst(found), "parts": [c.plain() for c in found]}}


def operator(name: str, kind: str, rows: int) -> dict[str, Any]:
    """One operator's part of a status."""
    return {
        "name": name,
        "type": kind,
        "gateway": None,
        "rows_in": rows,
        "rows_out": rows,
        "rate_in": 10.0,
        "queue_rows": 0,
        "queue_bytes": 0,
        "busy_s": 0.25,
        "queued_s": 0.5,
        "scheduling_s": 0.125,
        "idle_s": 2.5,
        "queue_age_s": 0.0,
        "utilisation": 0.75,
        "turns": 4,
        "failures": 3,
        "retries": 2,
        "dead_letters": 1,
        "detail": "",
    }
