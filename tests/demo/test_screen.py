from __future__ import annotations

import io
from datetime import UTC, datetime

import pytest
from rich.console import Console

from edgert.demo.observe import FleetRows
from edgert.demo.screen import Stage, View, clock, plain_line, render, size
from edgert.demo.show import Lines
from tests.gateway.status_example import example_status

FLEET = FleetRows(
    ("window_start", "window_end", "source", "n", "mean", "gateways", "day"),
    ((datetime(2026, 1, 1, tzinfo=UTC), None, "a1", 10, 2.51234567, 1, None),),
    total=1234,
    version=3,
)


def view(**changes: object) -> View:
    stages = (Stage("gateway", "ready", "g1"), Stage("Spark job", "starting", "10 s"))
    base: dict[str, object] = {
        "elapsed_s": 65.0,
        "url": "http://127.0.0.1:1/",
        "broker": "127.0.0.1:2",
        "gateway": "g1",
        "stages": stages,
    }
    return View(**{**base, "flow": "air", **changes})  # type: ignore[arg-type]


def drawn(shown: View) -> str:
    out = io.StringIO()
    Console(file=out, width=120, no_color=True).print(render(shown))
    return out.getvalue()


def test_the_summary_shows_stages_rows_queues_outbox_and_the_newest_fleet_rows() -> None:
    text = drawn(view(status=example_status(), fleet=FLEET))
    for expected in (
        "✓ gateway",
        "… Spark job",
        "10 s",
        "rows in 100",
        "outbox 20 rows",
        "mqtt_source",
        "http://127.0.0.1:1/",
        "127.0.0.1:2",
    ):
        assert expected in text, expected
    assert "fleet table air: 1,234 rows" in text
    assert "2.5123" in text
    assert "gateways" not in text


def test_the_summary_needs_neither_gateway_nor_table_yet() -> None:
    text = drawn(view())
    assert "rows in" not in text
    assert "fleet table" not in text


def test_stages_take_one_line_once_all_are_up() -> None:
    up = (Stage("gateway", "ready", "g1"), Stage("sensors", "ended", "the trace is at its end"))
    assert "✓ gateway  ✓ sensors" in drawn(view(stages=up))


def test_the_plain_line_says_what_is_awaited_and_the_figures() -> None:
    assert plain_line(view(status=example_status(), fleet=FLEET)) == (
        "1:05 · waiting for: Spark job starting · rows in 100 · queued 0 · outbox 20 rows · checkpoints 3 · dropped 7"
        " · fleet rows 1234"
    )
    assert plain_line(view(stages=(Stage("gateway", "ready"),))) == "1:05 · all ready · fleet rows 0"


def test_lines_tell_each_change_of_a_stage_once(capsys: pytest.CaptureFixture[str]) -> None:
    lines = Lines()
    lines.show(view())
    lines.show(view())
    assert capsys.readouterr().out == "gateway: ready, g1\nSpark job: starting, 10 s\n"
    lines.show(view(stages=(Stage("gateway", "ready"), Stage("Spark job", "ready", "runs"))), last=True)
    assert capsys.readouterr().out.startswith("Spark job: ready, runs\n1:05 · all ready")


def test_times_and_sizes_are_short() -> None:
    assert [clock(s) for s in (5, 65, 3661)] == ["0:05", "1:05", "1:01:01"]
    assert [size(n) for n in (999, 90_231, 48_200_000, 3.25e9)] == ["999 B", "90 kB", "48 MB", "3.2 GB"]
