"""Two agents of one name, on a virtual clock: the one that answers stays, the other one learns why it is refused."""

from __future__ import annotations

import pytest

from agent.membership.events import Conflict, Contested
from agent.membership.members import Peer, State
from agent.membership.messages import Claim, body, encode
from agent.simulation.network import address_of
from tests.agent.membership.simulated_fleet import SimulatedFleet

ALIVE, SUSPECT, DEAD, LEFT = State
SECOND = "second board-2"


def holds(fleet: SimulatedFleet, number: int) -> bool:
    """True if all other boards hold the agent at the address of board `number` for the living board-2."""
    address = (f"10.0.0.{number + 1}", 7946)
    others = [b.machine for b in fleet.boards.values() if b.running and b.machine.name != "board-2"]
    held = [machine.roster.get("board-2") for machine in others]
    return all(m is not None and m.address == address and m.state is ALIVE for m in held)


def told(fleet: SimulatedFleet, key: str) -> list[tuple[float, Conflict]]:
    return [(t, e) for t, n, e in fleet.events if n == key and isinstance(e, Conflict)]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("members", [3, 12])
def test_second_agent_of_a_name_is_refused_and_told_and_the_member_stays(members: int, seed: int) -> None:
    fleet = SimulatedFleet(members, seed, loss=0.05)
    fleet.run(20)
    began = fleet.now
    fleet.start("board-2", members, joined=False, epoch=500, key=SECOND)
    fleet.run_until(lambda: bool(told(fleet, SECOND)), 15)
    fleet.run(60)
    assert holds(fleet, 2)
    assert fleet.deaths() == []
    verdicts = {n: e for t, n, e in fleet.events if isinstance(e, Contested)}
    assert verdicts, "nobody says that two agents have the name"
    assert all(v.held[0] == "10.0.0.3" for v in verdicts.values())
    original = fleet.boards["board-2"].machine
    others = [n for n in fleet.boards if n != SECOND and n != "board-2"]
    assert all(original.roster.get(n).state is ALIVE for n in others)  # type: ignore[union-attr]
    print(f"told after {told(fleet, SECOND)[0][0] - began:.1f} s")


@pytest.mark.parametrize("seed", range(4))
def test_refused_agent_gets_the_name_when_the_other_one_has_gone(seed: int) -> None:
    fleet = SimulatedFleet(5, seed)
    fleet.run(10)
    fleet.start("board-2", 5, joined=False, epoch=500, key=SECOND)
    fleet.run(30)
    fleet.kill("board-2")
    took = fleet.run_until(lambda: holds(fleet, 5), 40)
    print(f"taken in after {took:.1f} s")


@pytest.mark.parametrize("seed", range(4))
def test_board_that_was_away_gets_back_when_the_one_that_took_its_name_has_gone(seed: int) -> None:
    """Its packets were replays of an older start, and nobody answered: it saw all others die, and stayed out."""
    fleet = SimulatedFleet(5, seed)
    fleet.run(10)
    fleet.starve("board-2", 60.0)
    fleet.start("board-2", 5, joined=False, epoch=500, key=SECOND)
    fleet.run_until(lambda: holds(fleet, 5), 60)
    fleet.run_until(lambda: bool(told(fleet, "board-2")), 75)  # when it runs again
    fleet.run(20)
    fleet.kill(SECOND)
    took = fleet.run_until(lambda: holds(fleet, 2), 40)
    print(f"back after {took:.1f} s")
    fleet.run(60)
    assert holds(fleet, 2)


@pytest.mark.parametrize("restarted", [False, True])
def test_new_card_with_a_clock_behind_is_taken_in(restarted: bool) -> None:
    fleet = SimulatedFleet(4, 1)
    for number in range(4):
        fleet.start(f"board-{number}", number, joined=False, epoch=9_000_000)
    fleet.run_until(lambda: holds(fleet, 2), 30)
    fleet.kill("board-2")
    fleet.run_until(lambda: fleet.all_agree("board-2", DEAD), 30)
    if restarted:  # what is left of the card before is the memory of its hellos
        starts = {n: b.starts for n, b in fleet.boards.items()}
        for number in (0, 1, 3):
            fleet.start(f"board-{number}", number, joined=False, epoch=9_000_500)
            fleet.boards[f"board-{number}"].starts = starts[f"board-{number}"]
    fleet.start("board-2", 2, joined=False, epoch=1_000)
    took = fleet.run_until(lambda: holds(fleet, 2), 20)
    print(f"taken in after {took:.1f} s")
    fleet.run(60)
    assert fleet.boards["board-2"].machine.epoch == 9_000_001
    assert holds(fleet, 2)


def test_board_that_moved_is_known_at_its_new_address_within_seconds() -> None:
    fleet = SimulatedFleet(12, 3)
    fleet.run(20)
    fleet.readdress("board-2", address_of(40))
    took = fleet.run_until(lambda: holds(fleet, 40), 15)
    print(f"known to all after {took:.1f} s")
    fleet.run(30)
    assert fleet.deaths() == []


@pytest.mark.parametrize("epoch", [1, 2, 2**62])
@pytest.mark.parametrize("state", list(State))
def test_claim_of_a_thief_does_not_move_a_member_that_answers(epoch: int, state: State) -> None:
    fleet = SimulatedFleet(5, 1)
    fleet.run(5)
    for _ in range(20):
        for name in ("board-0", "board-1", "board-3", "board-4"):
            incarnation = fleet.boards["board-2"].machine.roster.own.version.incarnation + 1
            lie = Claim("board-2", epoch, incarnation, state, "10.9.9.9", 7946, "thief")
            fleet.boards[name].machine.receive_untrusted(
                body([encode(lie)]), Peer("board-2", epoch, ("10.9.9.9", 7946)), fleet.now
            )
            fleet.step(name)
        fleet.run(2)
        assert holds(fleet, 2)
    assert fleet.deaths() == []
