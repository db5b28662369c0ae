"""The demo's summary: a calm table for a terminal, one line for everything else. Pure: a view in, text out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from edgert.demo.observe import FleetRows, cell, shown

if TYPE_CHECKING:
    from rich.console import Group, RenderableType
    from rich.table import Table
    from rich.text import Text

State = Literal["waiting", "starting", "ready", "ended"]


@dataclass(slots=True)
class Stage:
    """One thing that is started, and how far it is."""

    title: str
    state: State = "waiting"
    text: str = ""


@dataclass(frozen=True, slots=True)
class View:
    """All that the summary shows at one moment."""

    elapsed_s: float
    url: str
    gateway: str
    stages: tuple[Stage, ...]
    flow: str
    broker: str = ""
    """host:port."""
    status: Mapping[str, Any] = field(default_factory=dict)
    fleet: FleetRows = FleetRows()
    note: str = ""


MARKS: Mapping[State, tuple[str, str]] = {
    "waiting": ("·", "dim"),
    "starting": ("…", "yellow"),
    "ready": ("✓", "green"),
    "ended": ("✓", "dim"),
}


def clock(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def size(count: float) -> str:
    for unit in ("B", "kB", "MB"):
        if count < 1000:
            return f"{count:.0f} {unit}"
        count /= 1000
    return f"{count:.1f} GB"


def rows_in(status: Mapping[str, Any]) -> int:
    """Rows that came out of all sources."""
    return sum(int(o["rows_out"]) for o in _operators(status) if str(o["type"]).endswith("source"))


def awaited(stages: tuple[Stage, ...]) -> list[Stage]:
    """What is not up yet."""
    return [stage for stage in stages if stage.state in ("waiting", "starting")]


def _operators(status: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [operator for flow in status.get("flows", ()) for operator in flow["operators"]]


def _dropped(status: Mapping[str, Any]) -> int:
    return sum(int(drop["rows"]) for drop in status.get("drops", ()))


def plain_line(view: View) -> str:
    """One line that tells the same, for logs and pipes."""
    status = view.status
    unready = [f"{stage.title} {stage.state}" for stage in awaited(view.stages)]
    parts = [clock(view.elapsed_s), f"waiting for: {', '.join(unready)}" if unready else "all ready"]
    if status:
        queued = sum(int(o["queue_rows"]) for o in _operators(status))
        central, checkpoint = status["central"], status["checkpoint"]
        parts += [
            f"rows in {rows_in(status)}",
            f"queued {queued}",
            f"outbox {central['outbox_rows']} rows",
            f"checkpoints {checkpoint['commits']}",
            f"dropped {_dropped(status)}",
        ]
    parts.append(f"fleet rows {view.fleet.total}")
    return " · ".join(parts)


def render(view: View) -> Group:
    """The whole summary."""
    from rich.console import Group

    parts: list[RenderableType] = [_head(view), _stages(view.stages), ""]
    if view.status:
        parts += [_figures(view.status), "", _operator_table(view.status), ""]
    if view.fleet.version >= 0:
        parts += [_fleet_table(view)]
    if view.note:
        parts += ["", view.note]
    return Group(*parts)


def _head(view: View) -> Table:
    from rich.table import Table
    from rich.text import Text

    grid = Table.grid(expand=True, padding=(0, 1))
    grid.add_column()
    grid.add_column(justify="right")
    left = Text.assemble(("edgert demo", "bold"), f"  {view.gateway}  ", (clock(view.elapsed_s), "dim"))
    grid.add_row(left, Text(f"{view.url}   MQTT {view.broker}   Ctrl-C ends", style="cyan"))
    return grid


def _stages(stages: tuple[Stage, ...]) -> RenderableType:
    """One line each while something is awaited, then one line for all, which leaves room for rows."""
    from rich.table import Table
    from rich.text import Text

    if not awaited(stages):
        return Text("  ").join(Text(f"{MARKS[s.state][0]} {s.title}", style=MARKS[s.state][1]) for s in stages)
    grid = Table.grid(padding=(0, 2))
    for stage in stages:
        mark, style = MARKS[stage.state]
        grid.add_row(Text(f"{mark} {stage.title}", style=style), Text(stage.text or stage.state, style="dim"))
    return grid


def _figures(status: Mapping[str, Any]) -> Text:
    from rich.text import Text

    rate = sum(float(o["rate_in"]) for o in _operators(status) if str(o["type"]).endswith("source"))
    central, checkpoint, dropped = status["central"], status["checkpoint"], _dropped(status)
    line = Text()
    for title, value, more in (
        ("rows in", f"{rows_in(status):,}", f"{rate:,.1f}/s"),
        ("outbox", f"{central['outbox_rows']:,} rows", size(central["outbox_bytes"])),
        ("checkpoints", f"{checkpoint['commits']:,}", f"last {checkpoint['last_ms']:.1f} ms"),
        ("dropped", f"{dropped:,}", ""),
        ("gateway", size(status["rss_bytes"]), f"{status['cpu_percent']:.1f} % CPU"),
    ):
        warn = "bold yellow" if title == "dropped" and dropped else "bold"
        line.append(f"{title} ", style="dim")
        line.append(value, style=warn)
        line.append(f" {more}    " if more else "    ", style="dim")
    return line


def _plain_table(*columns: tuple[str, Literal["left", "right"]]) -> Table:
    from rich.table import Table

    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", pad_edge=False)
    for name, justify in columns:
        table.add_column(name, justify=justify, no_wrap=True)
    return table


def _operator_table(status: Mapping[str, Any]) -> Table:
    table = _plain_table(
        ("operator", "left"), ("type", "left"), ("rows in", "right"), ("rows/s", "right"), ("queue", "right")
    )
    for operator in _operators(status):
        table.add_row(
            operator["name"],
            operator["type"],
            f"{operator['rows_in']:,}",
            f"{operator['rate_in']:,.1f}",
            f"{operator['queue_rows']:,}",
        )
    return table


def _fleet_table(view: View) -> Table:
    fleet = view.fleet
    places = shown(fleet.columns)
    newest = fleet.rows[0] if fleet.rows else ()
    numbers = [bool(newest) and isinstance(newest[place], (int, float)) for place in places]
    table = _plain_table(
        *((fleet.columns[place], "right" if number else "left") for place, number in zip(places, numbers, strict=True))
    )
    table.title = f"fleet table {view.flow}: {fleet.total:,} rows, the newest"
    table.title_justify = "left"
    table.title_style = "bold"
    for row in fleet.rows:
        table.add_row(*(cell(row[place]) for place in places))
    return table
