"""The examples of the Lachesis paper, from what drivers report to the list of actions."""

from __future__ import annotations

from agent.drivers.entities import EngineReport, Operator, Query, Thread
from agent.osched.kernel.actions import SetGroup, SetNice
from agent.osched.policy.policies import POLICIES
from agent.osched.schedule import Mechanism, decide
from agent.osched.transformation import logical_to_physical, physical_to_threads
from agent.osched.translate import to_nice

CDE, G, F1, F2 = (Thread(100, 100 + n, 7) for n in range(4))
BRANCHES = {
    "C/D/E": Operator("C/D/E", "branch 1", logical=("C", "D", "E"), successors=("G",), threads=(CDE,)),
    "G": Operator("G", "branch 1", logical=("G",), threads=(G,)),
    "F1": Operator("F1", "branch 2", logical=("F",), threads=(F1,)),
    "F2": Operator("F2", "branch 2", logical=("F",), threads=(F2,)),
}
"""Figure 2b: C, D and E are fused, F is there twice, every physical operator has a thread."""
QUERIES = {name: Query(name) for name in ("branch 1", "branch 2")}
QUEUES = {"C/D/E": 1.0, "G": 1.0, "F1": 0.5, "F2": 4.0}


def test_figure_2_the_branch_that_the_user_prefers_goes_first_though_f2_waits_longer() -> None:
    """A high-level policy on logical operators, by Algorithm 2 on physical ones; 2 to 1 is 3.1 steps of nice."""
    wanted = {"C": 1.0, "D": 2.0, "E": 1.0, "G": 2.0, "F": 1.0}
    physical = logical_to_physical(wanted, BRANCHES.values())
    assert physical == {"C/D/E": 2.0, "G": 2.0, "F1": 1.0, "F2": 1.0}
    threads = physical_to_threads(physical, BRANCHES.values())
    assert to_nice(threads, -20, 19) == [SetNice(CDE, -20), SetNice(G, -20), SetNice(F1, -17), SetNice(F2, -17)]


def test_figure_2_queue_size_and_first_come_first_served_prefer_f2() -> None:
    report = EngineReport("liebre", BRANCHES, QUERIES, {"queue_size": QUEUES})
    # log 4 / log 1.25 = 6.2, log 8 / log 1.25 = 9.3
    assert decide([report], POLICIES["qs"], Mechanism(best=-20), lambda: 0.5).actions == [
        SetNice(CDE, -14), SetNice(G, -14), SetNice(F1, -11), SetNice(F2, -20),
    ]  # fmt: skip
    ages = {"C/D/E": 0.1, "G": 0.2, "F1": 0.1, "F2": 0.4}
    report = EngineReport("liebre", BRANCHES, QUERIES, {"head_age_s": ages})
    assert decide([report], POLICIES["fcfs"], Mechanism(best=-20), lambda: 0.5).actions == [
        SetNice(CDE, -14), SetNice(G, -17), SetNice(F1, -14), SetNice(F2, -20),
    ]  # fmt: skip


def test_section_5_3_equal_shares_per_branch_and_nice_within_it() -> None:
    """Nice values compare within a group only: each branch has its own best."""
    report = EngineReport("liebre", BRANCHES, QUERIES, {"queue_size": {**QUEUES, "G": 4.0}})
    assert decide([report], POLICIES["qs"], Mechanism("groups+nice", best=-20), lambda: 0.5).actions == [
        SetGroup("branch 1", 1.0, (CDE, G)), SetGroup("branch 2", 1.0, (F1, F2)),
        SetNice(CDE, -14), SetNice(G, -20), SetNice(F1, -11), SetNice(F2, -20),
    ]  # fmt: skip


CHAIN = ("filter", "join", "sink")
SELECTIVITY = {"filter": 0.5, "join": 2.0, "sink": 0.0}
PATH_COST = {"filter": 0.01 + 0.5 * (0.04 + 2.0 * 0.01), "join": 0.04 + 2.0 * 0.01, "sink": 0.01}
COUNTED = {
    "rows_in": {"filter": 100.0, "join": 50.0, "sink": 100.0},
    "rows_out": {"filter": 50.0, "join": 100.0, "sink": 0.0},
    "busy_s": {"filter": 1.0, "join": 2.0, "sink": 1.0},
}


def chain(driver: str, pid: int) -> dict[str, Operator]:
    return {
        name: Operator(
            name, f"{driver}'s", successors=CHAIN[at + 1 : at + 2], threads=(Thread(pid, pid + at, 7),)
        )
        for at, name in enumerate(CHAIN)
    }  # fmt: skip


def test_figure_4_highest_rate_of_two_engines_that_give_different_metrics_in_one_schedule() -> None:
    """Engine A has path cost and operator selectivity, engine B only the leaves of the graph; the query is the same."""
    a = EngineReport("A", chain("A", 200), metrics={"selectivity": SELECTIVITY, "path_cost": PATH_COST})
    b = EngineReport("B", chain("B", 300), metrics=dict(COUNTED))
    schedule = decide([a, b], POLICIES["hr"], Mechanism(), lambda: 0.5)
    assert schedule.errors == []
    # S: 1, 2, 1; C: 0.01, 0.06, 0.04; S / C: 100, 33.3, 25; log 3 / log 1.25 = 4.9, log 4 / log 1.25 = 6.2
    assert schedule.actions == [
        SetNice(Thread(200, 200, 7), 6), SetNice(Thread(200, 201, 7), 5), SetNice(Thread(200, 202, 7), 0),
        SetNice(Thread(300, 300, 7), 6), SetNice(Thread(300, 301, 7), 5), SetNice(Thread(300, 302, 7), 0),
    ]  # fmt: skip


def test_figure_4_an_engine_that_lacks_a_leaf_is_left_alone_and_the_other_is_scheduled() -> None:
    a = EngineReport("A", chain("A", 200), metrics={"selectivity": SELECTIVITY})
    b = EngineReport("B", chain("B", 300), metrics=dict(COUNTED))
    schedule = decide([a, b], POLICIES["hr"], Mechanism(), lambda: 0.5)
    assert {action.thread.pid for action in schedule.actions if isinstance(action, SetNice)} == {300}
    (error,) = schedule.errors
    assert error.startswith("driver A: expected the metric busy_s, which highest_rate → path_cost → cost_s needs")
