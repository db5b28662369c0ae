"""Around the alert job without Spark: its guide, its messages, its place in `edgert central run`, its metrics."""

from __future__ import annotations

import json
import logging
import queue
import re
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import paho.mqtt.client as paho
import pytest

from benchmarks.ports import free_port
from edgert.central.alerts.job import MOST_UNSAID, READER, AlertJob
from edgert.central.alerts.rules import OUTSIDE, SILENT, AlertRule, parse
from edgert.central.alerts.streams import widened
from edgert.central.alerts.table import CLEARED, RAISED, TABLE, Alerts, KeyVerdict
from edgert.central.landing.landing import Landing
from edgert.central.spark.metrics import HEAD, METRICS, StreamMetrics, served
from edgert.central.spark.streams import GIVEN_UP_S, LONGEST_WAIT_S, TRIES, CannotStart, RunningQuery
from edgert.central.tables.lease import claims
from edgert.central.tables.readers import Readers
from edgert.central.tables.table import Table
from edgert.central.training.publication import Publication
from edgert.cli.central.alerts import raised, status
from edgert.core.errors import EdgertError
from edgert.core.settings.central import Alerts as Settings
from edgert.core.settings.central import CollectorSettings
from edgert.core.settings.connection import Connection
from edgert.runtime.metrics.metric import markdown
from tests.brokers import Broker
from tests.central.results_examples import Gateway
from tests.waiting import wait_until

DOCS = Path(__file__).parents[3] / "docs"
GUIDE = (DOCS / "alerts.md").read_text(encoding="utf-8")
(EXAMPLE,) = re.findall(r"^```toml\n(.*?)^```", GUIDE, re.DOTALL | re.MULTILINE)
RULES = parse(EXAMPLE)


def make_job(root: Path, publication: Publication | None = None, rules: Sequence[AlertRule] = RULES) -> AlertJob:
    """One without a session: no flow has landed, so it starts no stream."""
    return AlertJob(cast(Any, None), str(root), rules, Settings(), publication)


def test_the_rules_of_the_guide_are_good_and_their_keys_told() -> None:
    assert [(r.name, r.kind) for r in RULES] == [
        ("quiet-sensor", SILENT), ("lost-gateway", SILENT), ("odd-value", OUTSIDE)
    ]  # fmt: skip
    for name in ("patience_s", "keys", "after_s", "column", "of", "low", "high", "margin", "days", "least", "windows"):
        assert f"`{name}`" in GUIDE
    assert f"{READER}quiet-sensor" in GUIDE


def test_bounds_are_wider_by_a_part_of_what_lies_between() -> None:
    (rule,) = (r for r in RULES if r.kind == OUTSIDE)
    assert widened(rule, [10.0, 20.0]) == (5.0, 25.0)
    assert widened(parse('[rules.a]\nflow="a"\nkind="outside-quantile"\ncolumn="t"\nhigh=0.9')[0], [7.0]) == (None, 7.0)
    assert widened(parse('[rules.a]\nflow="a"\nkind="outside-quantile"\ncolumn="t"\nlow=0.1')[0], [7.0]) == (7.0, None)


def raise_alert(root: Path, rule: AlertRule, key: str = '{"source":"a"}') -> None:
    assert len(Alerts(str(root)).take(rule, [KeyVerdict(key, 700_000_000, 100_000_000)])) == 1


def still_open(root: Path) -> set[tuple[str, str]]:
    table = Table(f"{root}/{TABLE}")
    table.refresh()
    return {(row["rule"], row["key"]) for row in table.read(["rule", "key"], f"state = '{RAISED}'")}


def test_what_rules_that_are_gone_have_left_is_cleared_and_no_stream_goes_on_from_their_places(tmp_path: Path) -> None:
    quiet, lost, odd = RULES
    for rule in (quiet, replace(lost, flow="another"), replace(odd, kind=SILENT), replace(quiet, name="gone")):
        raise_alert(tmp_path, rule)
    places = tmp_path / "_spark" / "alerts"
    kept = Path(make_job(tmp_path)._readers[READER + quiet.name].checkpoint("city-air")).parent
    for place in (kept, places / f"{quiet.name}-of-other-keys", places / "gone-1"):
        (place / "city-air" / "offsets").mkdir(parents=True)

    job = make_job(tmp_path)
    job.follow()
    assert still_open(tmp_path) == {(quiet.name, '{"source":"a"}')}
    assert job.counts == {(name, CLEARED): 1 for name in (lost.name, odd.name, "gone")}
    assert list(places.iterdir()) == [kept]


