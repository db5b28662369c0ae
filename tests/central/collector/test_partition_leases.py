"""Several collectors share the partitions: each partition has one holder, all have about as many, none is left over."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from deltalake import DeltaTable
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from edgert.central.collector.collector import Collector
from edgert.central.collector.inbox import ResultMessage
from edgert.central.collector.partition_leases import PartitionLeases
from edgert.central.landing.landing import Landing
from edgert.central.tables.lease import LeaseLost, claims
from edgert.central.tables.query import query
from edgert.cli.main import main
from edgert.core.clock import VirtualClock
from edgert.core.results.results import (
    PARTITIONS,
    OpenBatch,
    RowsBatch,
    pack_result,
    partition_of,
    results_filter,
    results_topic,
)
from edgert.mqtt.topics import covers
from tests.central.results_examples import FLOW, Gateway, contribution
from tests.examples import examples

LEASE_S = 10.0
ALL = frozenset(range(PARTITIONS))
DEEDS = ["turn", "hold", "leave", "wait", "wait long"]


def leases(root: Path, holder: str, clock: VirtualClock) -> PartitionLeases:
    return PartitionLeases(str(root), holder, LEASE_S, clock.wall, clock.monotonic)


def turns(*members: PartitionLeases, rounds: int = 3) -> None:
    """What the collectors do all the time."""
    for _ in range(rounds):
        for member in members:
            if surplus := member.turn():
                member.give_back(surplus)


def test_one_alone_takes_all_and_a_second_gets_its_half(tmp_path: Path) -> None:
    clock = VirtualClock()
    one, two = leases(tmp_path, "one", clock), leases(tmp_path, "two", clock)
    assert one.turn() == frozenset()
    assert one.held == ALL
    assert two.turn() == frozenset()
    assert not two.held
    surplus = one.turn()
    assert len(surplus) == PARTITIONS // 2
    two.turn()
    assert not two.held, "nothing is taken before it was given back"
    one.give_back(surplus)
    two.turn()
    assert (one.held, two.held) == (ALL - surplus, surplus)
    one.hold()
    two.hold()


def test_dead_ones_partitions_are_taken_when_its_leases_ran_out_and_not_before(tmp_path: Path) -> None:
    clock = VirtualClock()
    members = [leases(tmp_path, name, clock) for name in ("one", "two", "three")]
    turns(*members)
    assert sorted(len(m.held) for m in members) == [5, 5, 6]
    dead, *alive = members
    clock.advance(0.9 * LEASE_S)
    turns(*alive)
    assert frozenset[int]().union(*(m.held for m in alive)) == ALL - dead.held
    clock.advance(0.2 * LEASE_S)
    turns(*alive)
    assert [len(m.held) for m in alive] == [8, 8]
    assert {c.name for c in claims(str(tmp_path)) if c.name.startswith("collector")} == {
        "collector two",
        "collector three",
    }


def test_zombie_learns_it_before_it_commits_whatever_its_clock_says(tmp_path: Path) -> None:
    slow, clock = VirtualClock(), VirtualClock()
    zombie, other = leases(tmp_path, "zombie", slow), leases(tmp_path, "other", clock)
    zombie.turn()
    clock.advance(LEASE_S + 1)
    other.turn()
    assert other.held == ALL
    with pytest.raises(LeaseLost, match="16 partitions"):
        zombie.hold()
    assert (zombie.held, zombie.lost) == (frozenset(), PARTITIONS)
    zombie.hold()  # it was told once
    slow.advance(LEASE_S + 1)
    turns(other, zombie)
    assert len(zombie.held) == len(other.held) == PARTITIONS // 2


def test_a_step_of_the_clock_costs_nobody_its_leases_and_keeps_no_dead_ones(tmp_path: Path) -> None:
    clock, stepped = VirtualClock(), VirtualClock()
    one = PartitionLeases(str(tmp_path), "one", LEASE_S, lambda: clock.wall() + 3600, clock.monotonic)
    one.turn()
    one.hold()
    two = PartitionLeases(str(tmp_path), "two", LEASE_S, stepped.wall, stepped.monotonic)
    two.turn()
    assert not two.held
    stepped.advance(LEASE_S + 1)  # the first is dead, and what it wrote lies an hour ahead
    two.turn()
    assert two.held == ALL


def test_leases_that_ran_out_are_lost_also_if_nobody_took_them(tmp_path: Path) -> None:
    clock = VirtualClock()
    one = leases(tmp_path, "one", clock)
    one.turn()
    clock.advance(LEASE_S)
    with pytest.raises(LeaseLost):
        one.hold()
    one.turn()
    assert one.held == ALL


def test_holding_prolongs_and_leaving_frees_at_once(tmp_path: Path) -> None:
    clock = VirtualClock()
    one, two = leases(tmp_path, "one", clock), leases(tmp_path, "two", clock)
    one.turn()
    for _ in range(5):
        clock.advance(0.7 * LEASE_S)
        one.hold()
    two.turn()
    assert not two.held
    one.leave()
    assert not one.held
    two.turn()
    assert two.held == ALL


@settings(max_examples=examples(5, 10), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from(DEEDS)), max_size=12))
def test_whatever_they_do_no_partition_has_two_holders_and_in_the_end_all_have_one(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[int, str]]
) -> None:
    root = tmp_path_factory.mktemp("shares")
    clock = VirtualClock()
    members = [leases(root, f"c{i}", clock) for i in range(4)]
    for who, what in steps:
        if what.startswith("wait"):
            clock.advance(LEASE_S * (1.1 if what == "wait long" else 0.4))
        elif what == "leave":
            members[who].leave()
        elif what == "turn":
            turns(members[who], rounds=1)
        else:
            with_lease = members[who].lost
            try:
                members[who].hold()
            except LeaseLost:
                assert members[who].lost > with_lease
    # Who may commit is who has just held: what these have is nobody else's.
    sure = [m for m in members if _holds(m)]
    assert sum(len(m.held) for m in sure) == len(frozenset[int]().union(*(m.held for m in sure)))
    turns(*members, rounds=4)
    assert sorted(p for m in members for p in m.held) == sorted(ALL)
    assert {len(m.held) for m in members} == {PARTITIONS // 4}


def _holds(member: PartitionLeases) -> bool:
    try:
        member.hold()
    except LeaseLost:
        return False
    return True


def test_a_gateways_topic_is_of_its_partition_and_partitions_fill_evenly() -> None:
    counts = [0] * PARTITIONS
    for i in range(1600):
        name = f"g{i}"
        partition = partition_of(name)
        counts[partition] += 1
        topic = results_topic("f", name, "air")
        assert [p for p in range(PARTITIONS) if covers(results_filter("f", p), topic)] == [partition]
        assert covers(results_filter("f"), topic)
    assert min(counts) > 60
    # Gateways in the field publish there: it must never change.
    assert [partition_of(name) for name in ("g1", "g2", "plant-7")] == [9, 15, 12]


def test_leases_are_listed_with_holder_and_state(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = PartitionLeases(str(tmp_path), "one", LEASE_S)
    one.turn()
    one.give_back({0})
    assert main(["central", "leases", "--root", str(tmp_path), "--json"]) == 0
    listed = {line["lease"]: line for line in map(json.loads, capsys.readouterr().out.splitlines())}
    assert len(listed) == 1 + PARTITIONS
    assert (listed["partition 0"]["state"], listed["partition 1"]["state"]) == ("free", "held")
    assert listed["collector one"]["holder"] == "one"


def test_no_lease_no_commit_and_what_was_waiting_is_asked_for_again(tmp_path: Path) -> None:
    """The guard stands before each commit; what came for a partition that is lost is dropped, the rest lands."""
    clock = VirtualClock()
    one = leases(tmp_path, "one", clock)
    one.turn()
    collector = Collector("one", Landing(str(tmp_path), guard=one.hold), clock, 10.0, 10_000)
    g1, g2 = Gateway("g1"), Gateway("g2")
    opened = [_message(g1.open()), _message(g2.open())]
    collector.handle(opened)
    slow = VirtualClock()
    slow.advance(LEASE_S)
    other = leases(tmp_path, "other", slow)
    other.turn()  # its clock is ahead: it takes all
    second = g1.rows(contribution(0, "a", 1.0))
    assert collector.handle([_message(second), _message(g2.rows(contribution(0, "b", 1.0)))]) == []
    assert collector.waits
    assert collector.forget({str(partition_of("g1"))}) == {"g1"}
    clock.advance(LEASE_S * 2)
    turns(other, one, other, one)
    assert collector.handle([]), "what waited has landed"
    rows = query(DeltaTable(str(tmp_path / "landing" / FLOW)), ["gateway", "sequence"])
    assert sorted((r["gateway"], r["sequence"]) for r in rows) == [("g1", 1), ("g2", 1), ("g2", 2)]
    # Another has landed it meanwhile; when the partition comes back, that is known.
    Collector("two", Landing(str(tmp_path)), clock, 10.0, 10_000).handle([_message(second)])
    (said,) = collector.handle([_message(g1.rows(contribution(0, "c", 1.0)))])
    assert max(said.acks.values()) == 3


def _message(result: OpenBatch | RowsBatch) -> ResultMessage:
    return ResultMessage(results_topic("f", result.gateway, result.flow), pack_result(result))
