"""Boards with a flow cut between them: priorities and nice values are those of one board that holds all of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.drivers.entities import EngineReport, Operator, Query, Thread
from agent.osched.cooperation.exchange import Cooperation
from agent.osched.cooperation.shared import completed, divided, held_back, own_terms, sharing
from agent.osched.cooperation.terms import BoardTerms, FlowTerms
from agent.osched.kernel.actions import SetNice
from agent.osched.policy.policies import POLICIES
from agent.osched.schedule import Mechanism, PeriodSchedule, decide

COST = {"filter": 1.0, "join": 4.0, "count": 2.0, "sink": 1.0}
SELECTIVITY = {"filter": 0.5, "join": 2.0, "count": 0.1, "sink": 0.0}
QUEUE = {"filter": 400.0, "join": 40.0, "count": 8.0, "sink": 1.0}
AGE = {"filter": 0.01, "join": 0.05, "count": 0.02, "sink": 0.04}
FOLLOW = {"filter": ("join", "count"), "join": ("sink",), "count": ("sink",), "sink": ()}
ROUNDING = 0.003
"""Sums of numbers that were each rounded by 0.12 %."""


def whole(follow: Mapping[str, tuple[str, ...]], metrics: Mapping[str, Mapping[str, float]]) -> EngineReport:
    """Flow `q`, a thread per operator, all on one board."""
    operators = {
        f"q/{name}": Operator(
            f"q/{name}", "q", successors=tuple(f"q/{s}" for s in after), threads=(Thread(number, number, 0),)
        )
        for number, (name, after) in enumerate(follow.items(), 1)
    }
    full = {metric: {f"q/{name}": value for name, value in of.items()} for metric, of in metrics.items()}
    return EngineReport("edgert", operators, {"q": Query("q", 0.1, plan=3)}, full)


def divide(report: EngineReport, where: Mapping[str, str]) -> dict[str, EngineReport]:
    """Board -> its part; `where`: operator (without the flow) -> board."""
    parts = {}
    for board in sorted(set(where.values())):
        here = {f"q/{name}" for name, on in where.items() if on == board}
        operators = {
            o.name: Operator(
                o.name, o.query, successors=tuple(s for s in o.successors if s in here),
                remote=tuple(s for s in o.successors if s not in here), threads=o.threads,
            )
            for o in report.operators.values()
            if o.name in here
        }  # fmt: skip
        metrics = {m: {n: v for n, v in of.items() if n in here} for m, of in report.metrics.items()}
        parts[board] = EngineReport("edgert", operators, report.queries, metrics)
    return parts


def together(parts: Mapping[str, EngineReport], policy: str, rounds: int = 8) -> dict[str, PeriodSchedule]:
    """The schedules after so many rounds in which every board heard what all others told in the round before."""
    boards = {name: Cooperation() for name in parts}
    payloads: dict[str, bytes] = {}
    schedules: dict[str, PeriodSchedule] = {}
    for round_ in range(rounds):
        for name, cooperation in boards.items():
            cooperation.hear({other: told for other, told in payloads.items() if other != name}, round_ * 100.0)
            completed_ = cooperation.completed([parts[name]])
            over = cooperation.span(policy)
            schedules[name] = decide(completed_, POLICIES[policy], Mechanism(), lambda: 0.5, None, over)
        for name, cooperation in boards.items():
            told = cooperation.news([parts[name]], policy, schedules[name].span, 2, round_ * 100.0)
            assert told is not None
            payloads[name] = told
    return schedules


def one_board(report: EngineReport, policy: str) -> PeriodSchedule:
    return decide([report], POLICIES[policy], Mechanism(), lambda: 0.5)


def priorities(schedules: Mapping[str, PeriodSchedule]) -> dict[str, float]:
    return {name: p for one in schedules.values() for name, p in one.priorities["edgert"].items()}


def nices(*schedules: PeriodSchedule) -> dict[Thread, int]:
    return {a.thread: a.nice for one in schedules for a in one.actions if isinstance(a, SetNice)}


REPORT = whole(FOLLOW, {"cost_s": COST, "selectivity": SELECTIVITY, "queue_size": QUEUE, "head_age_s": AGE})


@pytest.mark.parametrize("policy", ["qs", "hr", "fcfs", "ioq", "slack"])
@pytest.mark.parametrize(
    "where",
    [
        {"filter": "a", "join": "b", "count": "b", "sink": "b"},
        {"filter": "a", "join": "b", "count": "a", "sink": "b"},
        {"filter": "a", "join": "b", "count": "c", "sink": "a"},
    ],
    ids=["one cut", "two cuts", "back to the first of three boards"],
)
def test_priorities_and_nice_values_of_a_cut_flow_are_those_of_one_board(policy: str, where: dict[str, str]) -> None:
    alone = one_board(REPORT, policy)
    schedules = together(divide(REPORT, where), policy)
    expected = alone.priorities["edgert"]
    assert priorities(schedules) == pytest.approx(expected, rel=ROUNDING)
    expected_nices, found = nices(alone), nices(*schedules.values())
    assert found.keys() == expected_nices.keys()
    assert all(abs(found[t] - n) <= 1 for t, n in expected_nices.items()), "a rounded priority may cost one step"
    assert policy not in ("qs", "fcfs") or found == expected_nices


def test_highest_rate_of_a_cut_flow_worked_by_hand() -> None:
    """As in `test_metric_graph`: S = 1.05 and C = 5.05 at the filter, though join, count and sink are elsewhere."""
    parts = divide(REPORT, {"filter": "a", "join": "b", "count": "b", "sink": "b"})
    found = together(parts, "hr")["a"].priorities["edgert"]["q/filter"]
    assert found == pytest.approx(1.05 / 5.05, rel=ROUNDING)
    (isolated,) = one_board(parts["a"], "hr").priorities["edgert"].values()
    assert isolated == 1.0, "alone, board a takes its filter for a sink of cost 1"


def test_without_cooperation_equal_nice_values_mean_different_queues() -> None:
    parts = divide(REPORT, {"filter": "a", "join": "b", "count": "b", "sink": "b"})
    isolated = nices(*(one_board(part, "qs") for part in parts.values()))
    join = next(iter(REPORT.operators["q/join"].threads))
    assert isolated[join] == 0, "40 rows are the most of board b"
    assert nices(*together(parts, "qs").values())[join] == nices(one_board(REPORT, "qs"))[join] > 0


@settings(max_examples=30)
@given(st.lists(st.tuples(st.floats(1e-5, 1.0), st.floats(0.01, 3.0), st.sampled_from("abc")), min_size=2, max_size=8))
def test_highest_rate_and_deadlines_of_a_chain_on_any_boards_are_those_of_one(
    chain: list[tuple[float, float, str]],
) -> None:
    names = [f"o{n}" for n in range(len(chain))]
    follow = {name: (names[n + 1],) if n + 1 < len(names) else () for n, name in enumerate(names)}
    metrics = {
        "cost_s": {name: cost for name, (cost, _, _) in zip(names, chain, strict=True)},
        "selectivity": {name: s for name, (_, s, _) in zip(names, chain, strict=True)},
        "queue_size": dict.fromkeys(names, 1.0),
        "head_age_s": dict.fromkeys(names, 0.001),
    }
    report = whole(follow, metrics)
    parts = divide(report, dict(zip(names, (board for _, _, board in chain), strict=True)))
    rounds = 2 * len(chain) + 2
    expected = one_board(report, "hr").priorities["edgert"]
    assert priorities(together(parts, "hr", rounds)) == pytest.approx(expected, rel=len(chain) * ROUNDING)
    # The priority of slack is one over the part of the budget that is left.
    left = {name: 1.0 / p for name, p in one_board(report, "slack").priorities["edgert"].items()}
    found = {name: 1.0 / p for name, p in priorities(together(parts, "slack", rounds)).items()}
    assert found == pytest.approx(left, abs=len(chain) * ROUNDING)


def test_a_producer_whose_remote_consumer_is_congested_is_not_raised() -> None:
    parts = divide(REPORT, {"filter": "a", "join": "b", "count": "b", "sink": "b"})
    other = Operator("local/slow", "local", threads=(Thread(9, 9, 0),))
    report = EngineReport(
        "edgert", {**parts["a"].operators, "local/slow": other}, {**parts["a"].queries, "local": Query("local")},
        {"queue_size": {"q/filter": 400.0, "local/slow": 100.0}},
    )  # fmt: skip
    free, congested = (
        BoardTerms(
            "qs", (1.0, rows), {"q": FlowTerms(3, takes={"join": {"queue_size": rows}, "count": {"queue_size": 0.0}})}
        )
        for rows in (200.0, 8019.0)
    )
    filter_, slow = parts["a"].operators["q/filter"].threads[0], other.threads[0]
    for terms, first, factor in ((free, filter_, None), (congested, slow, 401 / 8020)):
        done = completed(report, [terms])
        schedule = decide([done], POLICIES["qs"], Mechanism(), lambda: 0.5)
        assert min(nices(schedule), key=nices(schedule).__getitem__) == first
        assert schedule.held["edgert"].get("q/filter") == (None if factor is None else pytest.approx(factor))
        assert held_back({"local/slow": 1.0}, done) == {}
        assert decide([done], POLICIES["constant"], Mechanism(), lambda: 0.5).held["edgert"] == {}


def test_terms_of_another_plan_count_for_nothing() -> None:
    part = divide(REPORT, {"filter": "a", "join": "b", "count": "b", "sink": "b"})["b"]
    told = {"join": 7.0}
    assert completed(part, [BoardTerms("hr", None, {"q": FlowTerms(2, told)})]).metrics == part.metrics
    done = completed(
        part, [BoardTerms("hr", None, {"q": FlowTerms(3, told)}), BoardTerms("hr", None, {"x": FlowTerms(3, told)})]
    )
    assert done.metrics["remote_cost_before"] == {"q/join": 7.0}
    assert divided(part, [BoardTerms("hr", None, {"q": FlowTerms(2, told)})]) == set()
    assert divided(part, [BoardTerms("hr", None, {"q": FlowTerms(3, told)})]) == {"q"}, "join has its sender on board a"
    assert divided(part, [BoardTerms("hr", None, {"q": FlowTerms(3, {"other": 1.0})})]) == set()


def test_of_several_senders_the_dearest_path_counts() -> None:
    """a: cheap and dear, both send to out on board b; c: middle, sends there, too."""
    follow: dict[str, tuple[str, ...]] = {"cheap": ("out",), "dear": ("out",), "middle": ("out",), "out": ()}
    cost = {"cheap": 1.0, "dear": 5.0, "middle": 3.0, "out": 1.0}
    parts = divide(whole(follow, {"cost_s": cost}), {"cheap": "a", "dear": "a", "middle": "c", "out": "b"})
    for order in ("dear", "cheap"), ("cheap", "dear"):
        operators = {f"q/{name}": parts["a"].operators[f"q/{name}"] for name in order}
        told = own_terms(replace(parts["a"], operators=operators), "slack", None, [])
        assert told.flows["q"].sends == {"out": 5.0}
    sends = [own_terms(parts[name], "slack", None, []) for name in ("a", "c")]
    for terms in (sends, sends[::-1]):
        assert completed(parts["b"], terms).metrics["remote_cost_before"] == {"q/out": 5.0}


def test_only_what_the_policy_rests_on_is_told() -> None:
    parts = divide(REPORT, {"filter": "a", "join": "b", "count": "b", "sink": "b"})
    sender = own_terms(parts["a"], "qs", (1.0, 2.0), [])
    assert sender == BoardTerms("qs", (1.0, 2.0), {"q": FlowTerms(3, {"join": None, "count": None})})
    taker = own_terms(parts["b"], "qs", None, [sender]).flows["q"]
    assert taker.takes == {"join": {"queue_size": 40.0}, "count": {"queue_size": 8.0}}
    taker = own_terms(parts["b"], "hr", None, [sender]).flows["q"]
    assert taker.takes["join"] == {"queue_size": 40.0, "path_selectivity": 2.0, "path_cost": 6.0}


def test_boards_that_share_flows_by_way_of_others_have_one_scale() -> None:
    def terms(*flows: str) -> BoardTerms:
        return BoardTerms("qs", (1.0, 2.0), {name: FlowTerms(1) for name in flows})

    others = {"b": terms("f", "g"), "c": terms("g"), "d": terms("h"), "e": terms()}
    assert sharing({"f"}, others) == ["b", "c"]
    assert sharing({"own"}, others) == []