def test_a_job_whose_rules_are_all_gone_clears_what_is_open_and_ends(tmp_path: Path) -> None:
    settings = CollectorSettings()
    with raised(cast(Any, None), str(tmp_path), (), settings) as nobody:
        assert nobody is None
    raise_alert(tmp_path, RULES[0])
    with raised(cast(Any, None), str(tmp_path), (), settings) as job:
        assert job is not None
        job._thread.join(60)
        assert not job._thread.is_alive()
    assert still_open(tmp_path) == set()
    assert [claim.holder for claim in claims(str(tmp_path)) if claim.expires] == []


def test_open_alerts_of_keys_that_their_rule_has_no_more_are_cleared_when_it_starts(tmp_path: Path) -> None:
    quiet, _, odd = RULES
    for rule in (quiet, odd):
        raise_alert(tmp_path, rule)
    raise_alert(tmp_path, quiet, '{"gateway":"g1","source":"a"}')
    gateway = Gateway("g1", flow=quiet.flow)
    Landing(str(tmp_path)).land([gateway.open()])
    job = make_job(tmp_path, rules=[replace(quiet, keys=("gateway", "source")), odd])
    job.follow()
    assert len(still_open(tmp_path)) == 3
    for rule in job._rules.values():
        job._end_other_keys(Alerts(str(tmp_path)), rule)
    assert still_open(tmp_path) == {(quiet.name, '{"gateway":"g1","source":"a"}'), (odd.name, '{"source":"a"}')}


@pytest.mark.integration
def test_alerts_are_published_when_there_is_a_broker_and_rules_that_are_gone_leave_the_register(
    mosquitto: Callable[..., Broker], tmp_path: Path
) -> None:
    broker = mosquitto()
    inbox: queue.Queue[paho.MQTTMessage] = queue.Queue()
    client = paho.Client(paho.CallbackAPIVersion.VERSION2, protocol=paho.MQTTv5)  # type: ignore[attr-defined]
    subscribed: queue.Queue[bool] = queue.Queue()
    client.on_message = lambda _c, _d, message: inbox.put(message)
    client.on_subscribe = lambda *_: subscribed.put(True)
    client.connect(broker.host, broker.port)
    client.loop_start()
    client.subscribe("edgert/v1/#", 1)
    subscribed.get(timeout=60)
    for name in (f"{READER}gone", f"{READER}odd-value", "dashboard"):
        Readers(str(tmp_path)).begin(name, "landing/city-air")

    job = make_job(tmp_path, Publication(Connection(port=broker.port), "f"))
    changed = Alerts(str(tmp_path)).take(RULES[0], [KeyVerdict('{"source":"a"}', 700_000_000, 100_000_000)])
    job.note(changed)
    job.start()
    try:
        message = inbox.get(timeout=60)
        told = json.loads(message.payload)
        assert (message.topic, message.retain) == ("edgert/v1/f/@alerts/quiet-sensor", False)
        assert (told["id"], told["state"], told["key"]) == (changed[0].id, "raised", {"source": "a"})
        wait_until(lambda: len(Readers(str(tmp_path)).all()) == 2, "a register without the rule that is gone")
        assert {r.reader for r in Readers(str(tmp_path)).all()} == {f"{READER}odd-value", "dashboard"}
    finally:
        job.close()
        client.disconnect()
        client.loop_stop()
    assert inbox.empty()


