"""The agent's metrics for Prometheus, and where it serves them.

python -m agent.metrics        # docs/metrics-agent.md
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from edgert.core.errors import EdgertError
from edgert.runtime.metrics.metric import Metric, markdown
from edgert.runtime.metrics.readers import Labelled, StatusObject, at

HOST: Final = "127.0.0.1"
MAX_REQUEST: Final = 8_192
REQUEST_S: Final = 5.0
MAX_CONNECTIONS: Final = 8
MS_IN_S: Final = 1e-3


def _states(status: StatusObject) -> Iterator[Labelled]:
    count = Counter(member["state"] for member in status["members"])
    for state in ("alive", "suspect", "dead", "left"):
        yield (state,), count[state]


def _each_member(key: str, scale: float = 1.0) -> Callable[[StatusObject], Iterator[Labelled]]:
    def read(status: StatusObject) -> Iterator[Labelled]:
        for member in status["members"]:
            if not member["self"] and member["state"] in ("alive", "suspect") and member[key] is not None:
                yield (member["gateway"],), member[key] * scale

    return read


def _sched(*path: str) -> Callable[[StatusObject], Iterator[Labelled]]:
    """A number of `sched.status`; none where this agent does not schedule."""

    def read(status: StatusObject) -> Iterator[Labelled]:
        found: Any = status.get("sched")
        for name in path if found else ():
            found = found[name]
        if found is not None:
            yield (), len(found) if isinstance(found, list) else found

    return read


def _each_operator(key: str) -> Callable[[StatusObject], Iterator[Labelled]]:
    def read(status: StatusObject) -> Iterator[Labelled]:
        for row in (status.get("sched") or {}).get("operators", ()):
            if row.get(key) is not None:
                yield (row["driver"], row["operator"]), row[key]

    return read


def _policy(status: StatusObject) -> Iterator[Labelled]:
    if sched := status.get("sched"):
        yield (sched["policy"], sched["mechanism"]), 1


def _moves(key: str) -> Callable[[StatusObject], Iterator[Labelled]]:
    def read(status: StatusObject) -> Iterator[Labelled]:
        for label, number in status["moves"][key].items():
            yield (label,), number

    return read


def _changes(figure: str) -> Callable[[StatusObject], Iterator[Labelled]]:
    def read(status: StatusObject) -> Iterator[Labelled]:
        for by, number in status["moves"]["changes"][figure].items():
            yield (by,), number

    return read


def _same_scale(status: StatusObject) -> Iterator[Labelled]:
    if sched := status.get("sched"):
        yield (), sum(board["shares"] for board in sched["cooperation"]["boards"].values())


METRICS: Final = (
    Metric("edgert_agent_members", "gauge", "members", "Members of the fleet as this agent sees them, itself included.",
           ("state",), _states),
    Metric("edgert_agent_health", "gauge", "", "Local health: 0 is best; above 2 this agent is starved, or the network "
           "loses much.", (), at("health")),
    Metric("edgert_agent_stalls_total", "counter", "stalls", "Times that this agent did not run when it should have.",
           (), at("counters", "stalls")),
    Metric("edgert_agent_gateway_connected", "gauge", "", "1 while this board's gateway answers.", (),
           at("local_gateway", "connected")),
    Metric("edgert_agent_majority", "gauge", "", "1 while this board reaches a majority of the boards that vote: else "
           "it changes no flow.", (), at("coordination", "majority")),
    Metric("edgert_agent_sent_bytes_total", "counter", "bytes", "Bytes sent to other agents.", (),
           at("counters", "sent_bytes")),
    Metric("edgert_agent_received_bytes_total", "counter", "bytes", "Bytes received, foreign packets included.", (),
           at("counters", "received_bytes")),
    Metric("edgert_agent_dropped_packets_total", "counter", "packets", "Packets from outside, replayed, or damaged: "
           "dropped and never answered.", ("reason",),
           lambda status: [((reason,), n) for reason, n in status["counters"]["drops"].items()]),
    Metric("edgert_agent_refused_connections_total", "counter", "connections", "TCP connections that gave way to "
           "newer ones, or were of a member that had too many.", (), at("counters", "refused_connections")),
    Metric("edgert_agent_refused_members_total", "counter", "members", "New members for which the table had no room.",
           (), at("counters", "refused_members")),
    Metric("edgert_agent_rtt_estimated_seconds", "gauge", "seconds", "Round-trip time to a member by coordinates.",
           ("gateway",), _each_member("estimated_ms", MS_IN_S)),
    Metric("edgert_agent_rtt_measured_seconds", "gauge", "seconds", "Round-trip time to a member, median of the last "
           "pings.", ("gateway",), _each_member("measured_ms", MS_IN_S)),
    Metric("edgert_agent_coordinate_rounds_total", "counter", "rounds", "Rounds of the coordinates.", (),
           at("coordinates", "rounds")),
    Metric("edgert_agent_replacements_total", "counter", "changes", "Flows that this agent, as their coordinator, had "
           "placed anew by a heuristic.", (), at("replacements")),
    Metric("edgert_agent_moves_total", "counter", "moves", "Instances that this board handed to another one by itself "
           "(made), and those that it found no board for (refused).", ("end",), _moves("counts")),
    Metric("edgert_agent_plan_changes_total", "counter", "changes", "Changes of plan that moved operators, which this "
           "agent made as the coordinator of their flows.", ("by",), _changes("moves")),
    Metric("edgert_agent_plan_changes_pause_seconds_total", "counter", "seconds", "Time for which flows stood still "
           "for them.", ("by",), _changes("pause_s")),
    Metric("edgert_agent_plan_changes_bytes_total", "counter", "bytes", "State and waiting batches that travelled for "
           "them.", ("by",), _changes("bytes")),
    Metric("edgert_agent_plan_changes_delayed_rows_total", "counter", "rows", "Rows that waited meanwhile.", ("by",),
           _changes("rows_delayed")),
    Metric("edgert_agent_drained", "gauge", "", "1 while this board is drained.", (), at("moves", "drained")),
    Metric("edgert_agent_drain_damaged", "gauge", "", "1 if the memory of a drain was damaged when the agent began: it "
           "was set aside.", (), at("moves", "drain_damaged")),
    Metric("edgert_agent_load_ratio", "gauge", "", "Part of its room that this board needs now.", ("resource",),
           _moves("load")),
    Metric("edgert_agent_load_predicted_before_ratio", "gauge", "", "Load that was predicted for now, half a minute "
           "ago; absent in the first half minute.", ("resource",), _moves("load_predicted_before")),
    Metric("edgert_agent_load_predicted_ratio", "gauge", "", "Greatest part of its room that this board is predicted "
           "to need in the next three minutes.", ("resource",), _moves("load_predicted")),
    Metric("edgert_agent_sched_policy", "gauge", "", "1 for the policy of OS scheduling in force.",
           ("policy", "mechanism"), _policy),
    Metric("edgert_agent_sched_periods_total", "counter", "periods", "Periods of OS scheduling.", (),
           _sched("periods")),
    Metric("edgert_agent_sched_action_seconds", "gauge", "seconds", "From the engines' answers to the last action, in "
           "the last period.", (), _sched("lasted_s", "action")),
    Metric("edgert_agent_sched_period_cpu_seconds", "gauge", "seconds", "CPU time of the last period.", (),
           _sched("lasted_s", "cpu")),
    Metric("edgert_agent_sched_errors", "gauge", "", "What could not be done in the last period.", (),
           _sched("errors")),
    Metric("edgert_agent_sched_priority", "gauge", "", "Priority of an operator by the policy in force.",
           ("driver", "operator"), _each_operator("priority")),
    Metric("edgert_agent_sched_nice", "gauge", "", "Nice value of an operator's threads.", ("driver", "operator"),
           _each_operator("nice")),
    Metric("edgert_agent_sched_got_cores", "gauge", "cores", "CPU time per second of an operator's threads, in the "
           "last period.", ("driver", "operator"), _each_operator("cpu")),
    Metric("edgert_agent_sched_waited_cores", "gauge", "cores", "Time per second in which an operator's threads were "
           "ready and had no core.", ("driver", "operator"), _each_operator("waited")),
    Metric("edgert_agent_sched_held_ratio", "gauge", "", "Part of its priority that an operator has because its "
           "successor on another board is congested; absent where it has all.", ("driver", "operator"),
           _each_operator("held")),
    Metric("edgert_agent_sched_boards", "gauge", "boards", "Other boards with which priorities are on one scale.", (),
           _same_scale),
    Metric("edgert_agent_sched_told_bytes", "gauge", "bytes", "Size of what this board tells others of its scheduling.",
           (), _sched("cooperation", "told_bytes")),
)  # fmt: skip


def exposition(status: Mapping[str, Any]) -> str:
    """Prometheus' text format of a `fleet.status`."""
    lines: list[str] = []
    for metric in METRICS:
        lines += [f"# HELP {metric.name} {metric.doc}", f"# TYPE {metric.name} {metric.kind}"]
        for values, number in metric.read(status):
            labels = ",".join(f'{name}="{_escaped(v)}"' for name, v in zip(metric.labels, values, strict=True))
            if isinstance(number, int | float):
                lines.append(f"{metric.name}{f'{{{labels}}}' if labels else ''} {float(number):.10g}")
    return "\n".join([*lines, ""])


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


