"""The messages that are published: the SYS trace of RIoTBench with the time of sending in each, or packs like its."""

from __future__ import annotations

import json
import random
import re
from dataclasses import dataclass
from pathlib import Path

TRACE = Path(__file__).parents[3] / "shared/data/riotbench/SYS_sample_data_senml.csv"
STAMP = re.compile(rb'"bt":(\d{13})\}$')
"""The time of a pack, milliseconds since the epoch: 13 digits until the year 2286, so it can be replaced in place."""
_UNITS = {"temperature": "far", "humidity": "per", "light": "per", "dust": "per", "airquality_raw": "per"}
RANGES = {
    "temperature": (-12.5, 43.1),
    "humidity": (10.7, 95.2),
    "light": (0, 26282),
    "dust": (0, 5188.21),
    "airquality_raw": (0, 363),
}
"""RIoTBench's validity ranges, but light, dust and air quality from 0: the trace was taken at night (light is 0 in most
packs), and 946 of its 1,000 packs would be dropped; so 11 are. A filter that drops more would cost less."""


@dataclass(frozen=True, slots=True)
class Message:
    """One message as it is published, with the place of its 13 digits of time in the payload."""

    topic: str
    payload: bytes
    stamp: int


def messages(path: Path = TRACE) -> tuple[list[Message], str]:
    """The messages, and in words what they are."""
    if path.exists():
        lines = path.read_bytes().splitlines()
        return [_message(line.partition(b",")[2]) for line in lines if line], f"{len(lines)} SYS packs of RIoTBench"
    return generated(1_000), "1,000 generated packs of the SYS layout"


def generated(count: int) -> list[Message]:
    """Packs of the SYS layout, the same ones each time."""
    return [_message(pack) for pack in _packs(count, random.Random(1))]


def _message(payload: bytes) -> Message:
    stamp = STAMP.search(payload)
    if stamp is None:
        raise ValueError(f'expected a pack that ends in "bt":<13 digits>}}, got {payload[-40:]!r}')
    source = next(e["sv"] for e in json.loads(payload)["e"] if "sv" in e)
    return Message(f"city/{source}/sense", payload, stamp.start(1))


def _packs(count: int, draw: random.Random) -> list[bytes]:
    packs = []
    for at in range(count):
        values = [{"u": "string", "n": "source", "sv": f"generated{at % 788:05d}0002ypo4qrcjda"}]
        values += [{"v": f"{draw.uniform(0, 90):.7f}", "u": n[:3], "n": n} for n in ("longitude", "latitude")]
        values += [{"v": f"{draw.uniform(11, 43):.2f}", "u": unit, "n": name} for name, unit in _UNITS.items()]
        packs.append(json.dumps({"e": values, "bt": 1422748800000}, separators=(",", ":")).encode())
    return packs
