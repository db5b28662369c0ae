"""This machine's real sensors as SenML: what is read (psutil, one door), and what is made of two readings (pure).

One message per quantity, on `machine/<source>/<quantity>`: `machine/myhost-cpu0/busy`, `machine/myhost-eth0/received`.
Units are SenML's (RFC 8428, section 12.1; bytes from RFC 8798): `%`, `Hz`, `Cel`, `B`, `B/s`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar

_T = TypeVar("_T")
_UNSAFE = re.compile(r"[^A-Za-z0-9_.-]+")
_UNREAL_NETWORKS = ("ifb", "veth", "docker", "br-", "tun", "tap", "dummy")


UNITS: Final = {
    "busy": "%", "frequency": "Hz", "temperature": "°C", "used": "%", "received": "B/s", "sent": "B/s", "read": "B/s",
    "written": "B/s",
}  # fmt: skip
"""Quantity -> its unit, for people."""


@dataclass(frozen=True, slots=True)
class SensorValue:
    """One quantity of one part of the machine at one moment."""

    source: str
    quantity: str
    unit: str
    value: float
    time: float
    """Seconds since the epoch, UTC."""

    @property
    def topic(self) -> str:
        return f"machine/{self.source}/{self.quantity}"

    def senml(self) -> bytes:
        """A pack of one record (RFC 8428): the base name says all, so the row's field is `value`."""
        record = {
            "bn": f"{self.source}:{self.quantity}",
            "bt": round(self.time, 3),
            "u": self.unit,
            "v": round(self.value, 3),
        }
        return json.dumps([record], separators=(",", ":")).encode()


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Readings of one moment. Counters are totals since the machine started."""

    time: float
    """Seconds since the epoch, UTC."""
    cpu_busy_percent: tuple[float, ...] = ()
    """Per core, since the snapshot before."""
    cpu_hz: tuple[float, ...] = ()
    celsius: Mapping[str, float] = field(default_factory=dict)
    memory_used_percent: float | None = None
    network_bytes: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """Per interface: received, sent."""
    disk_bytes: tuple[int, int] | None = None
    """Read, written; all disks together."""


def measurements(host: str, before: Snapshot, now: Snapshot) -> Iterator[SensorValue]:
    """Yields all that two snapshots tell, with the time of the later one. Rates need both; a counter that went back
    (a card that was unplugged, a driver loaded anew) gives none this time."""

    def one(part: str, quantity: str, unit: str, value: float) -> SensorValue:
        return SensorValue(name(f"{host}-{part}"), quantity, unit, value, now.time)

    for core, percent in enumerate(now.cpu_busy_percent):
        yield one(f"cpu{core}", "busy", "%", percent)
    for core, hertz in enumerate(now.cpu_hz):
        yield one(f"cpu{core}", "frequency", "Hz", hertz)
    for part, celsius in now.celsius.items():
        yield one(part, "temperature", "Cel", celsius)
    if now.memory_used_percent is not None:
        yield one("memory", "used", "%", now.memory_used_percent)
    for part, then, totals, quantities in _counters(before, now):
        for quantity, rate in zip(quantities, _rates(then, totals, now.time - before.time), strict=False):
            yield one(part, quantity, "B/s", rate)


Counter = tuple[str, tuple[int, int], tuple[int, int], tuple[str, str]]


def _counters(before: Snapshot, now: Snapshot) -> Iterator[Counter]:
    """(part, totals before, totals now, quantities) of what both snapshots have."""
    for part, totals in now.network_bytes.items():
        if part in before.network_bytes:
            yield part, before.network_bytes[part], totals, ("received", "sent")
    if before.disk_bytes and now.disk_bytes:
        yield "disk", before.disk_bytes, now.disk_bytes, ("read", "written")


def _rates(before: tuple[int, int], now: tuple[int, int], seconds: float) -> list[float]:
    if seconds <= 0 or any(b > n for b, n in zip(before, now, strict=True)):
        return []
    return [(n - b) / seconds for b, n in zip(before, now, strict=True)]


def name(text: str) -> str:
    """`text` as one topic level that is a SenML name too (RFC 8428, section 4.5.1): letters, digits, `-._`."""
    return _UNSAFE.sub("-", text).strip("-._") or "unnamed"


def read(time: float) -> Snapshot:
    """Reads psutil's figures of this machine; those that it lacks (frequencies, temperatures) are left out.

    The first reading's CPU figures are since the start of the process and worth nothing: throw it away.
    """
    import psutil

    frequencies = _tolerant(lambda: psutil.cpu_freq(percpu=True)) or ()
    temperatures = _tolerant(psutil.sensors_temperatures) or {}
    networks = _tolerant(lambda: psutil.net_io_counters(pernic=True)) or {}
    disks = _tolerant(psutil.disk_io_counters)
    return Snapshot(
        time=time,
        cpu_busy_percent=tuple(psutil.cpu_percent(percpu=True)),
        cpu_hz=tuple(f.current * 1e6 for f in frequencies if f.current),
        celsius=_celsius(temperatures),
        memory_used_percent=psutil.virtual_memory().percent,
        network_bytes={
            nic: (c.bytes_recv, c.bytes_sent) for nic, c in networks.items() if not nic.startswith(_UNREAL_NETWORKS)
        },
        disk_bytes=(disks.read_bytes, disks.write_bytes) if disks else None,
    )


def _celsius(chips: Mapping[str, Sequence[object]]) -> dict[str, float]:
    """One entry per sensor, `chip` or `chip-label`; equal names are numbered."""
    found: dict[str, float] = {}
    for chip, readings in chips.items():
        for index, reading in enumerate(readings):
            label = getattr(reading, "label", "") or (str(index) if len(readings) > 1 else "")
            key = name(f"{chip}-{label}" if label else chip)
            value = float(getattr(reading, "current", 0.0))
            found[f"{key}-{index}" if key in found else key] = value
    return found


def _tolerant(read_part: Callable[[], _T]) -> _T | None:
    """The reading, or None where the machine or its rights do not give it."""
    try:
        return read_part()
    except (OSError, NotImplementedError, AttributeError, RuntimeError):
        return None
