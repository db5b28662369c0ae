from __future__ import annotations

import io
from datetime import UTC, datetime

import pytest
from rich.console import Console

from edgert.demo.observe import FleetRows
from edgert.demo.run import progress
from edgert.demo.screen import DemoStage, View, clock, plain_line, render, size
from edgert.demo.show import DemoLines
from tests.status_example import example_status, judged, operator

FLEET = FleetRows(
    ("window_start", "window_end", "source", "n", "mean", "gateways", "day"),
    ((datetime(2026, 1, 1, tzinfo=UTC), None, "a1", 10, 2.51234567, 1, None),),
    total=1234,
    version=3,
)


def view(**changes: object) -> View:
    stages = (DemoStage("gateway", "ready", "g1"), DemoStage("Spark job", "starting", "10 s"))
    base: dict[str, object] = {
        "elapsed_s": 65.0,
        "url": "http://127.0.0.1:1/",
        "broker": "127.0.0.1:2",
        "gateway": "g1",
        "stages": stages,
    }
    return View(**{**base, "flow": "air", **changes})  # type: ignore[arg-type]


def drawn(shown: View, width: int = 120, height: int = 40) -> str:
    out = io.StringIO()
    Console(file=out, width=width, no_color=True).print(render(shown, width, height))
    return out.getvalue()


