"""One death, and then starved members, in a large fleet whose members publish state and measure each other.

`python -m tests.agent.membership.thousand_members [MEMBERS] [SEED]`
Prints how long a death takes to be known to all, bytes per second and board, and deaths that were none; at the end how
long the death of a starved member takes. Its exit status is 1 where a bound was not kept.
"""

from __future__ import annotations

import sys

from agent.membership.members import State
from tests.agent.membership.simulated_fleet import SimulatedFleet

MOST_BYTES_S, MOST_OF_ONE_S, MOST_S = 2_000.0, 4_500.0, 10.0
"""Bounds of bytes per second and board: the mean of all boards, and the board that sends most; and of the time until a
death of a healthy member is known."""


def rates(fleet: SimulatedFleet, seconds: float) -> tuple[float, float]:
    """(mean, greatest) bytes per second and board since the last reset."""
    sent = [board.sent_bytes / seconds for board in fleet.boards.values()]
    for board in fleet.boards.values():
        board.sent_bytes = 0
    return sum(sent) / len(sent), max(sent)


def main(members: int, seed: int) -> int:
    """Returns the exit status."""
    fleet = SimulatedFleet(members, seed, loss=0.05)
    fleet.live_as_agents_do()
    fleet.run(10)
    calm = rates(fleet, 10)
    print("calm, 5 % loss: mean {:.0f}, greatest {:.0f} bytes/s per board".format(*calm), flush=True)
    fleet.kill("board-7")
    began = fleet.now
    fleet.run_until(lambda: fleet.all_agree("board-7", State.DEAD), 60)
    took = fleet.now - began
    dying = rates(fleet, took)
    print(f"death known to all after {took:.1f} s;", "mean {:.0f}, greatest {:.0f} bytes/s".format(*dying))
    print("false deaths so far:", len({name for _, _, name in fleet.deaths()} - {"board-7"}), flush=True)
    starved = [f"board-{n}" for n in range(10, 10 + members // 10)]
    fleet.starve_often(starved, 0.5, 4.0, fleet.now + 20)
    fleet.run(25)
    busy = rates(fleet, 25)
    print("a tenth starved: mean {:.0f}, greatest {:.0f} bytes/s".format(*busy))
    fleet.kill(starved[0])
    killed = fleet.now
    late = fleet.run_until(lambda: fleet.all_agree(starved[0], State.DEAD), 60)
    print(f"death of a member that was starved before: known to all after {late:.1f} s")
    dead = {"board-7": began, starved[0]: killed}
    false = [(round(t, 1), n, of) for t, n, of in fleet.deaths() if t < dead.get(of, fleet.now)]
    print(f"false deaths: {len({of for _, _, of in false})} members, {len(false)} declarations", false[:5], flush=True)
    mean, greatest = (max(rate) for rate in zip(calm, dying, busy, strict=True))
    return int(bool(false) or max(took, late) > MOST_S or mean > MOST_BYTES_S or greatest > MOST_OF_ONE_S)


if __name__ == "__main__":
    sys.exit(main(*(int(argument) for argument in [*sys.argv[1:], "1000", "1"][:2])))
