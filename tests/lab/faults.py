"""A flow over three boards while ways are cut and boards are killed: its results have to be those of plain Python."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from agent.simulation.described.description import CENTRAL, BoardDescription, Description
from agent.simulation.described.ways import Way, ways
from edgert.control.messages import ControlError
from tests.integration import truth
from tests.integration.boards import CoordinatorDied
from tests.lab.lab import Lab
from tests.waiting import DEADLINE_S

BOARDS: Final = ("g1", "g2", "g3")
KEYED: Final = ("by-device", "tracked", "by-sensor", "window")
"""Operators with state by key, and what makes the key. They are on one board, and move together."""
APART: Final = {"readings": "g1", "valid": "g1", **dict.fromkeys(KEYED, "g2"), "central": "g3"}
"""Operator → board, where the flow begins."""
FLOW: Final = "city-air"
NEIGHBOURS: Final = (("g1", "g2"), ("g2", "g3"), ("g3", CENTRAL))
"""Pairs between which rows of the flow travel."""
RATE: Final = 250.0
"""Messages per second."""
SENSORS: Final = 20
PROCESS_NOISE: Final = 0.125
SENSOR_NOISE: Final = 0.32
ERROR: Final = 30.0


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that is so for a while."""

    at_s: float
    """After the first message."""
    lasts_s: float
    kind: str
    """cut, one-way, kill, or move."""
    places: tuple[str, ...]
    """The two ends of a cut (one-way: from the first to the second); the killed board; or the boards to which the
    window and the sink move."""

    def __str__(self) -> str:
        if self.kind == "move":
            return f"{self.at_s:5.1f} s  move the window to {self.places[0]}, the sink to {self.places[1]}"
        joint = {"cut": " and ", "one-way": " to "}.get(self.kind, "")
        return f"{self.at_s:5.1f} s  {self.kind} {joint.join(self.places)} for {self.lasts_s:.1f} s"


@dataclass(frozen=True, slots=True)
class Outcome:
    """Of one seed."""

    seed: int
    faults: tuple[Fault, ...]
    dropped_by_cuts: int
    """Frames."""
    lost: int
    """Messages that are in no window."""
    doubled: int
    """Messages that were counted more often than once."""
    sums_right: bool
    """Of the temperatures, by window and sensor."""
    out_of_order: int
    """Windows of a sensor whose estimates are not those of its readings in order."""
    pauses_s: tuple[float, ...]
    """How long the flow stood still for each move that was made."""
    moves_cut_short: int
    recovery_s: float
    """From the last fault's end until all results had landed."""

    @property
    def good(self) -> bool:
        return not self.lost and not self.doubled and self.sums_right and not self.out_of_order

    def plain(self) -> dict[str, Any]:
        """Of JSON types only."""
        return {"good": self.good, **asdict(self)}

    def __str__(self) -> str:
        lines = ["good" if self.good else "BAD", *(f"  {step[2]}" for step in timeline(self.faults) if step[1])]
        sums = "right" if self.sums_right else "WRONG"
        lines.append(f"  lost {self.lost}, doubled {self.doubled}, out of order {self.out_of_order}, sums {sums}")
        lines.append(f"  {self.dropped_by_cuts} frames dropped by cuts")
        if self.pauses_s:
            pause = f"the longest pause {max(self.pauses_s):.1f} s"
            lines.append(f"  {len(self.pauses_s)} moves, {pause}; {self.moves_cut_short} times one was cut short")
        lines.append(f"  all results landed {self.recovery_s:.1f} s after the last fault")
        return "\n".join([*lines, ""])


def description(seed: int) -> Description:
    """Three boards; 1 to 4 ms between them, with jitter and some loss."""
    draw = random.Random(seed)
    places = [CENTRAL, *BOARDS]
    links = {}
    for number, a in enumerate(places):
        for b in places[number + 1 :]:
            links[a, b] = links[b, a] = Way(draw.uniform(0.001, 0.004), 0.001, loss=draw.choice((0.0, 0.0, 0.01)))
    return Description(tuple(map(BoardDescription, BOARDS)), ways(places, links), seed, agents=False)


def plan(draw: random.Random, duration_s: float, number: int = 5) -> list[Fault]:
    """Faults within `duration_s`, of up to a third of it; each kind is among them. Two of one kind at one place do not
    overlap."""
    kinds = ["cut", "one-way", "kill", *draw.choices(("cut", "one-way", "kill"), k=max(0, number - 3))]
    faults: list[Fault] = []
    for kind in kinds:
        for _ in range(100):
            lasts = draw.uniform(0.5, duration_s / 3)
            fault = Fault(draw.uniform(0, duration_s - lasts), lasts, kind, _places(draw, kind))
            if not any(_touch(fault, other) for other in faults):
                faults.append(fault)
                break
    return sorted(faults, key=lambda fault: fault.at_s)


