"""Answers of a gateway and of Flink to their drivers."""

from __future__ import annotations

from typing import Any


def figures(at: float = 10.0, rows: int = 100, slot: int = 0) -> dict[str, Any]:
    instance = {"slot": slot, "pid": 50, "kind": "source", "operators": ["x"], "queue_bytes": 0}
    return {
        "gateway": "g1", "wall": 0.0, "monotonic": at, "cpu_count": 2,
        "flows": {"air": {
            "version": 1, "delivery": "exactly-once", "latency_target_s": 0.1,
            "instances": {
                "in": {**instance, "rows_in": rows, "rows_out": rows // 2, "busy_s": rows * 0.001, "queue_rows": 7,
                       "head_since_arrival_s": 0.5},
                "out": {**instance, "rows_in": rows // 2, "rows_out": 0, "busy_s": rows * 0.002, "queue_rows": 0,
                        "head_since_arrival_s": 0.0},
            },
            "edges": [{"from": "in", "to": "out", "rows": rows // 2, "bytes": 1}, {"from": "out", "to": "elsewhere"}],
        }},
        "threads": [
            {"pid": 40, "tid": 40, "slot": -1, "role": "loop", "cpu_s": 1.0, "start_ticks": 1},
            {"pid": 50, "tid": 50, "slot": 0, "role": "loop", "cpu_s": 1.0, "start_ticks": 2},
            {"pid": 50, "tid": 51, "slot": 0, "role": "worker", "cpu_s": 1.0, "start_ticks": 3},
        ],
    }  # fmt: skip


JOB = "a1c37c378be3685897f4baf441963bf6"
SOURCE, SUM, SINK = (
    "bc764cd8ddf7a0cff126f51c16239658",
    "0a448493b4782967b150582570326227",
    "ea632d67b7d595e5b851708ae9ad79d6",
)
FLINK: dict[str, Any] = {
    "/jobs/overview": {"jobs": [
        {"jid": JOB, "name": "query-a", "jobType": "STREAMING", "state": "RUNNING"},
        {"jid": "f080c5d404af602b83c8c9ea33019896", "name": "query-b", "jobType": "STREAMING", "state": "CANCELED"},
    ]},
    f"/jobs/{JOB}": {
        "jid": JOB, "name": "query-a", "state": "RUNNING",
        "vertices": [
            {"id": SOURCE, "name": "Source: src[1]", "parallelism": 2, "status": "RUNNING"},
            {"id": SUM, "name": "GroupAggregate[3]", "parallelism": 2, "status": "RUNNING"},
            {"id": SINK, "name": "snk[4]: Writer", "parallelism": 2, "status": "RUNNING"},
        ],
        "plan": {"nodes": [
            {"id": SINK, "inputs": [{"id": SUM, "num": 0, "ship_strategy": "FORWARD"}]},
            {"id": SUM, "inputs": [{"id": SOURCE, "num": 0, "ship_strategy": "HASH"}]},
            {"id": SOURCE},
        ]},
    },
    SUM: [
        {"id": "0.numRecordsIn", "value": "6347870"},
        {"id": "1.numRecordsIn", "value": "9504654"},
        {"id": "0.accumulateBusyTimeMs", "value": "53042.0"},
        {"id": "0.numRecordsOut", "value": "6349081"},
        {"id": "0.Shuffle.Netty.Input.Buffers.inputQueueLength", "value": "2"},
    ],
    SOURCE: [{"id": "0.numRecordsIn", "value": "0"}, {"id": "0.accumulateBusyTimeMs", "value": "NaN"}],
    SINK: [],
}  # fmt: skip
THREADS = """
"Source: src[1] (1/2)#0" #69 prio=5 os_prio=0 cpu=159.65ms elapsed=80.22s tid=0x00007f8d18053e10 nid=0xbd5 waiting on condition  [0x00007f8d24bfc000]
   java.lang.Thread.State: WAITING (parking)
"GroupAggregate[3] (2/2)#0" #73 prio=5 os_prio=0 cpu=7557.69ms elapsed=79.53s tid=0x00007f8d1805dec0 nid=0xbf7 runnable  [0x00007f8d146fe000]
"OutputFlusher for GroupAggregate[3] (1/2)#0" #74 daemon prio=5 os_prio=0 cpu=47.97ms elapsed=79.50s tid=0x00007f8ca845fc20 nid=0xbf8 waiting on condition
"Legacy Source Thread - Source: src[1] (2/2)#0" #81 prio=5 os_prio=0 cpu=3566.91ms elapsed=78.08s tid=0x00007f8c9c004650 nid=3084 runnable
"GC Thread#0" os_prio=0 cpu=226.31ms elapsed=93.24s tid=0x00007f8d1806bc10 nid=17719 runnable
"""  # noqa: E501 - as it comes