@pytest.mark.integration
def test_alerts_that_the_broker_does_not_take_hold_up_no_other_rule(
    mosquitto: Callable[..., Broker], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    publication = Publication(Connection(port=mosquitto(settings="max_packet_size 2000").port), "f")
    publication.start()
    publication.wait(60)
    job = make_job(tmp_path, publication)
    alerts = Alerts(str(tmp_path))
    for rule, source in ((RULES[0], "a" * 2_000), (RULES[0], "b"), (RULES[1], "c")):
        job.note(alerts.take(rule, [KeyVerdict(json.dumps({"source": source}), 700_000_000, 100_000_000)]))
    try:
        job.say()
        assert not job._unsaid
        assert job.counts == {("", "unsaid"): 2}
        assert [r.getMessage().partition(": expected")[0] for r in caplog.records] == [
            "alerts of quiet-sensor could not be published"
        ]
    finally:
        publication.close()


def test_messages_that_wait_for_a_broker_are_bounded_and_counted(tmp_path: Path) -> None:
    job = make_job(tmp_path, Publication(Connection(port=free_port()), "f"))
    verdicts = [KeyVerdict(json.dumps({"source": n}), 700_000_000, 100_000_000) for n in range(5)]
    raised = Alerts(str(tmp_path)).take(RULES[0], verdicts)
    job.note([*raised * (MOST_UNSAID // 5), *raised[:2]])
    job.say()
    assert job.counts == {("", "unsaid"): 2}
    assert {s.metric: s.value for s in scraped(job)} == {"edgert_alert_messages_dropped_total": 2}


def test_when_all_streams_are_given_up_the_job_lives_on_and_tries_them_once_an_hour(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Nobody would start it again: the fleet job beside it is well."""
    job = make_job(tmp_path)
    clock, tries = [0.0], []
    job.look_s = 0.0
    job.streams.monotonic = lambda: clock[0]
    job.streams.on_failure = lambda: None

    def start() -> RunningQuery:
        tries.append(clock[0])
        raise CannotStart("no such column")

    job.streams.add("alert:odd", start)
    job._acquired()
    first = [LONGEST_WAIT_S * n for n in range(TRIES)]
    again = first[-1] + GIVEN_UP_S
    for clock[0] in (*first, first[-1] + 1, again - 1, again):
        job._round()
    assert tries == [*first, again]
    assert {(s.metric, s.value) for s in scraped(job) if s.metric == "edgert_stream_given_up"} == {
        ("edgert_stream_given_up", 1.0)
    }
    assert [r.getMessage() for r in caplog.records if r.levelno == logging.ERROR].count(
        "none of alert:odd can be followed; the log says why; trying again"
    ) == 1


class Sample:
    def __init__(self, metric: str, labels: dict[str, str], value: float) -> None:
        self.metric, self.labels, self.value = metric, labels, value


def scraped(job: AlertJob) -> list[Sample]:
    families = StreamMetrics(lambda: status(cast(Any, job), job)).collect()
    return [Sample(s.name, s.labels, s.value) for family in families for s in family.samples]


def test_metrics_tell_streams_restarts_and_alerts(tmp_path: Path) -> None:
    port = free_port()
    found = {
        "streams": {"landing/air": True, "alert:quiet": False, "alert:odd": None},
        "batch_s": {"landing/air": 90.5},
        "restarts": {("landing/air", "new columns"): 2},
        "alerts": {("quiet", "raised"): 3, ("", "unsaid"): 1},
        "ahead": {"quiet": 4},
    }
    with served(0, dict), served(port, lambda: found):
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
            text = answer.read().decode()
        with pytest.raises(EdgertError, match=f"expected a free port, got {port}"), served(port, dict):
            pass
    assert {line for line in text.splitlines() if not line.startswith("#")} == {
        'edgert_stream_running{stream="landing/air"} 1.0',
        'edgert_stream_running{stream="alert:quiet"} 0.0',
        'edgert_stream_running{stream="alert:odd"} 0.0',
        'edgert_stream_batch_seconds{stream="landing/air"} 90.5',
        'edgert_stream_given_up{stream="landing/air"} 0.0',
        'edgert_stream_given_up{stream="alert:quiet"} 0.0',
        'edgert_stream_given_up{stream="alert:odd"} 1.0',
        'edgert_stream_restarts_total{reason="new columns",stream="landing/air"} 2.0',
        'edgert_alerts_total{rule="quiet",state="raised"} 3.0',
        'edgert_alert_windows_ahead_total{rule="quiet"} 4.0',
        "edgert_alert_messages_dropped_total 1.0",
    }
    assert all(m.name.endswith("_total") == (m.kind == "counter") and m.doc.endswith(".") for m in METRICS)


def test_the_page_of_metrics_is_the_one_generated_from_the_declarations() -> None:
    page = DOCS / "metrics-central.md"
    assert page.read_text() == markdown(HEAD, METRICS), (
        "run: python -m edgert.central.spark.metrics > docs/metrics-central.md"
    )
