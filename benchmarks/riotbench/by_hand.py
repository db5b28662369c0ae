"""PRED as one would write it by hand: a plain Python loop over typed JSON, without an engine, operators or checks."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import msgspec

from benchmarks.riotbench.flows import WINDOW
from edgert.core.batch import RawBatch


class _Entry(msgspec.Struct):
    n: str
    v: str | float = 0.0
    sv: str = ""


class _Pack(msgspec.Struct):
    e: list[_Entry]
    bt: float


def pred(told: list[int]) -> Callable[[RawBatch], None]:
    """The loop's body for one batch; adds the messages that it makes to `told`."""
    decode = msgspec.json.Decoder(_Pack).decode
    windows: dict[str, deque[float]] = {}

    def step(batch: RawBatch) -> None:
        sent = []
        for payload in batch.payloads:
            pack = decode(payload)
            row = {entry.n: (entry.sv or float(entry.v)) for entry in pack.e}
            source, temperature, humidity = row["source"], row["temperature"], row["humidity"]
            if temperature <= 24.0:  # type: ignore[operator]
                found = "GOOD"
            else:
                found = "AVERAGE" if humidity <= 60.0 else "BAD"  # type: ignore[operator]
            time = pack.bt / 1e3
            sent.append((f"pred/{source}/class", f'{{"time":{time},"source":"{source}","class":"{found}"}}'.encode()))
            predicted = 22.0 + 0.12 * temperature - 0.03 * humidity + 0.002 * row["dust"]  # type: ignore[operator]
            window = windows.get(source)  # type: ignore[arg-type]
            if window is None:
                window = windows[source] = deque(maxlen=WINDOW)  # type: ignore[index]
            window.append(row["airquality_raw"])  # type: ignore[arg-type]
            mean = sum(window) / len(window)
            error = abs(predicted - mean) / mean if mean else 0.0
            text = f'{{"time":{time},"source":"{source}","predicted":{predicted},"error":{error}}}'
            sent.append((f"pred/{source}/error", text.encode()))
        told[0] += len(sent)

    return step
