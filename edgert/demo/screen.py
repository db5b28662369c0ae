"""The demo's summary: a calm table for a terminal, one line for everything else. Pure: a view in, text out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from edgert.demo.observe import FleetRows, cell, shown
from edgert.demo.sensors import UNITS

if TYPE_CHECKING:
    from rich.console import Group, RenderableType
    from rich.table import Table
    from rich.text import Text

StepState = Literal["waiting", "starting", "ready", "ended"]


@dataclass(slots=True)
class DemoStage:
    """One thing that is started, and how far it is."""

    title: str
    state: StepState = "waiting"
    text: str = ""
    part: str = ""
    """The part of the gateways' `health` that says how it does once it is up."""
    fault: str = ""
    """Why it does not do its work although it is up; of stages that no gateway judges."""


@dataclass(frozen=True, slots=True)
class View:
    """All that the summary shows at one moment."""

    elapsed_s: float
    url: str
    gateway: str
    stages: tuple[DemoStage, ...]
    flow: str
    broker: str = ""
    """host:port."""
    status: Mapping[str, Any] = field(default_factory=dict)
    others: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Status of each further gateway, by its name."""
    fleet: FleetRows = FleetRows()
    note: str = ""
    problem: str = ""
    """Why there is no new status."""


FLEET_ROWS = 6
LEAST_FLEET_ROWS = 3
FAULT = ("✗", "bold red")
DOUBT = ("!", "yellow")
MARKS: Mapping[StepState, tuple[str, str]] = {
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


def health(view: View, level: str) -> list[Mapping[str, Any]]:
    """Parts of this level, as pages and `/healthz` have them; of several gateways with the gateway's name."""
    return [
        {**part, "text": f"{gateway}: {part['text']}"} if view.others else part
        for gateway, status in {view.gateway: view.status, **view.others}.items()
        for part in status.get("health", {}).get("parts", ())
        if part["level"] == level
    ]


def troubles(view: View) -> list[str]:
    """Parts that do not work, a line each."""
    silent = [f"gateway: no answer: {view.problem}"] if view.problem and view.status else []
    faults = [f"{stage.title}: {stage.fault}" for stage in view.stages if stage.fault]
    return silent + [str(part["text"]) for part in health(view, "bad")] + faults


def mark(stage: DemoStage, view: View) -> tuple[str, str]:
    """Its sign and colour: that of how it does, once it is up."""
    if stage.fault:
        return FAULT
    if stage.state == "ready" and view.problem:
        return DOUBT
    if stage.state == "ready" and stage.part:
        for level, sign in (("bad", FAULT), ("warning", DOUBT)):
            if any(part["part"] == stage.part for part in health(view, level)):
                return sign
    return MARKS[stage.state]


def awaited(stages: tuple[DemoStage, ...]) -> list[DemoStage]:
    """Stages that are not up yet."""
    return [stage for stage in stages if stage.state in ("waiting", "starting")]


