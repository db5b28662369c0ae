"""The stateful processors in Spark's own tester, which needs neither Java nor a session."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import Row
from pyspark.sql.streaming.tws_tester import TwsTester

from edgert.central.alerts.rules import parse
from edgert.central.alerts.silence import SilenceLimits
from edgert.central.alerts.state import Silence, Windows
from edgert.central.alerts.streams import RuleStream, rule_stream
from edgert.central.alerts.table import CLEARED, RAISED, Alerts
from edgert.central.landing.landing import Landing
from edgert.core.results.result_schema import Schema
from tests.central import results_examples as results

MIN = 60_000
LIMITS = SilenceLimits(after=10 * MIN, patience=60 * MIN)
Said = list[tuple[str, int, int | None]]


class Gateway:
    """One group. Times in minutes."""

    def __init__(self) -> None:
        self.tester = TwsTester(Silence(LIMITS), timeMode="ProcessingTime")
        self.now = 0.0

    def batch(self, now: float, **ends: float) -> Said:
        """What timers say, then what rows of these ends do."""
        said = self.wait(now)
        rows = [Row(key=key, ends=round(end * MIN * 1000)) for key, end in ends.items()]
        return said + told(self.tester.test("g1", rows))

    def wait(self, now: float) -> Said:
        if now == self.now:
            return []
        self.now = now
        return told(cast(list[Row], self.tester.setProcessingTime(round(now * MIN))))


def told(rows: list[Row]) -> Said:
    def minutes(micros: int) -> int:
        return round(micros / 1000 / MIN)

    return sorted((r.key, minutes(r.at), None if r.since is None else minutes(r.since)) for r in rows)


def test_a_key_is_told_when_it_is_new_when_it_is_silent_and_when_it_is_back() -> None:
    gateway = Gateway()
    assert gateway.batch(100, a=100, b=100) == [("a", 100, None), ("b", 100, None)]
    assert gateway.batch(105, a=105) == []
    assert gateway.batch(111, a=111) == [("b", 111, 100)]
    assert gateway.batch(115, a=115) == []
    assert gateway.batch(120, a=120, b=119) == [("b", 119, None)]


def test_a_device_whose_clock_was_ahead_is_silent_as_any_other_and_its_windows_are_counted() -> None:
    gateway = Gateway()
    year = 525_600.0
    ahead = Row(key=None, at=1, since=None)
    gateway.wait(100)
    said = gateway.tester.test("g1", [Row(key="a", ends=round(20 * year * MIN * 1000))])
    assert said[0] == ahead
    assert told(said[1:]) == [("a", 100, None)]
    assert gateway.batch(101, a=101, b=101) == [("b", 101, None)]
    assert gateway.batch(108, b=108) == []
    assert gateway.batch(112, b=112) == [("a", 112, 101)]


def test_an_outage_is_nobodys_silence_until_the_patience_ends() -> None:
    gateway = Gateway()
    gateway.batch(100, a=100, b=98)
    assert gateway.wait(159) == []
    assert gateway.wait(161) == [("a", 161, 100), ("b", 161, 98)]
    assert gateway.wait(1000) == []
    assert gateway.batch(1001, a=101) == [("a", 101, None)]


def test_a_backlog_is_no_silence() -> None:
    gateway = Gateway()
    gateway.batch(100, a=100, b=100)
    assert gateway.batch(150, a=150, b=101) == [("a", 150, None), ("b", 101, None)]
    assert gateway.batch(155, a=155, b=102) == [("b", 102, None)]
    assert gateway.wait(166) == [("b", 155, 102)], "nothing of b came for ten minutes, of the gateway neither"


@given(st.lists(st.tuples(st.integers(0, 30), st.dictionaries(st.sampled_from("abc"), st.integers(-40, 3), min_size=1)),
                min_size=1, max_size=15))  # fmt: skip
def test_each_silence_is_said_once_until_the_key_is_heard_and_all_are_silent_in_the_end(
    steps: list[tuple[int, dict[str, int]]],
) -> None:
    gateway, now = Gateway(), 1000
    alive: set[str] = set()

    def check(said: Said) -> None:
        for key, _, since in sorted(said, key=lambda s: s[2] is None):  # timers come first
            assert key in alive or since is None
            (alive.add if since is None else alive.remove)(key)

    for later, ends in steps:
        now += later
        check(gateway.wait(now))
        check(gateway.batch(now, **{key: now + end for key, end in ends.items()}))
        assert set(ends) <= alive
    for _ in range(10):
        now += 100
        check(gateway.wait(now))
    assert alive == set()


class Batch:
    """What a stream's batch holds, without a session."""

    def __init__(self, rows: list[Row]) -> None:
        self._rows = rows

    def collect(self) -> list[Row]:
        return self._rows


