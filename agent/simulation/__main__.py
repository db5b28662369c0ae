"""The program that `edgert simulate --fleet` starts: it reads one JSON document, of `edgert.cli`, from standard input.

Exit status: 0; 1 where it cannot be simulated, or an operator had two owners; 2 where an option names what is not
there.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from random import Random
from typing import Any, Final

from agent.placement.heuristics.registry import HEURISTICS
from agent.simulation import report
from agent.simulation.described.description import Description, read
from agent.simulation.described.events import FleetEvent, drawn
from agent.simulation.run import FleetOutcome, SimulationJob, document_of, simulate
from agent.simulation.shape import PlanShapes
from edgert.core.command_line import status_of
from edgert.core.errors import EdgertError
from edgert.flow.document import from_plain
from edgert.operators.registry import with_installed
from edgert.scheduling.profile import Profile

ALL, NONE = "all", "none"
QUIET_S: Final = 5.0
"""Real time after which progress is told, and between two times."""


class UsageError(EdgertError):
    """An option names what is not there."""


def main() -> int:
    try:
        return status_of(lambda: _run(json.load(sys.stdin)))
    except UsageError as error:
        print(f"edgert: {error}", file=sys.stderr)
        return 2
    except EdgertError as error:
        print(f"edgert: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def _run(asked: Mapping[str, Any]) -> int:
    description = read(Path(asked["fleet"]))
    events = _events(asked, description)
    if asked["plan"]:
        print(report.plan(events))
        return 0
    jobs = [_job(asked, description, events, heuristic) for heuristic in _heuristics(asked["heuristic"])]
    words = asked["json"] != "-"
    if words:
        flow, boards = jobs[0].shapes.flow.name, len(description.boards)
        print(f"flow {flow} on {boards} boards, {asked['rate']:g} rows/s into each source, {asked['seconds']:g} s, seed"
              f" {asked['seed']}\n\n{report.plan(events)}\n", flush=True)  # fmt: skip
    outcomes = [simulate(job, _progress(job)) for job in jobs]
    if words:
        _tell(outcomes)
    if asked["json"]:
        _write(asked["json"], {"events": [str(event) for event in events], "runs": [*map(document_of, outcomes)]})
    return _verdict(outcomes)


def _events(asked: Mapping[str, Any], description: Description) -> tuple[FleetEvent, ...]:
    """Events of the file, and the drawn ones."""
    names = [board.name for board in description.boards]
    draw = Random(f"{asked['seed']} events").random
    more = drawn(draw, names, asked["seconds"], asked["kills"], asked["cuts"], asked["jumps"])
    return tuple(sorted((*description.events, *more), key=lambda event: event.at_s))


def _heuristics(name: str) -> list[str]:
    known = [*HEURISTICS, NONE]
    if name not in (*known, ALL):
        raise UsageError(f"--heuristic: expected one of {', '.join((*known, ALL))}, got {name!r}")
    return known if name == ALL else [name]


def _job(
    asked: Mapping[str, Any], description: Description, events: tuple[FleetEvent, ...], heuristic: str
) -> SimulationJob:
    known, _ = with_installed()
    profiles = {name: Profile(*told) for name, told in asked["operators"].items()}
    shapes = PlanShapes(from_plain(asked["document"], known), known, profiles, asked["row_bytes"])
    names = [board.name for board in description.boards]
    for what, name in (("--at", asked["at"]), *(("--pin", board) for board in asked["pins"].values())):
        if name and name not in names:
            raise UsageError(f"{what}: expected a board of {asked['fleet']}, one of {', '.join(names)}, got {name!r}")
    at = asked["at"] or names[0]
    return SimulationJob(
        description, shapes, asked["rate"], asked["seed"], asked["seconds"], events, at, asked["pins"],
        "" if heuristic == NONE else heuristic,
    )  # fmt: skip


def _progress(job: SimulationJob) -> Callable[[float], None]:
    began = told = time.monotonic()

    def progress(at_s: float) -> None:
        nonlocal told
        now = time.monotonic()
        if now - told >= QUIET_S:
            told = now
            print(f"edgert: {job.heuristic or 'none'}: {at_s:.0f} of {job.seconds:g} s are simulated after"
                  f" {now - began:.0f} s", file=sys.stderr)  # fmt: skip

    return progress


def _tell(outcomes: list[FleetOutcome]) -> None:
    if len(outcomes) > 1:
        print(report.table(outcomes))
        return
    print(report.timeline(outcomes[0]), report.summary(outcomes[0]), sep="\n\n")


def _write(path: str, document: Mapping[str, Any]) -> None:
    text = json.dumps(document, indent=1)
    if path == "-":
        print(text)
        return
    try:
        Path(path).write_text(text + "\n")
    except OSError as error:
        raise EdgertError(f"--json: {path}: expected a file that can be written: {error.strerror or error}") from error


def _verdict(outcomes: list[FleetOutcome]) -> int:
    """1 where an operator had two owners."""
    wrong = [outcome for outcome in outcomes if outcome.violations]
    for outcome in wrong:
        print(f"edgert: two owners with seed {outcome.seed} ({outcome.heuristic or 'none'}): {outcome.violations[0]}",
              file=sys.stderr)  # fmt: skip
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
