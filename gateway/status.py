"""The gateway's state as one JSON object: the page, the terminal, Prometheus and `cmd/status` all show this."""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING, Any

import psutil

import edgert
from edgert.core.ids import epoch_ordinal
from edgert.runtime.flow_run import FlowRun
from gateway.uplink import summary

if TYPE_CHECKING:
    from gateway.daemon import Daemon

RATE_S = 0.9
"""Rates are taken over at least this time."""


class Status:
    """Composes the object; remembers counters of a moment ago, to tell rates."""

    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon
        self._process = psutil.Process()
        self._process.cpu_percent()
        self._cpu = 0.0
        self._started = time.monotonic()
        self._rates: dict[tuple[str, str], float] = {}
        self._seen: dict[tuple[str, str], int] = {}
        self._seen_at = time.monotonic()

    def object(self) -> dict[str, Any]:
        """See the module; every number is since the start of the process unless its name says otherwise."""
        daemon = self._daemon
        self._take_rates()
        return {
            "gateway": daemon.gateway,
            "fleet": daemon.settings.gateway.fleet,
            "version": edgert.__version__,
            "uptime_s": round(time.monotonic() - self._started, 1),
            "rss_bytes": self._process.memory_info().rss,
            "cpu_percent": self._cpu,
            "ingest": self._ingest(),
            "central": self._central(),
            "checkpoint": self._checkpoint(),
            "drops": self._drops(),
            "flows": [
                *(self._flow(run) for run in list(daemon.flows.runs.values())),
                *(_failed(name, why) for name, why in daemon.flows.failed.items()),
            ],
        }

    def _take_rates(self) -> None:
        now = time.monotonic()
        passed = now - self._seen_at
        if passed < RATE_S:
            return
        seen = {(r.flow.name, i.name): i.counters.rows_in for r in self._daemon.flows.runs.values() for i in r.all}
        self._rates = {key: max(0, n - self._seen.get(key, n)) / passed for key, n in seen.items()}
        self._seen, self._seen_at = seen, now
        self._cpu = self._process.cpu_percent()

    def _ingest(self) -> dict[str, Any]:
        ingest = self._daemon.ingest
        client, inbox = ingest.client.status, ingest.inbox
        refused = "; ".join(f"subscription to {f} refused: {why}" for f, why in ingest.refused.items())
        return {
            "connected": client.connected,
            "broker": str(ingest.client.address),
            "protocol": client.protocol,
            "messages": inbox.counters.messages,
            "bytes": inbox.counters.bytes,
            "unacknowledged": len(inbox.owed),
            "reconnects": client.reconnects,
            "sessions_lost": ingest.sessions_lost,
            "redelivered": inbox.counters.redelivered,
            "ambiguous": inbox.counters.ambiguous,
            "error": refused or client.error,
        }

    def _central(self) -> dict[str, Any]:
        daemon = self._daemon
        settings, link = daemon.settings.central, daemon.link
        return {
            "enabled": settings.enabled,
            "connected": bool(link and link.connected),
            "broker": f"{settings.host}:{settings.port}",
            **summary(daemon.uplink.status, daemon.database.outbox_size, time.monotonic()),
            "error": daemon.uplink.status.error or (link.error if link else ""),
        }

    def _checkpoint(self) -> dict[str, Any]:
        status = self._daemon.checkpointer.status
        return {
            "commits": status.commits,
            "failures": status.failures,
            "blocked": status.blocked,
            "last_ms": round(status.last_ms, 2),
            "error": status.error,
        }

    def _drops(self) -> list[dict[str, Any]]:
        ingest = self._daemon.ingest
        places = Counter({
            ("", "", "no flow takes it"): ingest.inbox.counters.unrouted,
            ("", "", "larger than max_packet_bytes"): ingest.oversized,
            ("", "", "redelivery, ambiguous"): ingest.inbox.counters.ambiguous,
            ("", "", "retained, not asked for"): ingest.inbox.counters.retained_ignored,
        })  # fmt: skip
        for run in list(self._daemon.flows.runs.values()):
            for instance in run.all:
                for reason, rows in list(instance.logic.drops.items()):
                    places[run.flow.name, instance.name, reason] += rows
                places[run.flow.name, instance.name, "queue over budget"] += instance.shed
                places[run.flow.name, instance.name, "not sent"] += instance.unsent
        return [
            {"flow": flow, "operator": operator, "reason": reason, "rows": rows}
            for (flow, operator, reason), rows in sorted(places.items())
            if rows
        ]

    def _flow(self, run: FlowRun) -> dict[str, Any]:
        name = run.flow.name
        edges = [[p.name, target] for p in run.plan.instances.values() for target, _, _ in p.outputs]
        operators = []
        for instance in run.all:
            counters = instance.counters
            operators.append({
                "name": instance.name,
                "type": " + ".join(run.flow.nodes[o].type for o in instance.operators),
                "rows_in": counters.rows_in,
                "rows_out": counters.rows_out,
                "rate_in": round(self._rates.get((name, instance.name), 0.0), 1),
                "queue_rows": instance.queue.rows,
                "queue_bytes": instance.queue.size,
                "turns": counters.turns,
                "busy_s": round(counters.busy_s, 4),
                "waited_s": round(counters.waited_s, 4),
                "detail": instance.kind,
            })  # fmt: skip
        return {
            "name": name,
            "version": run.version,
            "state": "running",
            "epoch": epoch_ordinal(run.epoch),
            "description": run.flow.description,
            "operators": operators,
            "edges": edges,
            "rows_shipped": run.rows_shipped,
            "latest": list(run.latest)[-5:],
        }


def _failed(name: str, why: str) -> dict[str, Any]:
    """A stored flow that could not be started."""
    nothing: dict[str, Any] = {"operators": [], "edges": [], "latest": []}
    return {"name": name, "version": 0, "state": "failed", "epoch": 0, "description": why, "rows_shipped": 0, **nothing}
