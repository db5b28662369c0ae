"""The table `alerts`: each alert once, whatever of the stream comes again."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from edgert.central.alerts.rules import SILENT, AlertRule
from edgert.central.alerts.table import CLEARED, RAISED, Alert, Alerts, KeyVerdict, settle

RULE = AlertRule("quiet", "air", SILENT, keys=("source",), after_s=10)
OTHER = AlertRule("lost", "air", SILENT, keys=("source",), after_s=10)
S = 1_000_000
A, B = '{"source":"a"}', '{"source":"b"}'


def wrong(key: str, since_s: int) -> KeyVerdict:
    return KeyVerdict(key, (since_s + 10) * S, since_s * S)


def well(key: str, at_s: int) -> KeyVerdict:
    return KeyVerdict(key, at_s * S)


class Memory:
    """What the table holds, without one."""

    def __init__(self) -> None:
        self.rows: dict[str, Alert] = {}
        self.told: list[tuple[str, str]] = []

    def take(self, *verdicts: KeyVerdict) -> None:
        last: dict[str, Alert] = {}
        for alert in sorted(self.rows.values(), key=lambda a: a.since):
            last[alert.key] = alert
        for alert in settle(RULE, last, verdicts):
            self.rows[alert.id] = alert
            self.told.append((alert.id, alert.state))


@st.composite
def histories(draw: st.DrawFn) -> list[KeyVerdict]:
    """What one key's stream says: well and silent by turns, each later than the one before."""
    at, said = 100, []
    for _ in range(draw(st.integers(1, 12))):
        at += draw(st.integers(0, 5))
        said.append(well(A, at))  # heard at `at`, and from then on silent or not
        if draw(st.booleans()):
            said.append(wrong(A, at))
            at += 11
    return said


@given(histories(), st.data())
def test_whatever_comes_again_the_table_is_the_same_and_nothing_is_told_twice(
    history: list[KeyVerdict], data: st.DataObject
) -> None:
    """A batch that comes again, and a stream that begins anew at any time."""
    once, often = Memory(), Memory()
    for verdict in history:
        once.take(verdict)
    at = reached = 0
    for back in data.draw(st.lists(st.integers(0, len(history)), max_size=5)):
        ahead = data.draw(st.integers(at, len(history)))
        for verdict in history[at:ahead]:
            often.take(verdict)
        reached = max(reached, ahead)
        at = min(back, ahead)
    for verdict in history[at:]:
        often.take(verdict)
    assert {a.id for a in often.rows.values()} == {a.id for a in once.rows.values()}
    assert {a.id: a.state for a in often.rows.values()} == {a.id: a.state for a in once.rows.values()}
    assert len(set(often.told)) == len(often.told)


@given(st.lists(st.one_of(st.builds(wrong, st.sampled_from([A, B]), st.integers(0, 50)),
                          st.builds(well, st.sampled_from([A, B]), st.integers(0, 50)))))  # fmt: skip
def test_a_key_has_one_open_alert_at_most(said: list[KeyVerdict]) -> None:
    memory = Memory()
    for verdict in said:
        memory.take(verdict)
        states = [(a.key, a.state) for a in memory.rows.values()]
        assert max(states.count((key, RAISED)) for key in (A, B)) <= 1
    for a in memory.rows.values():
        assert (a.cleared is None) == (a.state == RAISED)
        assert a.cleared is None or a.cleared > a.since


def test_the_table_says_what_was_raised_and_cleared(tmp_path: Path) -> None:
    alerts = Alerts(str(tmp_path))
    assert alerts.open("quiet") == []
    first = alerts.take(RULE, [wrong(A, 100), wrong(B, 101), well('{"source":"c"}', 100)])
    assert [(a.key, a.state, a.since.timestamp(), a.raised.timestamp()) for a in first] == [
        (A, RAISED, 100, 110), (B, RAISED, 101, 111)
    ]  # fmt: skip
    assert alerts.take(RULE, [wrong(A, 100)]) == []
    (cleared,) = Alerts(str(tmp_path)).take(RULE, [well(A, 130), wrong(B, 101)])
    assert (cleared.id, cleared.state) == (first[0].id, CLEARED)
    assert cleared.cleared == dt.datetime.fromtimestamp(130, dt.UTC)
    assert [a.key for a in alerts.open("quiet")] == [B]
    (again,) = alerts.take(RULE, [KeyVerdict(A, 150 * S, 130 * S, value=1.5, low=None, high=1.0)])
    assert again.id != first[0].id
    assert json.loads(json.dumps(again.plain())) == {
        "id": again.id, "rule": "quiet", "flow": "air", "kind": "silent", "key": {"source": "a"}, "state": "raised",
        "since": "1970-01-01T00:02:10Z", "raised": "1970-01-01T00:02:30Z", "cleared": None, "value": 1.5, "low": None,
        "high": 1.0,
    }  # fmt: skip
    assert sorted(a.since.timestamp() for a in alerts.open("quiet")) == [101, 130]
    assert alerts.open("another's") == []


def test_a_storm_is_taken_in_parts(tmp_path: Path) -> None:
    alerts = Alerts(str(tmp_path), at_once=10)
    verdicts = [wrong(json.dumps({"source": f"it's {n}"}), 100 + n) for n in range(25)]
    assert len(alerts.take(RULE, verdicts)) == 25
    assert alerts.take(RULE, verdicts) == []
    assert len(alerts.take(RULE, [well(v.key, 1000) for v in verdicts])) == 25


def test_alerts_that_no_rule_is_about_any_more_end_and_are_raised_again_if_it_is_put_back(tmp_path: Path) -> None:
    alerts = Alerts(str(tmp_path), at_once=2)
    assert alerts.end(lambda _: True) == []
    raised = [*alerts.take(RULE, [wrong(A, 100), wrong(B, 101)]), *alerts.take(OTHER, [wrong(A, 100)])]
    assert alerts.end(lambda alert: alert.rule == "nobody's") == []
    ended = alerts.end(lambda _: True)
    assert {(a.id, a.state, a.cleared) for a in ended} == {(a.id, CLEARED, a.since) for a in raised}
    assert alerts.open(RULE.name) == alerts.open(OTHER.name) == []
    assert alerts.take(RULE, [wrong(B, 90), well(A, 120)]) == []
    (again,) = alerts.take(RULE, [wrong(B, 101)])
    assert again == raised[1]
    assert [a.id for a in alerts.open(RULE.name)] == [again.id]


def test_of_two_writers_none_writes_an_alert_again(tmp_path: Path) -> None:
    first, second = Alerts(str(tmp_path)), Alerts(str(tmp_path))
    assert len(first.take(RULE, [wrong(A, 100)])) == 1
    second.open("quiet")
    assert len(first.take(RULE, [well(A, 200)])) == 1
    assert second.take(RULE, [well(A, 200)]) == []
    assert len(first.take(RULE, [wrong(A, 300)])) == 1
    assert len(second.end(lambda _: True)) == 1
    assert first.take(RULE, [well(A, 400)]) == []
