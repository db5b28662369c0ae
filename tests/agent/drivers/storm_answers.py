"""Answers of Storm to its driver."""

from __future__ import annotations

from typing import Any

ONE = "one-1-1795681791"
PATH = f"/api/v1/topology/{ONE}"
STORM: dict[str, Any] = {
    "/api/v1/topology/summary": {"topologies": [
        {"id": ONE, "name": "one", "status": "ACTIVE", "executorsTotal": 4, "tasksTotal": 4, "workersTotal": 1},
        {"id": "two-2-1795681805", "name": "two", "status": "KILLED", "executorsTotal": 4},
    ], "schedulerDisplayResource": False},
    PATH: {
        "id": ONE, "name": "one", "window": ":all-time", "status": "ACTIVE", "samplingPct": 10,
        "spouts": [{
            "spoutId": "rows", "executors": 1, "tasks": 1, "emitted": 990322, "transferred": 990322, "acked": 988322,
            "failed": 0, "completeLatency": "728.816", "lastError": "",
        }],
        "bolts": [
            {"boltId": "light", "executors": 1, "tasks": 1, "emitted": 990320, "transferred": 990320,
             "executed": 990320, "executeLatency": "0.031", "processLatency": "0.028", "capacity": "0.082"},
            {"boltId": "heavy", "executors": 1, "tasks": 1, "emitted": 988327, "transferred": 0, "executed": 988328,
             "executeLatency": "0.366", "processLatency": "0.362", "capacity": "0.980"},
        ],
        "workers": [{"topologyId": ONE, "host": "127.0.0.1", "port": 26700, "uptimeSeconds": 369, "executorsTotal": 4}],
    },
    f"{PATH}/visualization": {
        "rows": {":type": "spout", ":inputs": [
            {":component": "__acker", ":stream": "__ack_ack", ":sani-stream": "s__ack_ack643800921",
             ":grouping": "direct"},
        ]},
        "__system": {":type": "spout", ":inputs": []},
        "light": {":type": "bolt", ":inputs": [
            {":component": "rows", ":stream": "default", ":sani-stream": "default722480637", ":grouping": "shuffle"},
        ]},
        "heavy": {":type": "bolt", ":inputs": [
            {":component": "light", ":stream": "default", ":sani-stream": "default722480637", ":grouping": "shuffle"},
        ]},
        "__acker": {":type": "spout", ":inputs": [
            {":component": "rows", ":stream": "__ack_init", ":sani-stream": "s__ack_init2096470730",
             ":grouping": "fields"},
        ]},
    },
    f"{PATH}/component/rows": {
        "executorStats": [{"id": "[4-4]", "host": "127.0.0.1", "port": 26700, "emitted": 221347, "uptimeSeconds": 108}],
        "outputStats": [{"stream": "default", "emitted": 221347, "transferred": 221347, "completeLatency": "947.246"}],
    },
    f"{PATH}/component/light": {"executorStats": [{"id": "[3-3]", "emitted": 251833, "uptimeSeconds": 121}]},
    f"{PATH}/component/heavy": {"executorStats": [{"id": "[2-2]", "emitted": 249886, "uptimeSeconds": 121}]},
}  # fmt: skip