def draw_moves(draw: random.Random, duration_s: float, number: int) -> list[Fault]:
    """Moves within `duration_s`. The source stays where its sensors are."""
    times = sorted(draw.uniform(0.5, duration_s) for _ in range(number))
    return [Fault(at, 0.0, "move", (draw.choice(BOARDS), draw.choice(BOARDS))) for at in times]


def _places(draw: random.Random, kind: str) -> tuple[str, ...]:
    if kind == "kill":
        return (draw.choice(BOARDS),)
    pair = draw.choice(NEIGHBOURS)
    return pair if draw.random() < 0.5 else pair[::-1]


def _touch(a: Fault, b: Fault) -> bool:
    """They are at the same place at the same time."""
    together = a.at_s < b.at_s + b.lasts_s and b.at_s < a.at_s + a.lasts_s
    return together and (a.kind == "kill") == (b.kind == "kill") and set(a.places) == set(b.places)


def timeline(faults: Sequence[Fault]) -> list[tuple[float, bool, Fault]]:
    """(seconds, begins, fault), in order."""
    begin = [(fault.at_s, True, fault) for fault in faults]
    end = [(fault.at_s + fault.lasts_s, False, fault) for fault in faults if fault.kind != "move"]
    return sorted(begin + end, key=lambda step: step[0])


def run(seed: int, folder: Path, duration_s: float = 12.0, moves: int = 0, sensors: int = SENSORS) -> Outcome:
    """One laboratory with the faults of a seed, and that many moves of operators meanwhile."""
    draw = random.Random(seed)
    faults = plan(draw, duration_s)
    faults += draw_moves(random.Random(f"moves of {seed}"), duration_s, moves)
    packs = readings(draw, round(duration_s * RATE), sensors)
    with Lab(description(seed), folder).running() as lab:
        placed = Placed(lab, draw)
        source = lab.boards["g1"]
        with source.namespace.inside():
            publishing = source.rig.publishing(truth.as_messages(packs), RATE)
        inject(lab, faults, placed)
        healed = time.monotonic()
        publishing.join()
        if placed.pauses_s or placed.cut_short:
            placed.move(APART, dying=False)
        lab.linked.end(lab.central.rig, FLOW, 0, BOARDS)
        recovery_s = time.monotonic() - healed
        cut = sum(figures.get("cut", 0) for figures in lab.switch.figures().values())
        expected = truth.expected(packs, 10.0)
        counts, sums = landed(lab, sum(row["n"] for row in expected.values()))
        paths = lab.central.rig.counts(FLOW, "path")
    lost, doubled = differences({key: row["n"] for key, row in expected.items()}, counts)
    sums_right = sums == {key: row["total"] for key, row in expected.items()}
    wrong = sum(not math.isclose(paths.get(key, math.nan), path, rel_tol=1e-9) for key, path in tracked(packs).items())
    return Outcome(
        seed, tuple(faults), cut, lost, doubled, sums_right, wrong, tuple(placed.pauses_s), placed.cut_short, recovery_s
    )


def document() -> dict[str, Any]:
    """The flow of the integration tests with a Kalman filter before the window: what it estimates depends on the order
    of a sensor's readings, and on all of them."""
    made = truth.document(interval_s=0.3)
    operators = made["operators"]
    filtering = {
        "type": "kalman", "input": "by-device", "field": "temperature",
        "process_noise": PROCESS_NOISE, "sensor_noise": SENSOR_NOISE, "initial_error": ERROR,
    }  # fmt: skip
    window = operators["window"]
    made["operators"] = {
        **{name: operators[name] for name in ("readings", "valid")},
        "by-device": operators["by-sensor"],
        "tracked": filtering,
        "by-sensor": {**operators["by-sensor"], "input": "tracked"},
        "window": {**window, "aggregates": {**window["aggregates"], "path": "sum(estimate)"}},
        "central": operators["central"],
    }
    return made


