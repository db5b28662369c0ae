"""The gateway's state as one JSON object: the page, the terminal, Prometheus and `cmd/status` all show this."""

from __future__ import annotations

import itertools
import time
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import psutil

import edgert
from edgert.core.ids import epoch_ordinal
from edgert.runtime.flow_run import FlowRun, Place
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
        seen = {(r.flow.name, n): p.rows_in for r in self._daemon.flows.runs.values() for n, p in r.places.items()}
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
            for name, place in run.places.items():
                for reason, rows in list(place.logic.drops.items()):
                    places[run.flow.name, name, reason] += rows
                if not place.part:
                    places[run.flow.name, name, "queue over budget"] += place.instance.shed
                    places[run.flow.name, name, "not sent"] += place.instance.unsent
        return [
            {"flow": flow, "operator": operator, "reason": reason, "rows": rows}
            for (flow, operator, reason), rows in sorted(places.items())
            if rows
        ]

    def _flow(self, run: FlowRun) -> dict[str, Any]:
        name = run.flow.name
        return {
            "name": name,
            "version": run.version,
            "state": "running",
            "epoch": epoch_ordinal(run.epoch),
            "description": run.flow.description,
            "operators": [self._operator(run, name, place) for name, place in run.places.items()],
            "edges": list(_edges(run)),
            "rows_shipped": run.rows_shipped,
            "latest": list(run.latest)[-5:],
        }

    def _operator(self, run: FlowRun, name: str, place: Place) -> dict[str, Any]:
        """Queue, turns and times of a fused instance are those of its first part: the others have none of their own."""
        instance = place.instance
        fused = len(place.instance.operators) > len(place.planned.operators)
        shown: dict[str, Any] = {"queue_rows": 0, "queue_bytes": 0, "turns": 0, "busy_s": 0.0, "waited_s": 0.0}
        if not place.part:
            counters = instance.counters
            shown = {
                "queue_rows": instance.queue.rows,
                "queue_bytes": instance.queue.size,
                "turns": counters.turns,
                "busy_s": round(counters.busy_s, 4),
                "waited_s": round(counters.waited_s, 4),
            }
        return {
            "name": name,
            "type": " + ".join(node.type for node in place.planned.nodes),
            "rows_in": place.rows_in,
            "rows_out": place.rows_out,
            "rate_in": round(self._rates.get((run.flow.name, name), 0.0), 1),
            **shown,
            "detail": f"{place.planned.kind}, fused: {instance.name}" if fused else place.planned.kind,
        }


def _edges(run: FlowRun) -> Iterator[tuple[str, str]]:
    first = {planned.name: (planned.parts or (planned,))[0].name for planned in run.plan.instances.values()}
    for planned in run.plan.instances.values():
        parts = [part.name for part in planned.parts or (planned,)]
        yield from itertools.pairwise(parts)
        for target, _, _ in planned.outputs:
            yield parts[-1], first[target]


def _failed(name: str, why: str) -> dict[str, Any]:
    """A stored flow that could not be started."""
    nothing: dict[str, Any] = {"operators": [], "edges": [], "latest": []}
    return {"name": name, "version": 0, "state": "failed", "epoch": 0, "description": why, "rows_shipped": 0, **nothing}
