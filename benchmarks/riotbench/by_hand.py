"""PRED as one would write it by hand: a plain Python loop over typed JSON that looks only at what it needs, without an
engine, operators or checks.

It sends what the engine sends, byte by byte: rows of a batch meet the mean that was there before it, as in
`join_latest`, where what the batch itself completes is joined to the next. A mean of 0, of which the engine would drop
the row, gives no error.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from benchmarks.riotbench.engine import Feed
from benchmarks.riotbench.flows import WINDOW
from edgert.core.batch import RawBatch

BATCH_ROWS: Final = 100


class _Entry(msgspec.Struct, gc=False):
    n: str
    v: float = 0.0


class _Pack(msgspec.Struct, gc=False):
    e: list[_Entry]
    bt: float


class _Class(msgspec.Struct, gc=False):
    time: float
    source: str
    found: str = msgspec.field(name="class")


class _Error(msgspec.Struct, gc=False):
    time: float
    source: str
    predicted: float
    error: float | None


def pred(send: Callable[[Sequence[tuple[str, bytes]]], None]) -> Callable[[RawBatch], None]:
    """The loop's body for one batch; it gives the messages that it makes to `send`, as (topic, payload)."""
    decode = msgspec.json.Decoder(_Pack, strict=False).decode  # values come as strings
    encode = msgspec.json.Encoder().encode
    blocks: dict[str, tuple[float, int]] = {}
    means: dict[str, float] = {}
    times: dict[str, float] = {}
    """Of the means: one of older rows takes no newer one's place, though it comes later (the trace begins anew)."""

    def step(batch: RawBatch) -> None:
        sent = []
        newer = {}
        for topic, payload in zip(batch.topics, batch.payloads, strict=True):
            source = topic.split("/")[1]
            pack = decode(payload)
            for entry in pack.e:
                match entry.n:
                    case "temperature":
                        temperature = entry.v
                    case "humidity":
                        humidity = entry.v
                    case "dust":
                        dust = entry.v
                    case "airquality_raw":
                        air = entry.v
            if temperature <= 24.0:
                found = "GOOD"
            else:
                found = "AVERAGE" if humidity <= 60.0 else "BAD"
            time = pack.bt / 1e3
            sent.append((f"pred/{source}/class", encode(_Class(time, source, found))))
            predicted = 22.0 + 0.12 * temperature - 0.03 * humidity + 0.002 * dust
            mean = means.get(source)
            error = abs(predicted - mean) / mean if mean else None
            sent.append((f"pred/{source}/error", encode(_Error(time, source, predicted, error))))
            total, count = blocks.get(source, (0.0, 1))
            if count == WINDOW:
                del blocks[source]
                if time >= times.get(source, 0.0):
                    times[source], newer[source] = time, (total + air) / WINDOW
            else:
                blocks[source] = total + air, count + 1
        means.update(newer)
        send(sent)

    return step


def main() -> None:
    """Says how many rows per second it does by itself, as fast as it can."""
    parser = argparse.ArgumentParser("by_hand")
    parser.add_argument("--seconds", type=float, default=2.0)
    seconds = parser.parse_args().seconds
    step, feed = pred(lambda sent: None), Feed(1.0, 1.0)
    batches = [feed.batch(first, first + BATCH_ROWS, 0.0) for first in range(0, 10 * BATCH_ROWS, BATCH_ROWS)]
    rows, began = 0, time.monotonic()
    while (passed := time.monotonic() - began) < seconds:
        for batch in batches:
            step(batch)
        rows += 10 * BATCH_ROWS
    print(rows / passed, flush=True)


if __name__ == "__main__":
    main()
