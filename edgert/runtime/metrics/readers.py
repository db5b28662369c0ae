"""How a metric finds its values in a gateway's status (the mapping that `/api/status` sends)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

StatusObject = Mapping[str, Any]
Labelled = tuple[tuple[str, ...], object]
"""Label values, in the order of `Metric.labels`, and the value in the status; `None` if it is unknown."""


def at(*path: str, scale: float = 1.0) -> Callable[[StatusObject], Iterator[Labelled]]:
    """Reads the one value at `path`, multiplied by `scale` (to reach the base unit)."""

    def read(status: StatusObject) -> Iterator[Labelled]:
        value: object = status
        for key in path:
            value = value.get(key) if isinstance(value, Mapping) else None
        if isinstance(value, (bool, int, float)):
            yield (), value * scale

    return read


def each_operator(key: str) -> Callable[[StatusObject], Iterator[Labelled]]:
    """Reads `key` of every operator on this board; labels: flow, operator, type. Those elsewhere are the metrics of
    other gateways."""

    def read(status: StatusObject) -> Iterator[Labelled]:
        for flow in status.get("flows", ()):
            for operator in flow.get("operators", ()):
                if operator.get("gateway") is None:
                    yield (flow["name"], operator["name"], operator.get("type", "")), operator.get(key)

    return read


def each_flow(value: Callable[[Mapping[str, Any]], object]) -> Callable[[StatusObject], Iterator[Labelled]]:
    """Reads `value` of every flow; label: flow."""

    def read(status: StatusObject) -> Iterator[Labelled]:
        for flow in status.get("flows", ()):
            yield (flow["name"],), value(flow)

    return read


def each_slot(key: str) -> Callable[[StatusObject], Iterator[Labelled]]:
    """Reads `key` of every slot; label: slot."""

    def read(status: StatusObject) -> Iterator[Labelled]:
        for slot in status.get("slots", ()):
            yield (str(slot["slot"]),), slot.get(key)

    return read


def levels(status: StatusObject) -> Iterator[Labelled]:
    """Reads the level of every part; labels: part, name (of a flow or slot)."""
    for part in status.get("health", {}).get("parts", ()):
        yield (part["part"], part["name"]), {"warning": 1, "bad": 2}.get(part["level"], 0)


def latency(status: StatusObject) -> Iterator[Labelled]:
    for flow in status.get("flows", ()):
        for quantile, name in (("0.5", "p50"), ("0.99", "p99")):
            value = (flow.get("latency_ms") or {}).get(name)
            yield (flow["name"], quantile), None if value is None else value / 1e3


def drops(status: StatusObject) -> Iterator[Labelled]:
    for drop in status.get("drops", ()):
        yield (drop.get("flow", ""), drop.get("operator", ""), drop.get("reason", "")), drop.get("rows")


def info(status: StatusObject) -> Iterator[Labelled]:
    yield tuple(str(status.get(key, "")) for key in ("gateway", "fleet", "version")), 1
