"""One death, and then starved members, in a large fleet whose members publish state and measure each other.

`python -m tests.agent.membership.thousand_members [MEMBERS] [SEED]`
Prints how long a death takes to be known to all, bytes per second and board, and deaths that were none; at the end how
long the death of a starved member takes.
"""

from __future__ import annotations

import sys

from agent.membership.members import State
from tests.agent.membership.simulated_fleet import SimulatedFleet


def rates(fleet: SimulatedFleet, seconds: float) -> tuple[float, float]:
    """(mean, greatest) bytes per second and board since the last reset."""
    sent = [board.sent_bytes / seconds for board in fleet.boards.values()]
    for board in fleet.boards.values():
        board.sent_bytes = 0
    return sum(sent) / len(sent), max(sent)


def main(members: int, seed: int) -> None:
    fleet = SimulatedFleet(members, seed, loss=0.05)
    fleet.live_as_agents_do()
    fleet.run(10)
    print("calm, 5 % loss: mean {:.0f}, greatest {:.0f} bytes/s per board".format(*rates(fleet, 10)), flush=True)
    fleet.kill("board-7")
    began = fleet.now
    fleet.run_until(lambda: fleet.all_agree("board-7", State.DEAD), 60)
    took = fleet.now - began
    print(f"death known to all after {took:.1f} s;", "mean {:.0f}, greatest {:.0f} bytes/s".format(*rates(fleet, took)))
    print("false deaths so far:", len({name for _, _, name in fleet.deaths()} - {"board-7"}), flush=True)
    starved = [f"board-{n}" for n in range(10, 10 + members // 10)]
    fleet.starve_often(starved, 0.5, 4.0, fleet.now + 20)
    fleet.run(25)
    print("a tenth starved: mean {:.0f}, greatest {:.0f} bytes/s".format(*rates(fleet, 25)))
    false = [(round(t, 1), n, of) for t, n, of in fleet.deaths() if of != "board-7"]
    print(f"false deaths: {len({of for _, _, of in false})} members, {len(false)} declarations", false[:5], flush=True)
    fleet.kill(starved[0])
    took = fleet.run_until(lambda: fleet.all_agree(starved[0], State.DEAD), 60)
    print(f"death of a member that was starved before: known to all after {took:.1f} s")


if __name__ == "__main__":
    main(*(int(argument) for argument in [*sys.argv[1:], "1000", "1"][:2]))