class MetricsServer:
    """Answers `GET /metrics` on loopback, and nothing else."""

    def __init__(self, status: Callable[[], Mapping[str, Any]]) -> None:
        self._status = status
        self._server: asyncio.Server | None = None
        self._connections = 0

    async def start(self, port: int) -> int:
        """Returns the port. Raises `EdgertError` where it cannot listen."""
        try:
            self._server = await asyncio.start_server(self._serve_untrusted, HOST, port, limit=MAX_REQUEST)
        except OSError as error:
            raise EdgertError(f"agent.metrics_port: expected a free port, got {port}: {error.strerror}") from error
        bound: int = self._server.sockets[0].getsockname()[1]
        return bound

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()

    async def _serve_untrusted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections += 1
        try:
            if self._connections <= MAX_CONNECTIONS:
                async with asyncio.timeout(REQUEST_S):
                    head = await reader.readuntil(b"\r\n\r\n")
                    writer.write(self._answer_untrusted(head))
                    await writer.drain()
        except (TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # no request that Prometheus makes
        finally:
            self._connections -= 1
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    def _answer_untrusted(self, head: bytes) -> bytes:
        method, _, rest = head.partition(b" ")
        if method == b"GET" and rest.partition(b" ")[0] == b"/metrics":
            status, body = b"200 OK", exposition(self._status()).encode()
        else:
            status, body = b"404 Not Found", b"expected GET /metrics\n"
        kind = b"text/plain; version=0.0.4; charset=utf-8"
        length = str(len(body)).encode()
        return b"HTTP/1.1 %s\r\nContent-Type: %s\r\nContent-Length: %s\r\nConnection: close\r\n\r\n%s" % (
            status, kind, length, body,
        )  # fmt: skip


HEAD: Final = (
    "# Metrics of the agent\n\n"
    "An agent serves these at `http://127.0.0.1:PORT/metrics` if `agent.metrics_port` is set (Prometheus text\n"
    "format). This page is generated by `python -m agent.metrics`.\n"
)
"""The beginning of the page of the docs."""


if __name__ == "__main__":
    print(markdown(HEAD, METRICS), end="")
