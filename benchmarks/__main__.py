"""`python -m benchmarks NAME [--quick] [--out DIR]`: measures one claim, prints it, writes NAME.json and NAME.png."""

from __future__ import annotations

import argparse
import importlib
import pkgutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import cast

import benchmarks
from benchmarks import machine
from benchmarks.report import Benchmark, Options, Report

EPILOG = """\
exit status: 0 measured and every bar holds, 1 a bar does not hold or a figure is not valid, 2 wrong arguments,
3 this machine lacks something that the benchmark needs"""


def names() -> list[str]:
    """All benchmarks: the packages in this folder."""
    return sorted(module.name for module in pkgutil.iter_modules(benchmarks.__path__) if module.ispkg)


def find(name: str) -> Benchmark:
    """The benchmark `name`; each package has it as `BENCHMARK`."""
    return cast(Benchmark, importlib.import_module(f"benchmarks.{name}").BENCHMARK)


def main(argv: Sequence[str] | None = None) -> int:
    """Returns the exit status."""
    parser = argparse.ArgumentParser(
        "benchmarks", description=__doc__, epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("name", nargs="?", choices=names(), help="which one")
    parser.add_argument("--list", action="store_true", help="say what there is, and stop")
    parser.add_argument("--quick", action="store_true", help="one short repetition: whether it works, not how fast")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/out"), help="folder (default: %(default)s)")
    parser.add_argument(
        "--application", action="append", metavar="NAME", help="of those that the benchmark has, only this (or these)"
    )
    parser.add_argument("--repetitions", type=int, help="instead of the benchmark's own number")
    arguments = parser.parse_args(argv)
    if arguments.list:
        for name in names():
            print(f"{name:12} {find(name).about}")
        return 0
    if not arguments.name:
        parser.error("expected the NAME of a benchmark (see --list)")
    return _measure(arguments.name, arguments)


def _measure(name: str, arguments: argparse.Namespace) -> int:
    benchmark = find(name)
    for application in arguments.application or ():
        if application not in benchmark.applications:
            has = ", ".join(benchmark.applications) or f"none ({name} has no applications)"
            print(f"benchmarks: --application: expected one of {has}, got: {application}", file=sys.stderr)
            return 2
    if lack := benchmark.lacks():
        print(f"benchmarks: {name} needs what this machine lacks: {lack}", file=sys.stderr)
        return 3
    try:
        arguments.out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        print(
            f"benchmarks: --out {arguments.out}: expected a folder that can be written, got: {error.strerror}",
            file=sys.stderr,
        )
        return 2
    repetitions = arguments.repetitions or (1 if arguments.quick else benchmark.repetitions)
    report = Report(name, benchmark.about, machine.describe(), repetitions)
    applications = tuple(dict.fromkeys(arguments.application or benchmark.usual or benchmark.applications))
    options = Options(
        arguments.quick,
        repetitions,
        say=lambda text: print(text, file=sys.stderr, flush=True),
        applications=applications,
    )
    benchmark.measure(options, report)
    report.machine["load_after"] = machine.load()
    print(report.table())
    written = [report.write_json(arguments.out), benchmark.draw(report, arguments.out)]
    print("\nwritten: " + ", ".join(map(str, written)))
    return 0 if report.holds else 1


if __name__ == "__main__":
    sys.exit(main())
