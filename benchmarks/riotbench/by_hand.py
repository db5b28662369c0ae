"""PRED as one would write it by hand: a plain Python loop over typed JSON, without an engine, operators or checks.

It sends what the engine sends: rows of a batch meet the mean that was there before it, as in `join_latest`, where what
the batch itself completes is joined to the next. A mean of 0, of which the engine would drop the row, gives no error.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from benchmarks.riotbench.engine import Feed
from benchmarks.riotbench.flows import WINDOW
from edgert.core.batch import RawBatch

BATCH_ROWS: Final = 100


class _Entry(msgspec.Struct):
    n: str
    v: str | float = 0.0
    sv: str = ""


class _Pack(msgspec.Struct):
    e: list[_Entry]
    bt: float


def pred(send: Callable[[Sequence[tuple[str, bytes]]], None]) -> Callable[[RawBatch], None]:
    """The loop's body for one batch; it gives the messages that it makes to `send`, as (topic, payload)."""
    decode = msgspec.json.Decoder(_Pack).decode
    blocks: dict[str, list[float]] = {}
    means: dict[str, float] = {}

    def step(batch: RawBatch) -> None:
        sent = []
        newer = {}
        for payload in batch.payloads:
            pack = decode(payload)
            row: dict[str, Any] = {entry.n: (entry.sv or float(entry.v)) for entry in pack.e}
            source, temperature, humidity = row["source"], row["temperature"], row["humidity"]
            if temperature <= 24.0:
                found = "GOOD"
            else:
                found = "AVERAGE" if humidity <= 60.0 else "BAD"
            time = pack.bt / 1e3
            sent.append((f"pred/{source}/class", f'{{"time":{time},"source":"{source}","class":"{found}"}}'.encode()))
            predicted = 22.0 + 0.12 * temperature - 0.03 * humidity + 0.002 * row["dust"]
            block = blocks.get(source)
            if block is None:
                block = blocks[source] = []
            block.append(row["airquality_raw"])
            if len(block) == WINDOW:
                newer[source] = sum(block) / WINDOW
                block.clear()
            mean = means.get(source)
            error = abs(predicted - mean) / mean if mean else "null"
            text = f'{{"time":{time},"source":"{source}","predicted":{predicted},"error":{error}}}'
            sent.append((f"pred/{source}/error", text.encode()))
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
