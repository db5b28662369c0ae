"""`edgert simulate`: a flow on a virtual board, under each policy: what rate it bears, how long rows take."""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgert.cli._documents import load, registry
from edgert.core.errors import EdgertError, show

if TYPE_CHECKING:
    from edgert.flow.physical import Plan
    from edgert.scheduling.profile import Profile

HELP = "try a flow on a virtual clock: rates, latencies and queues under each scheduling policy"
ALL = "all"
TURN_S = 20e-6
"""What a turn costs beside its rows, on this machine (a read of one message through three instances: some 50 µs)."""
LEAST_S = 1e-9
"""What a row costs where no time was seen."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    from edgert.scheduling.consumption import CONSUMPTIONS
    from edgert.scheduling.policies import POLICIES
    from edgert.sim.boards import BOARDS

    parser.add_argument("flow", type=Path, metavar="FILE", help="a document, TOML or JSON")
    parser.add_argument("--rate", type=_positive, required=True, help="rows per second into each source")
    parser.add_argument("--seconds", type=_positive, default=20.0, help="simulated time (default: 20)")
    parser.add_argument("--policy", choices=(*POLICIES, ALL), default=ALL, help="default: all, one after the other")
    parser.add_argument("--consumption", choices=tuple(CONSUMPTIONS), default="at-most", help="default: at-most")
    parser.add_argument("--rows", type=_count, default=200, help="of at-most (default: 200)")
    parser.add_argument(
        "--workers",
        type=_count,
        default=1,
        help="that compute side by side, as only operators do that release the interpreter's lock (default: 1)",
    )
    boards = "; ".join(f"{name}: {board.slower:g} times slower" for name, board in BOARDS.items())
    parser.add_argument("--board", choices=tuple(BOARDS), default="here", help=f"scales all costs ({boards})")
    parser.add_argument(
        "--status", type=Path, metavar="JSON",
        help="what rows cost and give, as a gateway's page says it (curl http://127.0.0.1:8080/api/status)",
    )  # fmt: skip
    parser.add_argument(
        "--cost", action="append", default=[], metavar="INSTANCE=MICROSECONDS[,SELECTIVITY]",
        help="what a row of an instance costs here (names as `edgert explain` shows them); else 10 µs",
    )  # fmt: skip
    parser.add_argument(
        "--fission", choices=("on", "off"), default="on", help="off: one instance of each operator, whatever FILE says"
    )
    parser.add_argument("--seed", type=int, default=1, help="of the random numbers (default: 1)")


def run(args: argparse.Namespace) -> int:
    from edgert.flow.physical import plan
    from edgert.scheduling.consumption import CONSUMPTIONS
    from edgert.scheduling.policies import POLICIES
    from edgert.scheduling.queueing import balanced_weights, sustainable_rate
    from edgert.sim.boards import BOARDS
    from edgert.sim.pool import Simulation, exponential, poisson

    known = registry()
    # a line would leave little to schedule
    physical = plan(load(args.flow, known), known, "chains", fission=args.fission == "on")
    names = list(physical.instances)
    at = {name: number for number, name in enumerate(names)}
    graph = {at[name]: [at[o.instance] for o in i.outputs] for name, i in physical.instances.items()}
    copies = [[at[copy.name] for copy in alike] for alike in physical.sets()]
    slower = BOARDS[args.board].slower
    here = _profiles(args, physical)
    profiles = {at[name]: p._replace(cost_s=p.cost_s * slower) for name, p in here.items()}
    demands = _demands_s(graph, profiles, copies)
    # an instance is run by one worker at a time
    alone = sustainable_rate(demands, dict.fromkeys(demands, 1.0))
    sustainable = min(alone, sustainable_rate(demands, balanced_weights(demands, args.workers)))
    bearers = "one worker bears" if args.workers == 1 else f"{args.workers} workers bear"
    print(f"flow {physical.flow.name} on {args.board}, {args.rate:g} rows/s into each source, seed {args.seed}")
    for name, profile in here.items():
        used = demands[at[name]] * args.rate
        print(f"  {name}: {profile.cost_s * slower * 1e6:.1f} µs per row, {used:.1%} of a worker")
    print(f"{bearers} {sustainable:,.0f} rows/s at most (Σ q c, turns not counted)\n")
    print(f"{'policy':27}{'out/s':>9}{'p50 ms':>9}{'p99 ms':>9}{'longest':>9}{'waiting':>9}{'busy':>7}{'balance':>9}")
    for policy in POLICIES if args.policy == ALL else (args.policy,):
        draw = random.Random(args.seed).random
        made = Simulation(
            graph, profiles, POLICIES[policy](draw), CONSUMPTIONS[args.consumption](args.rows),
            workers=args.workers, turn_s=TURN_S * slower, cost=exponential(draw), copies=copies,
        )  # fmt: skip
        outcome = made.run(poisson(args.rate, draw), args.seconds, args.seconds / 10)
        busy = sum(s.busy_s for s in outcome.instances.values()) / outcome.span_s / args.workers
        longest = max(s.longest for s in outcome.instances.values())
        p50, p99 = (outcome.latency_s(part) * 1e3 for part in (0.5, 0.99))
        print(
            f"{policy:27}{outcome.left / outcome.span_s:9,.0f}{p50:9.2f}{p99:9.2f}{longest:9,}{outcome.waiting:9,}"
            f"{busy:7.0%}{outcome.balance():9.2f}"
        )
    print("\nlatency: from a row's arrival to the sink; longest, waiting: rows in a queue at most, in all at the end;")
    print("busy: part of the workers' time in turns; balance: variation of the instances' utilisation, 0 = all alike")
    if args.rate >= sustainable:
        print(f"edgert: {args.rate:g} rows/s are more than {bearers}: queues grow for ever", file=sys.stderr)
        return 1
    return 0


def _demands_s(
    graph: Mapping[int, Sequence[int]], profiles: Mapping[int, Profile], copies: Sequence[Sequence[int]]
) -> dict[int, float]:
    """What each instance needs per row that enters a source: copies get equal parts of the rows that one would get."""
    from edgert.scheduling.profile import Profile
    from edgert.scheduling.queueing import input_ratios

    first = {k: alike[0] for alike in copies for k in alike}
    whole = {k: list(dict.fromkeys(first[j] for j in graph[k])) for k in dict.fromkeys(first.values())}
    means = {
        alike[0]: Profile(*(sum(part) / len(alike) for part in zip(*(profiles[k] for k in alike), strict=True)))
        for alike in copies
    }
    ratios = input_ratios(whole, means)
    return {k: ratios[alike[0]] / len(alike) * profiles[k].cost_s for alike in copies for k in alike}


def _profiles(args: argparse.Namespace, physical: Plan) -> dict[str, Profile]:
    """What rows cost here: as measured, as said, or ten microseconds."""
    from edgert.scheduling.profile import UNKNOWN, Profile

    found = dict.fromkeys(physical.instances, UNKNOWN)
    if args.status:
        found |= _as_measured(physical, list(_measured(args.status, physical.flow.name)))
    for text in args.cost:
        name, sign, numbers = text.partition("=")
        try:
            cost, _, selectivity = numbers.partition(",")
            said = Profile(float(cost) * 1e-6, float(selectivity or 1.0))
            if not sign or not _copies(name, found) or not said.cost_s > 0 or not 0 <= said.selectivity < float("inf"):
                raise ValueError
        except ValueError:
            instances = ", ".join(found)
            raise EdgertError(
                f"--cost: expected INSTANCE=MICROSECONDS[,SELECTIVITY] with one of {instances}, got {show(text)}"
            ) from None
        found |= dict.fromkeys(_copies(name, found), said)
    return found


def _as_measured(physical: Plan, measured: Sequence[tuple[str, int, int, float]]) -> dict[str, Profile]:
    """Of each instance of which rows were seen, however its operators were fused or copied where that was measured."""
    from edgert.flow.fission import uncopied
    from edgert.scheduling.profile import Profile

    whole: dict[str, list[float]] = {}
    """By measured name, without the number of a copy: rows in and out and seconds, of all copies."""
    for name, *counts in measured:
        sums = whole.setdefault(uncopied(name)[0], [0, 0, 0.0])
        sums[:] = [a + b for a, b in zip(sums, counts, strict=True)]
    found: dict[str, Profile] = {}
    for instance in physical.instances.values():
        first, *_ = operators = uncopied(instance.name)[0].split("+")
        # what begins in it counts here; what only ends in it was begun, and counted, in one before it
        mine = [sums for name, sums in whole.items() if name.split("+")[0] in operators]
        entering = next((sums for name, sums in whole.items() if first in name.split("+")), None)
        if entering is None:
            print(
                f"edgert: the status says nothing of {instance.name}: its rows cost what is the default",
                file=sys.stderr,
            )
        elif entering[0]:
            leaving = next(sums for name, sums in whole.items() if operators[-1] in name.split("+"))
            busy_s = sum(sums[2] for sums in mine)
            if not busy_s:  # it was computed in one function with one before it, and stands there, or was not seen yet
                print(
                    f"edgert: the status has no time for {instance.name}: its rows cost nothing here", file=sys.stderr
                )
            found[instance.name] = Profile(max(busy_s / entering[0], LEAST_S), leaving[1] / entering[0])
    return found


def _copies(name: str, known: Iterable[str]) -> list[str]:
    """The instance of that name, or all copies of it."""
    from edgert.flow.fission import uncopied

    return [one for one in known if name in (one, uncopied(one)[0])]


def _measured(file: Path, flow: str) -> Iterator[tuple[str, int, int, float]]:
    """(instance, rows in, rows out, seconds of computing) of a flow in a gateway's status."""
    try:
        status: Any = json.loads(file.read_bytes())
        flows: Sequence[Mapping[str, Any]] = status["flows"]
        operators = next(f["operators"] for f in flows if f["name"] == flow)
        found = [(o["name"], int(o["rows_in"]), int(o["rows_out"]), float(o["busy_s"])) for o in operators]
    except OSError as error:
        raise EdgertError(f"{file}: expected a readable file: {error.strerror or error}") from error
    except StopIteration:
        raise EdgertError(
            f"{file}: expected the status of a gateway that runs flow {flow}, found no such flow"
        ) from None
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise EdgertError(
            f"{file}: expected a gateway's status (its page's api/status), got {show(str(error))}"
        ) from None
    yield from found


def _positive(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"expected a number above 0, got {show(text)}")
    return number


def _count(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text)):
        raise argparse.ArgumentTypeError(f"expected a whole number of at least 1, got {show(text)}")
    return int(text)
