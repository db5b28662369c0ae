"""How long after its end a window's result arrives at the central side.

A window has ended when the message that lets the watermark pass its end is published: one of a time past the end by
`out_of_order_s` of the source, and by one round of its sensors. From then to the arrival of the window's last row pass
a checkpoint, the links between the boards and the uplink, and the pause of a move that falls in between. Results of a
flow whose source's board is down count from when that board is ready again: its messages wait at the broker."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

BOUND_S: Final = 10.0
"""A result that comes later than this after its window's end is not on time."""
OUT_OF_ORDER_S: Final = 2.0
"""Default of sources."""
WINDOW_S: Final = 10.0
BATCH: Final = ("gateway", "epoch", "stream", "sequence")
"""Columns that name the batch with which a row came."""


def with_arrival(rows: Iterable[Mapping[str, Any]], table: Path) -> list[dict[str, Any]]:
    """The rows of a landing table, each with `received`: when the first file that has it was written, seconds since
    1970: a compaction writes it once more. `table`: the table's folder."""
    from pyarrow import parquet

    written: dict[tuple[Any, ...], float] = {}
    for file in table.rglob("*.parquet"):
        for batch in parquet.ParquetFile(file).read(columns=list(BATCH)).to_pylist():
            name, at = tuple(map(batch.get, BATCH)), file.stat().st_mtime
            written[name] = min(written.get(name, at), at)
    return [{**row, "received": written[tuple(map(row.get, BATCH))]} for row in rows]


class Down(NamedTuple):
    """The time in which a board did not run, seconds since 1970."""

    board: str
    since: float
    until: float


class Sent(NamedTuple):
    """The messages of one flow."""

    source: str
    """Board of its source."""
    first_s: float
    """Event time of the first message."""
    step_s: float
    """Event time from one to the next."""
    round_s: float
    """Event time of one round of its sensors."""
    at: Sequence[float]
    """When each was published, seconds since 1970."""

    def ended(self, start_s: float) -> float | None:
        """When the window from `start_s` had ended; None if the removal of the flow ended it."""
        past = start_s + WINDOW_S + OUT_OF_ORDER_S + self.round_s - self.first_s
        number = round(past / self.step_s)
        return self.at[number] if number < len(self.at) else None


@dataclass(slots=True)
class Delays:
    """Of the windows of all flows, in seconds."""

    before: list[float] = field(default_factory=list)
    """Of windows that had ended, and come, before the first drain."""
    meanwhile: list[float] = field(default_factory=list)
    """Of the others."""
    waited: list[float] = field(default_factory=list)
    """Of windows whose source's board was down, from when it was ready again."""

    def add(self, sent: Sent, rows: Iterable[Mapping[str, Any]], began: float, downs: Sequence[Down]) -> None:
        """`rows`: as `with_arrival` gives them; `began`: when the first drain did, seconds since 1970."""
        came: dict[tuple[float, str], float] = {}
        for row in rows:
            key = row["window_start"].timestamp(), row["source"]
            came[key] = max(came.get(key, 0.0), row["received"])
        for (start_s, _), at in came.items():
            if (ended := sent.ended(start_s)) is None:
                continue
            back = [one.until for one in downs if one.board == sent.source and ended < one.until and at > one.since]
            kind = self.waited if back else self.before if at < began else self.meanwhile
            kind.append(round(at - max([ended, *back]), 2))

    @property
    def slow(self) -> int:
        """Windows that were not on time."""
        return sum(delay > BOUND_S for kind in (self.before, self.meanwhile, self.waited) for delay in kind)

    def plain(self) -> dict[str, Any]:
        """Number and worst of each kind."""
        kinds = {"before": self.before, "meanwhile": self.meanwhile, "source down": self.waited}
        return {name: {"windows": len(kind), "worst_s": max(kind, default=0.0)} for name, kind in kinds.items()}

    def __str__(self) -> str:
        told = [f"{name}: {one['windows']}, worst {one['worst_s']:.1f} s" for name, one in self.plain().items()]
        return f"windows after their end: {'; '.join(told)}; {self.slow} over {BOUND_S:g} s"
