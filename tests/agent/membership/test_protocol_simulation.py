"""The membership protocol in simulated fleets, on a virtual clock; the seed of each run is printed."""

from __future__ import annotations

import tracemalloc

import pytest

from agent.membership.events import Changed, EpochRaised, Measured
from agent.membership.members import State
from tests.agent.membership.simulated_fleet import SimulatedFleet

ALIVE, SUSPECT, DEAD, LEFT = State


@pytest.mark.parametrize("seed", range(3))
def test_boards_that_know_one_seed_find_each_other(seed: int) -> None:
    fleet = SimulatedFleet(12, seed, joined=False)
    fleet.run_until(lambda: all(fleet.all_agree(name, ALIVE) for name in fleet.boards), 30)


@pytest.mark.parametrize("seed", range(3))
def test_death_is_known_to_all_within_ten_seconds(seed: int) -> None:
    fleet = SimulatedFleet(100, seed, loss=0.05)
    fleet.run(10)
    fleet.kill("board-7")
    assert fleet.run_until(lambda: fleet.all_agree("board-7", DEAD), 10) > 2
    assert {name for _, _, name in fleet.deaths()} == {"board-7"}


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("members", [2, 3, 5, 11])
def test_death_in_a_small_calm_fleet_is_known_as_soon(members: int, seed: int) -> None:
    """News after a calm time is no sign that a member was starved, which would put its suspicions off. And suspicions
    do not wait until it is the suspect's turn to be probed by others: of three boards one was dead after 35 s."""
    fleet = SimulatedFleet(members, seed)
    fleet.run(30)
    fleet.kill("board-1")
    assert fleet.run_until(lambda: fleet.all_agree("board-1", DEAD), 11) > 2
    assert {board.machine.stalls for name, board in fleet.boards.items() if name != "board-1"} == {0}


@pytest.mark.parametrize("seed", range(3))
def test_starved_members_and_lost_packets_make_no_false_death(seed: int) -> None:
    fleet = SimulatedFleet(100, seed, loss=0.05)
    fleet.starve_often([f"board-{n}" for n in range(10)], 0.5, 6.0, fleet.now + 30)
    fleet.run(40)
    assert fleet.deaths() == []
    suspected = [e for _, _, e in fleet.events if isinstance(e, Changed) and e.what == "suspected"]
    assert suspected  # else the run would prove nothing
    fleet.run_until(lambda: all(fleet.all_agree(name, ALIVE) for name in fleet.boards), 60)


def test_a_tenth_of_the_members_that_runs_now_and_then_only_makes_no_storm_of_suspicions() -> None:
    """Each pause of theirs was a suspicion and a refutation, told to all: 2.7 kB/s per board in this fleet."""
    fleet = SimulatedFleet(100, 1, loss=0.05)
    fleet.live_as_agents_do()
    fleet.starve_often([f"board-{n}" for n in range(10)], 0.5, 4.0, fleet.now + 20)
    fleet.run(25)
    assert fleet.deaths() == []
    rates = [board.sent_bytes / 25 for board in fleet.boards.values()]
    assert sum(rates) / len(rates) < 2_000


def test_suspect_refutes_with_a_greater_incarnation() -> None:
    fleet = SimulatedFleet(5, 1)
    fleet.run(2)
    fleet.starve("board-2", 6.0)
    fleet.run_until(lambda: any(fleet.state(n, "board-2") is SUSPECT for n in fleet.boards), 8)
    fleet.run_until(lambda: fleet.all_agree("board-2", ALIVE), 10)
    assert fleet.boards["board-2"].machine.roster.own.version.incarnation > 0
    assert fleet.deaths() == []


@pytest.mark.parametrize("seed", range(3))
def test_split_fleet_heals(seed: int) -> None:
    fleet = SimulatedFleet(20, seed)
    left = {f"board-{n}" for n in range(10)}
    fleet.run(2)
    fleet.cut = lambda sender, receiver: (sender in left) != (receiver in left)
    fleet.run_until(
        lambda: all(fleet.all_agree(n, DEAD, among=sorted(left)) for n in fleet.boards if n not in left), 60
    )
    fleet.cut = lambda sender, receiver: False
    fleet.run_until(lambda: all(fleet.all_agree(name, ALIVE) for name in fleet.boards), 60)


def test_one_way_cut_between_two_members_kills_nobody() -> None:
    fleet = SimulatedFleet(8, 5)
    fleet.cut = lambda sender, receiver: (sender, receiver) == ("board-1", "board-2")
    fleet.run(120)
    assert fleet.deaths() == []


def test_restarted_board_returns_with_its_new_epoch() -> None:
    fleet = SimulatedFleet(6, 2)
    fleet.kill("board-3")
    fleet.run_until(lambda: fleet.all_agree("board-3", DEAD), 60)
    fleet.start("board-3", 3, joined=False, epoch=2)
    fleet.run_until(lambda: fleet.all_agree("board-3", ALIVE), 30)
    assert all(b.machine.roster.get("board-3").version.epoch == 2 for b in fleet.boards.values())  # type: ignore[union-attr]


@pytest.mark.parametrize("epoch", [0, 2])
def test_restarted_board_without_a_seed_is_found_by_the_others(epoch: int) -> None:
    """Their packets, for the start of it that they know, do not open there; the ping over TCP tells its epoch."""
    fleet = SimulatedFleet(10, seed=1)
    fleet.run(20)
    fleet.kill("board-0")
    fleet.start("board-0", 0, joined=False, epoch=epoch)
    board = fleet.boards["board-0"].machine
    now = {machine.machine.name: machine.machine for machine in fleet.boards.values()}
    took = fleet.run_until(
        lambda: (
            len(board.roster) == 10
            and all((m.roster.get("board-0") or m.roster.own).version.epoch == board.epoch > 1 for m in now.values())
        ),
        10,
    )
    print(f"known to all after {took:.1f} s")
    fleet.run(10)
    assert fleet.deaths() == []