def test_the_summary_shows_stages_rows_queues_outbox_and_the_newest_fleet_rows() -> None:
    text = drawn(view(status=example_status(), fleet=FLEET))
    for expected in (
        "✓ gateway",
        "… Spark job",
        "10 s",
        "messages 100",
        "flow air running  100 rows in, 10.0/s, 10 shipped, 7 dropped",
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
    assert "rows, the newest" not in text
    assert "The first rows of the fleet table come once all of these are up" in text


UP = tuple(
    DemoStage(title, "ready", "up", part)
    for title, part in (
        ("MQTT broker", "sensors"), ("gateway", "checkpoint"), ("flow machine", "flow"), ("sensors", ""),
        ("collector", "central"), ("Spark job", ""),
    )
)  # fmt: skip
MACHINE = FleetRows(
    ("window_start", "window_end", "source", "quantity", "n", "mean", "minimum", "maximum", "variance"),
    tuple(
        (datetime(2026, 1, 1, tzinfo=UTC), None, "raspberrypi-cpu0", quantity, 10, 2.5, 1.5, 3.5, 145_460_000_000.5)
        for quantity in ("busy", "frequency", "temperature") * 2
    ),
    total=1234,
    version=3,
)


@pytest.mark.parametrize("ready", [True, False])
@pytest.mark.parametrize("operators", [3, 7, 30])
def test_a_terminal_of_80_by_24_shows_all_that_matters(ready: bool, operators: int) -> None:
    status = example_status()
    [flow] = status["flows"]
    flow["operators"] = [operator(f"operator-{n}", "tumbling_window", 123_456) for n in range(operators)]
    stages = UP if ready else tuple(DemoStage(stage.title, "starting", "x" * 100) for stage in UP)
    shown = view(
        status=judged(status), fleet=MACHINE, stages=stages, url="http://127.0.0.1:8080/", gateway="raspberrypi"
    )
    lines = drawn(shown, 80, 24).splitlines()
    assert len(lines) <= 24
    assert max(map(len, lines)) <= 80
    text = "\n".join(lines)
    for expected in ("http://127.0.0.1:8080/", "Ctrl-C ends", "flow air", "MQTT broker", "outbox 20 rows"):
        assert expected in text, expected
    if ready:
        assert "fleet table air: 1,234 rows, the newest" in text
        assert "temperature, °C" in text
        assert "raspberrypi-cpu0" in text


def test_a_broker_that_hangs_and_a_dead_collector_lose_their_ticks() -> None:
    status = example_status()
    well = drawn(view(status=judged(status), stages=UP))
    assert well.count("✓") == 6
    status["ingest"] |= {"connected": False, "error": "no answer to a ping"}
    status["central"] |= {"unacknowledged_s": 90.0, "outbox_rows": 437}
    status["flows"][0] |= {"unacknowledged_s": 90.0, "outbox_rows": 437}
    ill = view(status=judged(status), stages=UP)
    text = drawn(ill, 80)
    for expected in (
        "✗ MQTT broker",
        "✗ collector",
        "! flow machine",
        "✗ sensors' broker: 127.0.0.1:1883: no answer to a ping",
    ):
        assert expected in text, expected
    assert "PROBLEM: central: " in plain_line(ill)
    silent = view(status=judged(example_status()), stages=UP, problem="TimeoutError: timed out")
    assert "gateway: no answer: TimeoutError: timed out" in drawn(silent)
    assert "✓" not in drawn(silent)


def test_sensors_and_spark_lose_their_ticks_with_what_they_do_not_achieve() -> None:
    stages = (*UP[:3], DemoStage("sensors", "ready", "up", fault="the gateway has taken no message for 40 s"), *UP[4:])
    ill = view(status=judged(example_status()), stages=stages)
    assert "✗ sensors" in drawn(ill)
    assert "PROBLEM: sensors: the gateway has taken no message for 40 s" in plain_line(ill)


def test_of_several_gateways_each_is_judged() -> None:
    second = example_status()
    second["central"] |= {"unacknowledged_s": 90.0, "outbox_rows": 437}
    ill = view(status=judged(example_status()), stages=UP, others={"g1-2": judged(second)})
    text = drawn(ill, 200)
    assert "✗ collector" in text
    assert "✓ flow machine" in text
    assert "✗ g1-2: central: 127.0.0.1:1883: connected, but no collector" in text


def test_the_wait_for_spark_is_told_with_its_progress() -> None:
    assert progress(40.0, None).startswith("█████░░░░░ 40 of some 80 s to the first fleet rows (the first time")
    assert progress(5.0, 20.0) == "██░░░░░░░░ 5 of some 20 s to the first fleet rows (as the last time)"
    assert "slower than expected" in progress(50.0, 20.0)


def test_stages_take_one_line_once_all_are_up() -> None:
    up = (DemoStage("gateway", "ready", "g1"), DemoStage("sensors", "ended", "the trace is at its end"))
    assert "✓ gateway  ✓ sensors" in drawn(view(stages=up))


def test_the_plain_line_says_what_is_awaited_and_the_figures() -> None:
    assert plain_line(view(status=example_status(), fleet=FLEET)) == (
        "1:05 · waiting for: Spark job 10 s · messages in 100 · queued 0 · outbox 20 rows · checkpoints 3 · dropped 7"
        " · fleet rows 1234"
    )
    assert plain_line(view(stages=(DemoStage("gateway", "ready"),))) == "1:05 · all ready · fleet rows 0"
    hangs = plain_line(view(stages=(DemoStage("broker", "ready", fault="does not answer"),)))
    assert hangs == "1:05 · fleet rows 0 · PROBLEM: broker: does not answer"


def test_the_plain_line_never_counts_back_when_a_flow_is_removed() -> None:
    status = example_status()
    status["flows"] = []
    assert "messages in 100" in plain_line(view(status=status))


def test_lines_tell_each_change_of_a_stage_once(capsys: pytest.CaptureFixture[str]) -> None:
    lines = DemoLines()
    lines.show(view())
    lines.show(view())
    assert capsys.readouterr().out == "gateway: ready, g1\nSpark job: starting, 10 s\n"
    lines.show(view(stages=(DemoStage("gateway", "ready"), DemoStage("Spark job", "ready", "runs"))), last=True)
    assert capsys.readouterr().out.startswith("Spark job: ready, runs\n1:05 · all ready")


def test_times_and_sizes_are_short() -> None:
    assert [clock(s) for s in (5, 65, 3661)] == ["0:05", "1:05", "1:01:01"]
    assert [size(n) for n in (999, 90_231, 48_200_000, 3.25e9)] == ["999 B", "90 kB", "48 MB", "3.2 GB"]
