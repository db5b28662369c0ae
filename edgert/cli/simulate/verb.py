"""`edgert simulate`: a flow on a virtual board, under each policy: what rate it bears, how long rows take; or on a
virtual fleet (`fleet`)."""

from __future__ import annotations

import argparse
import math
import random
import sys
from pathlib import Path
from typing import get_args

from edgert.cli._documents import WHERE, load, registry
from edgert.cli._numbers import above_0, whole
from edgert.cli.simulate import fleet
from edgert.core.errors import DocumentError, EdgertError, show

HELP = "try a flow on a virtual clock: on one board under each scheduling policy, or on a fleet with faults (--fleet)"
ALL = "all"
ANY = "any"
SECONDS = 20.0
WARM_UP = 0.1
"""Part of the simulated time, in which nothing counts."""
WIDTHS = (8, 7, 7, 7, 7, 4, 7)
"""Widths of the columns of figures."""
MOST_ROWS = 50_000_000
"""Some minutes per policy; where a row gives a thousand, also a matter of memory."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    from edgert.core.settings.gateway import Pool, Sensors
    from edgert.flow.physical import Fusion
    from edgert.scheduling.consumption import CONSUMPTIONS
    from edgert.scheduling.policies import POLICIES
    from edgert.sim.boards import BOARDS

    fusion, budget_s = Pool().fusion, Sensors().latency_budget_s
    parser.add_argument("flow", type=Path, metavar="FILE", help=WHERE)
    parser.add_argument("--rate", type=above_0, required=True, help="rows per second into each source")
    parser.add_argument(
        "--latency-budget", type=_budget, default=budget_s, metavar="SECONDS",
        help="how long reading waits so that more rows come with one read, as a gateway's sensors.latency_budget_s; "
        f"0: each row comes by itself; waits only at high rates (default: {budget_s:g})",
    )  # fmt: skip
    parser.add_argument(
        "--fusion", choices=get_args(Fusion), default=fusion,
        help=f"what becomes one instance, as a gateway's pool.fusion (default: {fusion})",
    )  # fmt: skip
    parser.add_argument(
        "--seconds", type=above_0, metavar="S",
        help=f"simulated time (default: {SECONDS:g}; of a fleet {fleet.SECONDS:g})",
    )  # fmt: skip
    parser.add_argument("--policy", choices=(*POLICIES, ALL), default=ALL, help="default: all, one after the other")
    parser.add_argument("--consumption", choices=tuple(CONSUMPTIONS), default="at-most", help="default: at-most")
    parser.add_argument("--rows", type=whole(1), default=200, help="of at-most (default: 200)")
    parser.add_argument(
        "--workers",
        type=whole(1),
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
        help="what a row of an operator or chain costs here, beside its turn (names as this command shows them), and "
        "how many rows it gives; else what --status says; else 10 µs, and as many rows as the document says (the size "
        "of a count_window, train_regression or train_tree, the first input of a join_latest) or, where it does not "
        "say it, one for one, which is told",
    )  # fmt: skip
    parser.add_argument(
        "--fission", choices=("on", "off"), default="on", help="off: one instance of each operator, whatever FILE says"
    )
    parser.add_argument("--seed", type=int, default=1, help="of the random numbers (default: 1)")
    fleet.add_arguments(parser)


def run(args: argparse.Namespace) -> int:
    if args.fleet is not None:
        return fleet.run(args)
    if args.json:
        raise EdgertError(f"--json {args.json}: expected --fleet BOARDS beside it, got one board")
    return _one_board(args, args.seconds or SECONDS)


def _one_board(args: argparse.Namespace, seconds: float) -> int:
    from edgert.cli.simulate.costs import known_of
    from edgert.flow.physical import plan
    from edgert.mqtt.clients.coalesce import WORTH
    from edgert.scheduling.consumption import CONSUMPTIONS
    from edgert.scheduling.policies import POLICIES
    from edgert.scheduling.queueing import balanced_weights, sustainable_rate
    from edgert.sim.boards import BOARDS
    from edgert.sim.flows import model, rows_per_row
    from edgert.sim.pool import Simulation, exponential, poisson

    known = registry()
    flow, fission = load(args.flow, known), args.fission == "on"
    physical = plan(flow, known, args.fusion, fission=fission)
    # costs are known of operators and chains, whatever they are fused to
    apart = plan(flow, known, "none" if args.fusion == "none" else "chains", fission=fission)
    slower = BOARDS[args.board].slower
    here = known_of(apart, known, args.status, args.cost)
    profiles = {name: k.profile._replace(cost_s=k.profile.cost_s * slower) for name, k in here.items()}
    ratios = rows_per_row(apart, profiles)
    rows = args.rate * (seconds * (1 + WARM_UP)) * sum(ratios.values())
    if not rows <= MOST_ROWS:
        raise EdgertError(
            f"expected a simulation of at most {MOST_ROWS:,} rows in all queues, got {rows:.3g} "
            "(less --rate or --seconds, or what --cost says that a row gives)"
        )
    fused = model(physical, profiles, slower)
    demands = {
        k: sum(ratios[stage.name] * profiles[stage.name].cost_s for stage in instance.stages or (instance,))
        for k, instance in enumerate(physical.instances.values())
    }
    # an instance is run by one worker at a time
    alone = sustainable_rate(demands, dict.fromkeys(demands, 1.0))
    sustainable = min(alone, sustainable_rate(demands, balanced_weights(demands, args.workers)))
    bearers = "one worker bears" if args.workers == 1 else f"{args.workers} workers bear"
    sources = sum(copies[0].kind == "source" for copies in physical.sets())
    # a gateway has one connection for all of them
    pause_s = args.latency_budget if args.rate * sources * args.latency_budget >= WORTH else 0.0
    reads = f"in reads at least {pause_s * 1e3:g} ms apart" if pause_s else "each read by itself"
    print(f"flow {flow.name} on {args.board}, {args.rate:g} rows/s into each source, {reads}, seed {args.seed}")
    for name, (profile, why, guessed) in here.items():
        used = ratios[name] * profiles[name].cost_s * args.rate
        gives = f"; a row gives {profile.selectivity:.3g} ({why})" if why and apart.instances[name].outputs else ""
        cost = f"{profile.cost_s * slower * 1e6:.1f} µs per row{f' ({guessed})' if guessed else ''}"
        print(f"  {name}: {cost}, {used:.1%} of a worker{gives}")
    guess = "; with costs that are assumed" if any(known.guess for known in here.values()) else ""
    print(f"{bearers} {sustainable:,.0f} rows/s at most (Σ q c, turns not counted{guess})\n")
    if not args.status and not args.cost:
        print(
            "edgert: without --status or --cost every row is taken to cost 10 µs in each instance: this compares "
            "policies, and does not say what the flow bears", file=sys.stderr,
        )  # fmt: skip
    only = len(physical.instances) == 1
    if only:
        told = "" if args.fusion == "chains" else " (--fusion chains leaves more apart)"
        print(f"all of it is one instance: there is nothing to schedule, and policies are alike{told}\n")
    print(_line("policy", "out/s", "p50 ms", "p99 ms", "longest", "waiting", "busy", "balance"))
    tried = tuple(POLICIES) if args.policy == ALL else (args.policy,)
    for policy in tried[:1] if only else tried:
        # a generator each: all policies meet the same arrivals
        arrivals, costs, choices = (random.Random(f"{args.seed} {use}").random for use in ("rows", "costs", "policy"))
        made = Simulation(
            policy=POLICIES[policy](choices), consumption=CONSUMPTIONS[args.consumption](args.rows),
            workers=args.workers, cost=exponential(costs), **fused._asdict(),
        )  # fmt: skip
        outcome = made.run(poisson(args.rate, arrivals), seconds, seconds * WARM_UP, pause_s)
        busy = sum(s.busy_s for s in outcome.instances.values()) / outcome.span_s / args.workers
        longest = max(s.longest for s in outcome.instances.values())
        late = (_latency(*outcome.latency_s(part)) for part in (0.5, 0.99))
        label = ANY if only and args.policy == ALL else policy
        out, waiting, balance = outcome.left / outcome.span_s, outcome.waiting, outcome.balance()
        print(_line(label, f"{out:,.0f}", *late, f"{longest:,}", f"{waiting:,}", f"{busy:.0%}", f"{balance:.2f}"))
    print(
        "\nlatency: from a row's arrival to the sink (≥: so many have not come out, and had waited so long at the end);"
    )
    print("longest, waiting: rows in a queue at most, in all at the end (with those that were not read yet);")
    print("busy: part of the workers' time in turns, which cost more than their rows where these are few;")
    print("balance: variation of the instances' utilisation, 0 = all alike")
    if args.rate >= sustainable:
        print(f"edgert: {args.rate:g} rows/s are more than {bearers}: queues grow for ever", file=sys.stderr)
        return 1
    return 0


def _line(policy: str, *figures: str) -> str:
    """Returns a line of the table. However long a figure is, a space is before it."""
    return f"{policy:26}" + "".join(f" {told:>{width}}" for told, width in zip(figures, WIDTHS, strict=True))


def _latency(late_s: float, out: bool) -> str:
    return "-" if math.isnan(late_s) else f"{'' if out else '≥'}{late_s * 1e3:.2f}"


def _budget(text: str) -> float:
    """Parses a latency budget as a gateway does."""
    from edgert.core.config import parse
    from edgert.core.settings.gateway import GatewaySettings

    try:
        return parse(GatewaySettings, "", {"EDGERT_SENSORS_LATENCY_BUDGET_S": text}).sensors.latency_budget_s
    except DocumentError as error:
        raise argparse.ArgumentTypeError(f"expected {error.problems[0].expected}, got {show(text)}") from None
