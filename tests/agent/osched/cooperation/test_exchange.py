"""What boards tell each other, when, and by the gossip of simulated members."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from agent.drivers.entities import EngineReport, Operator, Query
from agent.osched.cooperation.exchange import AGAIN_S, LEAST_S, Cooperation
from agent.osched.cooperation.terms import BoardTerms, FlowTerms, pack, unpack_untrusted
from agent.osched.policy.policies import POLICIES
from agent.osched.schedule import Mechanism, PeriodSchedule, decide
from agent.sched_peers import SECTION, SchedPeers
from tests.agent.membership.simulated_fleet import SimulatedFleet


def sender(queue: float, plan: int = 1) -> EngineReport:
    operator = Operator("f/a", "f", remote=("f/b",))
    return EngineReport("edgert", {"f/a": operator}, {"f": Query("f", plan=plan)}, {"queue_size": {"f/a": queue}})


def taker(queue: float, plan: int = 1) -> EngineReport:
    return EngineReport(
        "edgert", {"f/b": Operator("f/b", "f")}, {"f": Query("f", plan=plan)}, {"queue_size": {"f/b": queue}}
    )


TOLD = pack(BoardTerms("qs", (1.0, 2.0), {"f": FlowTerms(1, {"b": None})}))[0]


def test_small_changes_wait_and_great_ones_are_told_once_in_two_seconds() -> None:
    cooperation = Cooperation()
    cooperation.hear({"board": TOLD}, 0.0)

    def news(queue: float, now: float) -> bool:
        return cooperation.news([taker(queue)], "qs", (queue, queue), 10, now) is not None

    assert news(100.0, 0.0)
    assert not news(900.0, LEAST_S - 0.1), "too soon"
    assert news(900.0, LEAST_S)
    assert not news(950.0, LEAST_S + 10.0), "less than a step of nice"
    assert news(950.0, LEAST_S + AGAIN_S)
    assert cooperation.news([taker(1.0)], "qs", (1.0, 1.0), 400, LEAST_S + AGAIN_S + 30.0) is None, "a large fleet"


def test_a_board_without_shared_flows_tells_that_it_has_none() -> None:
    cooperation = Cooperation()
    assert cooperation.news([taker(1.0)], "qs", (1.0, 1.0), 3, 0.0) == b""
    assert not cooperation.silent(), "nothing to take back"
    assert cooperation.news([sender(1.0)], "qs", (1.0, 1.0), 3, 5.0)
    assert cooperation.silent()
    assert not cooperation.silent()


def test_bytes_that_are_no_terms_are_said_and_count_for_nothing() -> None:
    cooperation = Cooperation()
    cooperation.hear({"bad": b"\xc1", "good": TOLD, "quiet": b""}, 0.0)
    assert list(cooperation.others) == ["good"]
    assert "bad: scheduling of another board: expected" in cooperation.errors["bad"]
    cooperation.hear({"good": TOLD}, 1.0)
    assert cooperation.errors == {}


def test_a_board_that_is_gone_or_has_another_policy_is_not_on_the_scale() -> None:
    cooperation = Cooperation()
    cooperation.hear({"board": TOLD}, 0.0)
    cooperation.completed([taker(1.0)])
    assert cooperation.boards == ["board"]
    assert cooperation.span("qs") == pytest.approx((1.0, 2.0), rel=0.002)
    assert cooperation.span("hr") == ()
    cooperation.hear({}, 1.0)
    assert cooperation.span("qs") == (), "asked before the next look"
    cooperation.completed([taker(1.0)])
    assert (cooperation.boards, cooperation.span("qs")) == ([], ())


class Board:
    """One board of the simulated fleet: a scheduler's part of cooperation, and the gossip."""

    def __init__(self, fleet: SimulatedFleet, name: str, report: EngineReport) -> None:
        self.fleet, self.name, self.report = fleet, name, report
        self.peers = SchedPeers(fleet.boards[name].machine)
        self.cooperation, self.schedule = Cooperation(), PeriodSchedule()

    def turn(self) -> None:
        self.cooperation.hear(self.peers.told(), self.fleet.now)
        reports = self.cooperation.completed([self.report])
        self.schedule = decide(reports, POLICIES["qs"], Mechanism(), lambda: 0.5, None, self.cooperation.span("qs"))
        span = (min(self.priorities.values()), max(self.priorities.values()))
        told = self.cooperation.news([self.report], "qs", span, self.peers.members(), self.fleet.now)
        if told is not None:
            self.peers.tell(told)
            self.fleet.step(self.name)
        self.fleet.at(self.fleet.now + 1.0, self.turn)

    @property
    def priorities(self) -> Mapping[str, float]:
        return self.schedule.priorities["edgert"]


def test_by_gossip_a_producer_learns_of_its_congested_consumer_and_that_it_is_free_again() -> None:
    fleet = SimulatedFleet(20, seed=31, loss=0.1)
    producer = Board(fleet, "board-0", sender(100.0))
    consumer = Board(fleet, "board-7", taker(10.0))
    apart = Board(fleet, "board-9", taker(5.0, plan=0))
    for board in (producer, consumer, apart):
        board.turn()
    fleet.run_until(lambda: producer.cooperation.boards == ["board-7"], 10)
    fleet.run_until(lambda: consumer.cooperation.boards == ["board-0"], 10)
    fleet.run(10.0)
    assert producer.priorities == {"f/a": 100.0}
    assert apart.cooperation.boards == [], "its flow f is its own"

    consumer.report = taker(10_099.0)
    took = fleet.run_until(lambda: producer.priorities["f/a"] < 2.0, 10)
    print(f"known after {took:.1f} s")
    assert producer.priorities["f/a"] == pytest.approx(100.0 * 101 / 10_100, rel=0.01)
    assert max(producer.cooperation.span("qs")) == pytest.approx(10_099.0, rel=0.002)

    consumer.report = taker(0.0)
    fleet.run_until(lambda: producer.priorities["f/a"] == 100.0, 10)

    consumer.report = taker(5_000.0, plan=2)
    fleet.run(10.0)
    assert producer.priorities["f/a"] == 100.0, "the other board has the next plan already"

    fleet.kill("board-7")
    fleet.run_until(lambda: producer.cooperation.boards == [], 60)


def test_a_section_of_the_gossip_is_changed_a_bounded_number_of_times() -> None:
    fleet = SimulatedFleet(3, seed=32)
    producer, consumer = Board(fleet, "board-0", sender(1.0)), Board(fleet, "board-1", taker(1.0))
    producer.turn()
    consumer.turn()
    fleet.run(5.0)

    def version() -> int:
        return fleet.boards["board-1"].machine.roster.own.sections[SECTION].version

    before = version()
    for second in range(60):
        consumer.report = taker(10.0 ** (second % 5))
        fleet.run(1.0)
    assert 10 <= version() - before <= 60 / LEAST_S + 1
    told = fleet.boards["board-0"].machine.roster.get("board-1")
    assert told is not None
    assert unpack_untrusted(told.sections[SECTION].payload).flows["f"].takes["b"].keys() == {"queue_size"}