@pytest.mark.parametrize("gap", [1, 12])
def test_an_alert_is_cleared_by_a_gateway_that_was_out_and_had_heard_the_key_before(tmp_path: Path, gap: int) -> None:
    """Its key is none that is new there: nobody else tells that it is well. `gap`: minutes between its windows."""
    landing, alerts = Landing(str(tmp_path)), Alerts(str(tmp_path))
    gateways = {name: results.Gateway(name) for name in ("g1", "g2")}
    testers = {name: TwsTester(Silence(LIMITS), timeMode="ProcessingTime") for name in gateways}
    landing.land([g.open() for g in gateways.values()])
    (rule,) = parse('[rules.quiet]\nflow = "air"\nkind = "silent"\nafter_s = 600\n')
    stream = rule_stream(rule, results.FLOW, results.SCHEMA, str(tmp_path), alerts)

    def comes(now: int, gateway: str, **ends: int) -> list[tuple[str, str]]:
        """Rows land and are a batch; in minutes since `START`. Returns the alerts that change."""
        landing.land([gateways[gateway].rows(*(results.contribution(end - 1, k, 1.0) for k, end in ends.items()))])
        said = testers[gateway].setProcessingTime(round(results.START * 1000) + now * MIN)
        rows = [Row(key=f'{{"source":"{k}"}}', ends=round((results.START + e * 60) * 1e6)) for k, e in ends.items()]
        said = [*cast(list[Row], said), *testers[gateway].test(gateway, rows)]
        verdicts = stream.verdicts(cast(Any, Batch(said)))
        return [(alert.key, alert.state) for alert in alerts.take(rule, verdicts)]

    assert comes(100, "g1", a=100, b=100) == []
    assert comes(100, "g2", a=100) == []
    assert comes(111, "g1", b=111) == [('{"source":"a"}', RAISED)]
    assert comes(113, "g2", a=100 + gap) == [('{"source":"a"}', CLEARED)]
    assert comes(114, "g2", a=101 + gap) == []
    assert alerts.open("quiet") == []


HALF = Schema(30.0, results.SCHEMA.keys, results.SCHEMA.aggregates)
ROOMS = Schema(60.0, (("room", "string"), ("source", "string")), results.SCHEMA.aggregates)


class Flow:
    """A rule on all tables of a flow: a state for each of them and each gateway. Times in minutes since `START`."""

    def __init__(self, root: Path) -> None:
        self.root = str(root)
        self.landing = Landing(self.root)
        self.alerts = Alerts(self.root)
        (self.rule,) = parse('[rules.quiet]\nflow = "air"\nkind = "silent"\nafter_s = 600\n')
        self.streams: dict[str, RuleStream] = {}
        self.testers: dict[tuple[str, str], TwsTester] = {}

    def opens(self, gateway: results.Gateway, table: str, *parent: Any) -> None:
        self.landing.land([gateway.open(*parent)])
        self.streams[table] = rule_stream(self.rule, table, gateway.schema, self.root, self.alerts)
        self.testers.setdefault((table, gateway.name), TwsTester(Silence(LIMITS), timeMode="ProcessingTime"))

    def waits(self, now: int) -> set[tuple[str, str]]:
        """What timers say of all tables. Returns the alerts that change, as `comes` does."""
        return {said for at in self.testers for said in self._batch(at, now, [])}

    def comes(self, now: int, gateway: results.Gateway, table: str, *more: str, **ends: int) -> set[tuple[str, str]]:
        """Windows of sources that end then land in a table and are a batch; `more`: keys besides."""
        rows, keys = [], []
        for source, end in ends.items():
            _, last, _, *values = results.contribution(end - 1, source, 1.0)
            rows.append([last - gateway.schema.window_s, last, *more, source, *values])
            key = dict(zip([name for name, _ in gateway.schema.keys], [*more, source], strict=True))
            keys.append(Row(key=json.dumps(key, separators=(",", ":")), ends=round(last * 1e6)))
        self.landing.land([gateway.rows(*rows)])
        return self._batch((table, gateway.name), now, keys)

    def _batch(self, at: tuple[str, str], now: int, keys: list[Row]) -> set[tuple[str, str]]:
        said = cast(list[Row], self.testers[at].setProcessingTime(round(results.START * 1000) + now * MIN))
        if keys:
            said = [*said, *self.testers[at].test(at[1], keys)]
        verdicts = self.streams[at[0]].verdicts(cast(Any, Batch(said)))
        return {(alert.key, alert.state) for alert in self.alerts.take(self.rule, verdicts)}