def test_board_that_lost_its_stored_epoch_raises_it() -> None:
    fleet = SimulatedFleet(4, 3)
    fleet.kill("board-2")
    fleet.run_until(lambda: fleet.all_agree("board-2", DEAD), 60)
    fleet.start("board-2", 2, joined=False, epoch=0)
    fleet.run_until(lambda: fleet.all_agree("board-2", ALIVE), 30)
    assert [e for _, n, e in fleet.events if n == "board-2" and isinstance(e, EpochRaised)] == [EpochRaised(2)]


def test_leaving_is_not_a_death() -> None:
    fleet = SimulatedFleet(30, 4, loss=0.05)
    fleet.run(3)
    fleet.boards["board-9"].machine.leave(fleet.now)
    fleet.run(1.5)
    fleet.kill("board-9")
    fleet.run_until(lambda: fleet.all_agree("board-9", LEFT), 60)
    fleet.run(30)
    assert fleet.deaths() == []


def test_published_state_reaches_all_and_its_newest_version_stays() -> None:
    fleet = SimulatedFleet(20, 6, loss=0.1)
    machine = fleet.boards["board-0"].machine
    machine.publish("load", b"first")
    fleet.run(0.3)
    machine.publish("load", b"second")

    def known() -> bool:
        others = [board.machine.roster.get("board-0") for board in fleet.boards.values()]
        return all(m is not None and "load" in m.sections and m.sections["load"].payload == b"second" for m in others)

    fleet.run_until(known, 90)


@pytest.mark.parametrize("members", [11, 50])
def test_where_a_restarted_board_listens_is_known_to_all_within_seconds(members: int) -> None:
    """Though the load of all boards changes all the time. Its agent starts before its gateway listens."""
    fleet = SimulatedFleet(members, 5)
    fleet.live_as_agents_do()
    fleet.run(120)
    fleet.kill("board-3")
    fleet.run(1)
    fleet.start("board-3", 3, joined=False, epoch=2)
    machine = fleet.boards["board-3"].machine
    machine.publish("board", b"no link yet")
    fleet.step("board-3")
    fleet.run(2)
    machine.publish("board", b"link")
    version = machine.roster.own.sections["board"].version

    def known() -> bool:
        there = [board.machine.roster.get("board-3") for board in fleet.boards.values()]
        told = [m.sections.get("board") for m in there if m is not None]
        return all(section is not None and (section.epoch, section.version) >= (2, version) for section in told)

    fleet.run_until(known, 10)


def test_round_trip_times_are_measured_by_probes() -> None:
    fleet = SimulatedFleet(3, 7)
    fleet.boards["board-1"].machine.coordinate = (1.0, 2.0, 3.0)
    fleet.run(10)
    measured = [e for _, n, e in fleet.events if n == "board-0" and isinstance(e, Measured) and e.name == "board-1"]
    assert measured
    assert all(0.002 <= e.rtt_s < 0.2 for e in measured)
    assert all(e.coordinate == (1.0, 2.0, 3.0) for e in measured)


def test_members_whose_state_changes_all_the_time_send_little() -> None:
    """Nothing bounded the state that rides on probes: 11 kB/s per board in this fleet."""
    fleet = SimulatedFleet(30, 9, loss=0.05)
    fleet.live_as_agents_do()
    fleet.run(15)
    before = {name: board.sent_bytes for name, board in fleet.boards.items()}
    fleet.run(15)
    rates = [(board.sent_bytes - before[name]) / 15 for name, board in fleet.boards.items()]
    assert sum(rates) / len(rates) < 2_000
    fleet.kill("board-7")
    fleet.run_until(lambda: fleet.all_agree("board-7", DEAD), 10)
    fleet.run(60)
    observer = fleet.boards["board-0"].machine.roster
    assert sum("ring" in m.sections for m in observer) >= 25  # it is not the state that stays away


def test_calm_fleet_sends_little() -> None:
    fleet = SimulatedFleet(50, 8)
    fleet.run(60)
    rates = [board.sent_bytes / 60 for board in fleet.boards.values()]
    assert max(rates) < 1_000


def test_ninety_unreachable_members_of_a_hundred_cost_the_others_nothing_more_with_time() -> None:
    fleet = SimulatedFleet(100, 10)
    fleet.run(2)
    dead = [f"board-{n}" for n in range(10, 100)]
    for name in dead:
        fleet.kill(name)
    living = [f"board-{n}" for n in range(10)]
    fleet.run_until(lambda: all(fleet.all_agree(name, DEAD) for name in dead), 300)
    fleet.run(120)
    first, second = (_minute(fleet, living) for _ in range(2))
    assert second[0] < 1.2 * first[0] + 1_000  # bytes sent, and with them the work
    assert second[1] == first[1] == 0  # news that waits
    assert second[2] < first[2] + 50_000  # memory


def _minute(fleet: SimulatedFleet, living: list[str]) -> tuple[int, int, int]:
    """(bytes sent, news that waits, bytes of memory) of some boards together, after a minute."""
    for name in living:
        fleet.boards[name].sent_bytes = 0
    fleet.events.clear()
    tracemalloc.start()
    fleet.run(60)
    fleet.events.clear()
    grown, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    boards = [fleet.boards[name] for name in living]
    waiting = sum(board.machine.queue.claims + board.machine.queue.states for board in boards)
    return sum(board.sent_bytes for board in boards), waiting, grown