def tracked(packs: Sequence[Mapping[str, Any]], size_s: float = 10.0) -> dict[tuple[float, str], float]:
    """(window start, source) → sum of the estimates, in plain Python."""
    tracks: dict[str, tuple[float, float]] = {}
    found: dict[tuple[float, str], float] = {}
    for pack in packs:
        row = truth.fields(pack)
        value, source = row["temperature"], row["source"]
        if not truth.VALID[0] <= value <= truth.VALID[1]:
            continue
        if source in tracks:
            estimate, error = tracks[source]
            gain = (error + PROCESS_NOISE) / (error + PROCESS_NOISE + SENSOR_NOISE)
            tracks[source] = estimate + gain * (value - estimate), gain * SENSOR_NOISE
        else:
            tracks[source] = value, ERROR
        window = pack["bt"] / 1000 // size_s * size_s
        found[window, source] = found.get((window, source), 0.0) + tracks[source][0]
    return found


def readings(draw: random.Random, number: int, sensors: int = SENSORS) -> list[dict[str, Any]]:
    """SenML packs of some sensors by turns, 100 ms of event time from one to the next. Temperatures are whole, so that
    sums are exact; some are out of the flow's range."""
    return [reading(draw, at, at % sensors) for at in range(number)]


def reading(draw: random.Random, at: int, sensor: int) -> dict[str, Any]:
    """The pack number `at` of all, of one sensor."""
    entries: list[dict[str, Any]] = [{"n": "source", "u": "string", "sv": f"sensor-{sensor}"}]
    entries += [{"n": "temperature", "u": "far", "v": str(draw.randint(-20, 50))}]
    entries += [{"n": "dust", "u": "per", "v": str(draw.randint(0, 500))}]
    return {"e": entries, "bt": 1_422_748_800_000 + 100 * at}


class Placed:
    """The flow in a laboratory, and where its operators are."""

    def __init__(self, lab: Lab, draw: random.Random) -> None:
        self._lab, self._draw, self._document = lab, draw, document()
        self._on: Mapping[str, str] = APART
        self._plan = 1
        self.pauses_s: list[float] = []
        self.cut_short = 0
        """Moves whose coordinator or one of whose gateways died on the way."""
        lab.linked.deploy(self._document, self._on, self._plan)

    def move(self, on: Mapping[str, str], dying: bool = True) -> None:
        """Does nothing where a board that has to take part is down. `dying`: in half of the moves the coordinator dies
        at a step, or a gateway is killed; another coordinator then finishes the move, or takes it back."""
        everywhere = sorted({*self._on.values(), *on.values()})
        if not all(self._lab.boards[name].gateway.running for name in everywhere):
            return
        self._plan += 1
        steps, ends = iter(range(100)), self._draw.randrange(24) if dying else -1
        killed = self._draw.choice(["", *everywhere])

        def step() -> None:
            if next(steps) == ends:
                self.cut_short += 1
                if not killed:
                    raise CoordinatorDied
                self._lab.kill(killed)

        try:
            self.pauses_s.append(self._lab.linked.move(self._document, self._on, on, self._plan, step))
            self._on = on
        except (CoordinatorDied, ControlError):
            if killed:
                self._lab.start_board(killed)
            if self._lab.linked.finish(FLOW, everywhere, self._plan, self._plan):
                self._on = on
        if killed:
            self._lab.start_board(killed)


def inject(lab: Lab, faults: Sequence[Fault], placed: Placed) -> None:
    """Returns after the last fault's end."""
    began = time.monotonic()
    for at, begins, fault in timeline(faults):
        early = began + at - time.monotonic()
        began += max(0.0, -early)  # a step that takes long delays all others, so that each fault lasts as planned
        time.sleep(max(0.0, early))
        if fault.kind == "move":
            window, sink = fault.places
            placed.move({**APART, **dict.fromkeys(KEYED, window), "central": sink})
        elif fault.kind == "kill":
            lab.kill(fault.places[0]) if begins else lab.start_board(fault.places[0])
        else:
            a, b = fault.places
            lab.change(a, b, one_way=fault.kind == "one-way", cut=begins)


def landed(lab: Lab, messages: int) -> tuple[Mapping[Any, int], Mapping[Any, float]]:
    """(window start, source) → count, and → sum, of the table. The collector may be a moment behind: waits for it."""
    rig = lab.central.rig
    deadline = time.monotonic() + DEADLINE_S
    while sum(rig.counts(FLOW).values()) < messages and time.monotonic() < deadline:
        time.sleep(0.2)
    return rig.counts(FLOW), rig.counts(FLOW, "total")


def differences(expected: Mapping[Any, int], counted: Mapping[Any, int]) -> tuple[int, int]:
    """(lost, doubled) messages."""
    more = {key: counted.get(key, 0) - expected.get(key, 0) for key in expected.keys() | counted.keys()}
    return -sum(n for n in more.values() if n < 0), sum(n for n in more.values() if n > 0)