def _operators(status: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Operators that the gateway itself runs: of others it has no figures."""
    return [o for flow in status.get("flows", ()) for o in flow["operators"] if o.get("gateway") is None]


def _dropped(status: Mapping[str, Any]) -> int:
    return sum(int(drop["rows"]) for drop in status.get("drops", ()) if drop["lost"])


def plain_line(view: View) -> str:
    """One line that tells the same, for logs and pipes."""
    status = view.status
    unready = [f"{stage.title} {stage.text or stage.state}" for stage in awaited(view.stages)]
    found = troubles(view)
    parts = [clock(view.elapsed_s)]
    if unready:
        parts.append(f"waiting for: {', '.join(unready)}")
    elif not found:
        parts.append("all ready")
    if status:
        queued = sum(int(o["queue_rows"]) for o in _operators(status))
        central, checkpoint = status["central"], status["checkpoint"]
        parts += [
            f"messages in {status['ingest']['messages']}",
            f"queued {queued}",
            f"outbox {central['outbox_rows']} rows",
            f"checkpoints {checkpoint['commits']}",
            f"dropped {_dropped(status)}",
        ]
    parts.append(f"fleet rows {view.fleet.total}")
    parts += [f"PROBLEM: {trouble}" for trouble in found]
    return " · ".join(parts)


def render(view: View, width: int = 80, height: int = 24) -> Group:
    """The whole summary, in so many columns and lines. Operators make way for the fleet's rows, and these for more."""
    from rich.console import Group
    from rich.text import Text

    parts: list[RenderableType] = [*_head(view, width), *_stages(view)]
    one_line: dict[str, Any] = {"no_wrap": True, "overflow": "ellipsis"}
    parts += [Text(f"{FAULT[0]} {trouble}", style="red", **one_line) for trouble in troubles(view)]
    if view.status:
        parts += ["", *_figures(view.status, width), *_flows(view.status)]
    left = height - len(parts) - (2 if view.note else 0)
    if view.fleet.version < 0:
        parts += ("", Text(_first_rows(view), style="dim"))[: max(0, left)]
        left -= 2
    fleet = min(len(view.fleet.rows), FLEET_ROWS) if view.fleet.version >= 0 else 0
    operators = _operators(view.status)
    if operators and left >= len(operators) + 2 + (fleet and LEAST_FLEET_ROWS + 3):
        parts += ["", _operator_table(operators)]
        left -= len(operators) + 2
    if fleet and left > 3:
        parts += ["", _fleet_table(view, width, min(fleet, left - 3))]
    if view.note:
        parts += ["", Text(view.note, **one_line)]
    return Group(*parts)


def _head(view: View, width: int) -> list[Text]:
    from rich.text import Text

    name = Text.assemble(("edgert demo", "bold"), f"  {view.gateway}  ", (clock(view.elapsed_s), "dim"), "  ")
    where = Text(f"{view.url}  MQTT {view.broker}  Ctrl-C ends", style="cyan")
    if name.cell_len + where.cell_len <= width:
        return [name + where]
    return [name, where]


def _first_rows(view: View) -> str:
    if awaited(view.stages):
        return "The first rows of the fleet table come once all of these are up, and a window has closed."
    return f"No rows of the fleet table {view.flow} yet: a window has to close first, then Spark takes some seconds."


def _stages(view: View) -> list[Text]:
    """One line each while something is awaited, then one line for all, which leaves room for rows."""
    from rich.text import Text

    signs = [(stage, *mark(stage, view)) for stage in view.stages]
    if not awaited(view.stages):
        line = Text("  ").join(Text(f"{sign} {stage.title}", style=style) for stage, sign, style in signs)
        line.no_wrap = True
        return [line]
    widest = max(len(stage.title) for stage in view.stages)
    return [
        Text.assemble((f"{sign} {stage.title:{widest}}  ", style), (stage.text or stage.state, "dim"), no_wrap=True,
                      overflow="ellipsis")
        for stage, sign, style in signs
    ]  # fmt: skip


def _figures(status: Mapping[str, Any], width: int) -> list[Text]:
    from rich.text import Text

    central, checkpoint, dropped = status["central"], status["checkpoint"], _dropped(status)
    lines = [Text()]
    for title, value, more in (
        ("messages", f"{status['ingest']['messages']:,}", f"{status['ingest'].get('rate') or 0.0:,.1f}/s"),
        ("outbox", f"{central['outbox_rows']:,} rows", size(central["outbox_bytes"])),
        ("checkpoints", f"{checkpoint['commits']:,}", f"last {checkpoint['last_ms']:.1f} ms"),
        ("dropped", f"{dropped:,} rows", ""),
        ("gateway", size(status["rss_bytes"]), f"{status['cpu_percent']:.1f} % CPU"),
    ):
        warn = "bold yellow" if title == "dropped" and dropped else "bold"
        figure = Text.assemble((f"{title} ", "dim"), (value, warn), (f" {more}" if more else "", "dim"))
        if lines[-1].cell_len + figure.cell_len + 3 > width and lines[-1].cell_len:
            lines.append(Text())
        lines[-1].append_text(figure + Text("   "))
    return lines


def _flows(status: Mapping[str, Any]) -> list[Text]:
    """A line for each flow."""
    from rich.text import Text

    lines = []
    for flow in status["flows"]:
        sources = [o for o in flow["operators"] if str(o["type"]).endswith("source")]
        rows, rate = sum(int(o["rows_out"]) for o in sources), sum(float(o["rate_in"]) for o in sources)
        condition = flow.get("condition", {"level": "good", "state": flow["state"]})
        style = {"bad": "red", "warning": "yellow", "idle": "dim"}.get(condition["level"], "green")
        figures = (
            f"  {rows:,} rows in, {rate:,.1f}/s, {flow['rows_shipped']:,} shipped, {flow.get('dropped', 0):,} dropped"
        )
        lines.append(Text.assemble(f"flow {flow['name']} ", (condition["state"], style), figures, no_wrap=True))
    return lines


def _plain_table(*columns: tuple[str, Literal["left", "right"]]) -> Table:
    from rich.table import Table

    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", pad_edge=False)
    for name, justify in columns:
        table.add_column(name, justify=justify, no_wrap=True)
    return table


def _operator_table(operators: list[Mapping[str, Any]]) -> Table:
    table = _plain_table(
        ("operator", "left"), ("type", "left"), ("rows in", "right"), ("rows/s", "right"), ("rows queued", "right")
    )
    for operator in operators:
        table.add_row(
            operator["name"],
            operator["type"],
            f"{operator['rows_in']:,}",
            f"{operator['rate_in']:,.1f}",
            f"{operator['queue_rows']:,}",
        )
    return table


def _fleet_table(view: View, width: int, count: int) -> Table:
    """The newest rows; of the columns those that fit, from the left."""
    fleet = view.fleet
    rows = fleet.rows[:count]
    columns: list[int] = []
    cells: list[list[str]] = []
    used = 0
    for at in shown(fleet.columns):
        column = [_with_unit(fleet.columns[at], row[at]) for row in rows]
        used += max(map(len, [fleet.columns[at], *column])) + 2
        if used > width + 2 and columns:
            break
        columns.append(at)
        cells.append(column)
    newest = rows[0] if rows else ()
    numbers = [bool(newest) and isinstance(newest[at], (int, float)) for at in columns]
    table = _plain_table(
        *((fleet.columns[at], "right" if number else "left") for at, number in zip(columns, numbers, strict=True))
    )
    table.title = f"fleet table {view.flow}: {fleet.total:,} rows, the newest"
    table.title_justify = "left"
    table.title_style = "bold"
    for row in zip(*cells, strict=True):
        table.add_row(*row)
    return table


def _with_unit(column: str, value: object) -> str:
    """A cell; the name of a quantity of this machine with its unit."""
    unit = UNITS.get(str(value)) if column == "quantity" else None
    return f"{cell(value)}, {unit}" if unit else cell(value)
