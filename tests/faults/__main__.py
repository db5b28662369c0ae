"""`python -m tests.faults --seed N`: starts the whole path up to the landing table, or with `--spark` up to the fleet
table, injects faults, compares."""

from __future__ import annotations

import argparse
import itertools
import json
import shutil
import signal
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from edgert.flow.options.delivery import DELIVERIES
from tests.brokers import MOSQUITTO
from tests.faults import plan
from tests.faults.run import Outcome, run

EPILOG = """\
A seed says what is done when; two runs of it differ in timing only. Logs, databases and tables of a seed that failed
stay in its folder. exit status: 0 nothing was lost or doubled, 1 something was, 2 wrong arguments, 3 Mosquitto is
missing"""

SCENES = {
    "placed": plan.make_placed,
    "untimed": plan.make_untimed,
    "hung-up": plan.make_hung_up,
    "harmed": plan.make_harmed,
    "hostile": plan.make_hostile,
}
"""Options that go without others."""


def seeds(text: str) -> range:
    """ "A-B", both included."""
    first, dash, last = text.partition("-")
    try:
        found = range(int(first), int(last) + 1)
    except ValueError:
        found = range(0)
    if not dash or not found:
        raise argparse.ArgumentTypeError(f"expected A-B with A not above B, got {text!r}")
    return found


def main(argv: Sequence[str] | None = None) -> int:
    """Returns the exit status."""
    parser = argparse.ArgumentParser(
        "tests.faults", description=__doc__, epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--seed", type=int, metavar="N", help="only this one")
    which.add_argument("--seeds", type=seeds, metavar="A-B", help="these")
    which.add_argument("--endless", type=int, metavar="N", nargs="?", const=0, help="from N (0) on, until Ctrl-C")
    parser.add_argument("--spark", action="store_true", help="with the fleet job: takes minutes, needs Java")
    parser.add_argument(
        "--delivery", choices=DELIVERIES, default=DELIVERIES[0],
        help="of the flow; at-least-once: up to the landing table, where a message may be counted more than once",
    )  # fmt: skip
    parser.add_argument(
        "--placed", action="store_true",
        help="a flow on three slots goes on by other plans again and again (edgert place) while programs are killed",
    )  # fmt: skip
    parser.add_argument(
        "--untimed", action="store_true",
        help="messages have no time of their own, and the gateway's clock is wrong for moments",
    )  # fmt: skip
    parser.add_argument(
        "--hung-up", action="store_true",
        help="the sensors' broker hangs up at messages that the flow gives out, the central one at large results",
    )  # fmt: skip
    parser.add_argument(
        "--harmed", action="store_true",
        help="files of the gateway's data folder are deleted, emptied, cut, flipped or old: lost is what is said",
    )  # fmt: skip
    parser.add_argument(
        "--hostile", action="store_true",
        help="a peer floods the central broker with what no gateway or collector would send",
    )  # fmt: skip
    parser.add_argument("--plan", action="store_true", help="say what would be done, and do nothing")
    parser.add_argument("--logs", type=Path, default=Path("build/faults"), help="folder (default: %(default)s)")
    parser.add_argument("--out", type=Path, metavar="FILE", help="a summary in JSON, written after each seed")
    arguments = parser.parse_args(argv)
    if arguments.spark and arguments.delivery == "at-least-once":
        parser.error("--delivery at-least-once goes without --spark: the fleet table counts what landed")
    other = arguments.spark or arguments.delivery != DELIVERIES[0]
    scenes = [name for name in SCENES if _given(arguments, name)]
    if len(scenes) > 1 or (scenes and other):
        parser.error(f"--{', --'.join(SCENES)} go without each other, --spark and --delivery")
    chosen: Iterable[int] = arguments.seeds or itertools.count(arguments.endless or 0)
    if arguments.seed is not None:
        chosen = [arguments.seed]
    if arguments.plan:
        for seed in chosen:
            print(_make(seed, arguments))
        return 0
    if MOSQUITTO is None:
        print("tests.faults: needs Mosquitto (apt-get install mosquitto)", file=sys.stderr)
        return 3
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that what runs is ended
    try:
        return _run(chosen, arguments)
    except KeyboardInterrupt:
        return 130


def _given(arguments: argparse.Namespace, option: str) -> bool:
    return bool(getattr(arguments, option.replace("-", "_")))


def _make(seed: int, arguments: argparse.Namespace) -> plan.Plan:
    for option, make in SCENES.items():
        if _given(arguments, option):
            return make(seed)
    return plan.make(seed, arguments.spark, arguments.delivery)


def _run(chosen: Iterable[int], arguments: argparse.Namespace) -> int:
    outcomes: list[Outcome] = []
    out: Path | None = arguments.out
    for seed in chosen:
        outcomes.append(one(seed, arguments))
        failed = [o.plan.seed for o in outcomes if o.failed]
        plans = f", {n} changes of plan" if (n := sum(o.figures.get("plans", 0) for o in outcomes)) else ""
        print(f"  {len(outcomes)} seeds{plans}, failed: {', '.join(map(str, failed)) or 'none'}", flush=True)
        if out is not None:
            out.parent.mkdir(parents=True, exist_ok=True)
            out.write_text(json.dumps(summary(outcomes), indent=1) + "\n")
    return 1 if any(o.failed for o in outcomes) else 0


def summary(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """What came of many seeds."""
    faults = sum((o.injected for o in outcomes), Counter[str]())
    return {
        "seeds": len(outcomes),
        "failed": [o.plan.seed for o in outcomes if o.failed],
        "lost": sum(o.difference.lost for o in outcomes),
        "doubled": sum(o.difference.doubled for o in outcomes),
        "messages": sum(o.messages for o in outcomes),
        "plans": sum(o.figures.get("plans", 0) for o in outcomes),
        "took_s": round(sum(o.took_s for o in outcomes)),
        "faults": dict(sorted(faults.items())),
        "runs": [o.as_dict() for o in outcomes],
    }


def one(seed: int, arguments: argparse.Namespace) -> Outcome:
    """Runs one seed and prints what came of it; its folder stays if it failed."""
    made = _make(seed, arguments)
    print(made, flush=True)
    folder: Path = arguments.logs / f"seed-{seed}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    outcome = run(made, folder.absolute())
    if outcome.failed:
        print("what was done:", *outcome.told, sep="\n  ")
    print(outcome, flush=True)
    if outcome.failed:
        how = "".join(f" --{name}" for name in ("spark", *SCENES) if _given(arguments, name))
        how += f" --delivery {made.delivery}" * (made.delivery != DELIVERIES[0])
        print(f"  kept: {folder}; again: python -m tests.faults --seed {seed}{how}", flush=True)
    else:
        shutil.rmtree(folder)
    return outcome


if __name__ == "__main__":
    sys.exit(main())
