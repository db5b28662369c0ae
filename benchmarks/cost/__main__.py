"""`python -m benchmarks.cost`: counts the instructions of a message and compares them with the ledger."""

from __future__ import annotations

import argparse
import datetime as dt
import sys
from collections.abc import Sequence

from benchmarks.cost import ledger
from benchmarks.cost.count import build, count, lacks
from benchmarks.cost.workloads import IDLE, WORKLOADS

EPILOG = """\
exit status: 0 nothing is dearer (or the ledger has no figures of this interpreter, which is said), 1 a figure is more
than 1 % above the ledger, 2 wrong arguments, 3 this machine lacks valgrind"""


def main(argv: Sequence[str] | None = None) -> int:
    """Returns the exit status."""
    parser = argparse.ArgumentParser(
        "benchmarks.cost", description=__doc__, epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--write", metavar="WHY", help="add the counted figures to the ledger, with the reason for the change"
    )
    names = [one.name for one in (*WORKLOADS, *IDLE)]
    parser.add_argument("--only", action="append", metavar="NAME", choices=names, help="one workload (or several)")
    arguments = parser.parse_args(argv)
    if lack := lacks():
        print(f"benchmarks.cost: needs what this machine lacks: {lack}", file=sys.stderr)
        return 3
    key = build()
    print(f"build: {key}", flush=True)
    counts = count(lambda text: print(f"counting: {text}", file=sys.stderr, flush=True), tuple(arguments.only or ()))
    comparisons = ledger.compare(counts, ledger.read(), key)
    print(ledger.table(comparisons))
    if arguments.write:
        ledger.write(counts, key, dt.datetime.now(dt.UTC).date().isoformat(), arguments.write)
        print(f"written: {ledger.PATH}")
        return 0
    if all(one.ledger is None for one in comparisons):
        print('the ledger has no figures of this build: `python -m benchmarks.cost --write "first figures"` adds them')
    dearer = [one for one in comparisons if one.dearer]
    for one in dearer:
        print(
            f"{one.figure}: expected at most {1 + ledger.LIMIT:.2f} × {one.ledger:,} instructions, got "
            f"{one.counted:,.0f}; "
            'find what costs more, or say why with `python -m benchmarks.cost --write "..."`',
            file=sys.stderr,
        )
    return 1 if dearer else 0


if __name__ == "__main__":
    sys.exit(main())