def test_a_rule_about_several_keys_looks_up_all_of_them(tmp_path: Path) -> None:
    flow, g1, g2 = Flow(tmp_path), results.Gateway("g1", schema=ROOMS), results.Gateway("g2", schema=ROOMS)
    for gateway in (g1, g2):
        flow.opens(gateway, "air")
    assert flow.comes(100, g1, "air", "hall", a=100, b=100) == flow.comes(100, g2, "air", "attic", b=100) == set()
    assert flow.comes(111, g2, "air", "attic", a=111, b=111) == set()
    assert flow.comes(112, g2, "air", "hall", a=112) == set()
    assert flow.comes(115, g1, "air", "hall", c=115) == {('{"room":"hall","source":"b"}', RAISED)}


def test_keys_of_a_gateway_whose_version_has_other_windows_are_judged_by_those(tmp_path: Path) -> None:
    flow, g1, g2 = Flow(tmp_path), results.Gateway("g1"), results.Gateway("g2")
    moved, back = results.Gateway("g1", 2 << 32, HALF), results.Gateway("g1", 3 << 32)
    b = '{"source":"b"}'
    for gateway in (g1, g2):
        flow.opens(gateway, "air")
    assert flow.comes(100, g1, "air", a=100, b=100) == flow.comes(100, g2, "air", c=100) == set()
    flow.opens(moved, "air_v2", g1.epoch, {0: 2})
    for now in range(101, 142, 5):  # then its uplink is out
        assert flow.comes(now, moved, "air_v2", a=now) == flow.comes(now, g2, "air", c=now) == set()
    assert flow.comes(155, g2, "air", c=155) == set()
    assert flow.waits(161) == {(b, RAISED)}, "its patience ends in the former table, where a is not any more"
    assert flow.comes(170, moved, "air_v2", a=170, b=170) == {(b, CLEARED)}
    assert flow.comes(181, moved, "air_v2", a=181) == {(b, RAISED)}
    assert [alert.since.timestamp() - results.START for alert in flow.alerts.open("quiet")] == [170 * 60]
    flow.opens(back, "air", moved.epoch, {0: moved.sequences[0]})
    assert flow.comes(182, back, "air", a=182, b=182) == {(b, CLEARED)}


def test_keys_of_a_gateway_whose_version_has_more_keys_are_known_by_those_that_both_have(tmp_path: Path) -> None:
    flow, g1 = Flow(tmp_path), results.Gateway("g1")
    moved = results.Gateway("g1", 2 << 32, ROOMS)
    flow.opens(g1, "air")
    assert flow.comes(100, g1, "air", a=100, b=100) == set()
    flow.opens(moved, "air_v2", g1.epoch, {0: 2})
    assert flow.comes(150, moved, "air_v2", "hall", a=150) == set()
    assert flow.waits(161) == {('{"source":"b"}', RAISED)}
    assert flow.comes(162, moved, "air_v2", "hall", a=162, b=162) == {('{"source":"b"}', CLEARED)}
    assert flow.comes(173, moved, "air_v2", "hall", a=173) == {('{"room":"hall","source":"b"}', RAISED)}


def test_windows_merge_what_comes_late_and_tell_the_newest() -> None:
    tester = TwsTester(Windows("mean", 2, lambda: 1.0))

    def batch(*rows: tuple[int, float, float]) -> tuple[int, int, list[float]]:
        (said,) = tester.test("a", [Row(key="a", starts=w, ends=w + 60, a=n, b=total) for w, n, total in rows])
        assert said.key == "a"
        return said.since, said.at, said["values"]

    assert batch((0, 1.0, 5.0)) == (0, 60, [5.0])
    assert batch((60, 2.0, 8.0), (60, 2.0, 4.0)) == (0, 120, [5.0, 3.0])
    assert batch((120, 1.0, 7.0), (60, 1.0, 3.0)) == (60, 180, [3.0, 7.0])
    assert batch((0, 1.0, 7.0)) == (60, 180, [3.0, 7.0])


def test_windows_far_ahead_of_now_are_left_out_and_counted() -> None:
    tester = TwsTester(Windows("sum", 2, lambda: 1.0))
    far = 20 * 365 * 86_400_000_000
    rows = [Row(key="a", starts=start, ends=start + 60, a=1.0, b=0.0) for start in (0, far, far + 60)]
    left_out, told = tester.test("a", rows)
    assert (left_out.at, left_out["values"]) == (2, None)
    assert (told.since, told.at, told["values"]) == (0, 60, [1.0])
    (left_out,) = tester.test("b", rows[1:])
    assert left_out.at == 2
