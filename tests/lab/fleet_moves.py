"""Many moves of a flow's operators by real agents, one after the other and under load, with a fault amid most of them.

Every key is read once before the first move and once after the last one. What the Kalman filter estimates then depends
on all readings of the key, in order: so lost, doubled and swapped state shows for each key."""

from __future__ import annotations

import contextlib
import itertools
import math
import random
import statistics
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from agent.simulation.described.description import CENTRAL
from edgert.control.messages import ControlError
from edgert.core.ids import short
from tests.integration import truth
from tests.integration.rig import Message
from tests.lab.faults import BOARDS, FLOW, KEYED, differences, document, landed, reading, tracked
from tests.lab.fleet_faults import FleetRun, watched, with_agents
from tests.lab.fleet_faults import Outcome as Run
from tests.lab.lab import Lab
from tests.lab.owners import Owners
from tests.waiting import wait_until

SWEEP: Final = 500.0
"""Messages per second while every key is read."""
RATE: Final = 60.0
"""Messages per second amid the moves."""
CATCH_UP_S: Final = 5.0
"""So much that was not sent in time is sent at once."""
BEGIN: Final = {**dict.fromkeys(KEYED, "g2"), "central": "g3"}
FAULTS: Final = (
    "none", "none", "giver", "taker", "source", "coordinator", "coordinator", "agent", "link", "cut", "one-way"
)  # fmt: skip
"""Amid the moves, each as often as it stands here: kills of the board that gives the window, of the one that takes it,
of the source's, of the coordinator's, and of the coordinator's agent alone; cuts of the way between giver and taker,
and of others."""
SHORT_S: Final = (0.3, 2.0)
LONG_S: Final = (8.0, 11.0)
"""In a tenth of the cases: the board is held for dead, and another member coordinates."""


@dataclass(slots=True)
class Moved:
    """One move that was asked for."""

    at_s: float
    on: Mapping[str, str]
    fault: str
    kind: str = ""
    """The fault's: one of `FAULTS`."""
    made: bool = False
    answer: str = ""
    pause_s: float | None = None
    """How long the flow stood still, where the coordinator could tell."""
    settled_s: float = 0.0
    """From the request until all boards were alive and all parts ran by one plan."""

    def __str__(self) -> str:
        end = "made" if self.made else "undone"
        return f"{self.at_s:6.1f} s  {self.on} amid {self.fault}: {end} in {self.settled_s:.1f} s; {self.answer}"


@dataclass(slots=True)
class Outcome:
    """Of one seed."""

    seed: int
    steps: list[Moved] = field(default_factory=list)
    messages: int = 0
    keys: int = 0
    lost: int = 0
    doubled: int = 0
    sums_right: bool = False
    out_of_order: int = 0
    """Windows of a key whose estimates are not those of its readings in order."""
    keys_wrong: int = 0
    """Keys with such a window: their state was lost, doubled or swapped."""
    two_owners: list[str] = field(default_factory=list)
    looks: int = 0
    cut_short: str = ""
    """Why the seed was not carried through; nothing was compared then."""

    @property
    def good(self) -> bool:
        whole = not self.cut_short and not self.lost and not self.doubled and self.sums_right
        return whole and not self.out_of_order and self.looks > 0 and not self.two_owners

    @property
    def moves(self) -> int:
        return len(self.steps)

    @property
    def made(self) -> int:
        return sum(move.made for move in self.steps)

    @property
    def amid(self) -> dict[str, int]:
        """Moves by the kind of their fault."""
        return dict(Counter(move.kind for move in self.steps))

    @property
    def pauses_s(self) -> list[float]:
        """Of moves without a fault, the shortest first."""
        return sorted(move.pause_s for move in self.steps if move.kind == "none" and move.pause_s is not None)

    def plain(self) -> dict[str, Any]:
        """Of JSON types only."""
        return {"good": self.good, "moves": self.moves, "made": self.made, "amid": self.amid, **asdict(self)}

    def __str__(self) -> str:
        sums, pauses = "right" if self.sums_right else "WRONG", self.pauses_s
        pause = f"median {statistics.median(pauses):.2f} s, at most {pauses[-1]:.2f} s" if pauses else "none measured"
        return "\n  ".join([
            "good" if self.good else "BAD" + (f", not carried through: {self.cut_short}" if self.cut_short else ""),
            *map(str, self.steps),
            f"{self.moves} moves, {self.made} made; {self.messages} messages of {self.keys} keys",
            f"lost {self.lost}, doubled {self.doubled}, out of order {self.out_of_order}, sums {sums}",
            f"state of {self.keys_wrong} keys wrong",
            f"pauses of moves without a fault: {pause}",
            f"two owners: {'; '.join(self.two_owners) or 'never'}, in {self.looks} looks",
        ]) + "\n"  # fmt: skip


class Feed:
    """Readings of all keys in turn, then of keys by chance until `moved`, then of all keys once more."""

    def __init__(self, seed: int, sensors: int) -> None:
        self._draw, self._sensors = random.Random(f"readings of {seed}"), sensors
        self.packs: list[dict[str, Any]] = []
        self.swept, self.moved = threading.Event(), threading.Event()
        self._next = 0.0

    def messages(self) -> Iterator[Message]:
        """Waits between two of them, as sensors do."""
        yield from self._all()
        self.swept.set()
        while not self.moved.is_set():
            yield from self._one(self._draw.randrange(self._sensors), RATE)
        yield from self._all()

    def _all(self) -> Iterator[Message]:
        order = list(range(self._sensors))
        self._draw.shuffle(order)
        for sensor in order:
            yield from self._one(sensor, SWEEP)

    def _one(self, sensor: int, rate: float) -> Iterator[Message]:
        pack = reading(self._draw, len(self.packs), sensor)
        self.packs.append(pack)
        yield from truth.as_messages([pack])
        self._next = max(self._next, time.monotonic() - CATCH_UP_S) + 1 / rate
        if (ahead := self._next - time.monotonic()) > 0.01:  # a busy machine sleeps longer than it is told
            time.sleep(ahead)


class MovesRun(FleetRun):
    """A flow whose operators are moved again and again."""

    def __init__(self, lab: Lab, seed: int, outcome: Outcome, kinds: Sequence[str]) -> None:
        super().__init__(lab, random.Random(seed), Run(seed))
        self.document, self.moved = document(), outcome.steps
        self._on: Mapping[str, str] = BEGIN
        self._kinds, self._faults = kinds, list[str]()
        self._usual_s = 1.0
        """How long a move without a fault takes: a fault comes within a little more."""

    @property
    def _deployment(self) -> Mapping[str, Any]:
        return {"document": self.document, "pins": BEGIN}

    def begin(self) -> None:
        wait_until(self.members_known, "all boards to know each other", 120.0, poll_s=0.2)
        self.until_done("fleet.deploy", self._deployment)
        self._settle()

    def one(self) -> None:
        """One move, and a fault amid it."""
        on = self._on
        while on == self._on:
            on = {**dict.fromkeys(KEYED, self.draw.choice(BOARDS)), "central": self.draw.choice(BOARDS)}
        fault = self._next_fault()
        began = time.monotonic()
        told = {"window": on["window"], "central": on["central"]}
        move = Moved(round(began - self._began, 1), told, fault, fault)
        self.moved.append(move)
        asking = threading.Thread(target=self._ask_for, args=(move, on, self.draw.choice(BOARDS)))
        asking.start()
        if fault != "none":
            time.sleep(self.draw.uniform(0.0, 1.3 * self._usual_s))
            self._inject(move, on, time.monotonic() - began)
        asking.join()
        wait_until(self.runs, f"the flow to run by one plan after {move}", 180.0, poll_s=0.2)
        move.settled_s = round(time.monotonic() - began, 2)
        found = self.flows()["flows"][FLOW]["assignment"]
        move.made = all(found[operator] == at for operator, at in on.items())
        assert move.made or all(found[operator] == at for operator, at in self._on.items()), f"half of {move}: {found}"
        self._on = on if move.made else self._on
        print(f"  {len(self.moved)}: {move}", flush=True)

    def _next_fault(self) -> str:
        """All kinds before one comes again more often than it stands in `kinds`."""
        if not self._faults:
            self._faults = self.draw.sample(self._kinds, len(self._kinds))
        return self._faults.pop()

    def _ask_for(self, move: Moved, on: Mapping[str, str], asked: str) -> None:
        try:
            args = {"flow": FLOW, "moves": on}
            found = self.lab.boards[asked].ask_agent("fleet.move", args, timeout_s=120.0)
        except ControlError as error:
            move.answer = str(error)
            return
        move.answer, move.pause_s = f"plan {short(found['plan'])}", found["pause_s"]
        if move.fault == "none":
            self._usual_s = time.monotonic() - self._began - move.at_s

    def _inject(self, move: Moved, on: Mapping[str, str], after_s: float) -> None:
        """The fault, and its end. Programs are started from this thread only."""
        lasts = self.draw.uniform(*(LONG_S if self.draw.random() < 0.1 else SHORT_S))
        when = f"{after_s:.2f} s into the move, for {lasts:.1f} s"
        if move.kind in ("link", "cut", "one-way"):
            a, b = self._on["window"], on["window"]
            if move.kind != "link" or a == b:  # the window stays where it is
                a, b = self.draw.sample([*BOARDS, CENTRAL], 2)
            move.fault = f"{move.kind} from {a} to {b} {when}"
            self.lab.change(a, b, one_way=move.kind == "one-way", cut=True)
            time.sleep(lasts)
            self.lab.heal()
            return
        victims = {"giver": self._on["window"], "taker": on["window"], "source": "g1"}
        victim = victims.get(move.kind) or self.coordinator()
        board, alone = self.lab.boards[victim], move.kind == "agent"
        move.fault = f"kill -9 of {victim} ({move.kind}) {when}"
        if alone and board.agent is not None:
            board.agent.kill()
        else:
            board.kill()
        time.sleep(lasts)
        board.start_programs()
        board.wait_ready()

    def end(self) -> None:
        """Removes the flow after everything came in; returns when all results are on their way to the table."""
        source = self.lab.boards["g1"].gateway
        source.wait(lambda s: not s["ingest"]["unacknowledged"], "the acknowledgements", 120.0)
        wait_until(self.members_known, "all boards to know each other", poll_s=0.2)
        self.until_done("fleet.remove", {"flow": FLOW})
        for board in self.lab.boards.values():
            self.lab.central.rig.drained(board.gateway, 180.0)


def run(seed: int, folder: Path, moves: int, sensors: int, kinds: Sequence[str] = FAULTS) -> Outcome:
    """One laboratory, and so many moves. One that is waited for in vain leaves what was seen until then."""
    outcome, owners, feed = Outcome(seed, keys=sensors), Owners(FLOW), Feed(seed, sensors)
    try:
        with Lab(with_agents(seed), folder).running() as lab, watched(owners, lab):
            _run(MovesRun(lab, seed, outcome, kinds), feed, moves, sensors)
            _compare(lab, feed, outcome)
    except AssertionError as error:
        outcome.cut_short = str(error)
    outcome.messages = len(feed.packs)
    outcome.two_owners, outcome.looks = owners.violations, owners.looks
    return outcome


def _run(made: MovesRun, feed: Feed, moves: int, sensors: int) -> None:
    with contextlib.ExitStack() as ending:
        made.begin()
        source = made.lab.boards["g1"]
        ending.callback(feed.moved.set)
        with source.namespace.inside():
            publishing = source.rig.publishing(feed.messages(), 0.0)
        wait_until(feed.swept.is_set, "a reading of each key", 120.0 + 20 * sensors / SWEEP)
        for _ in itertools.repeat(None, moves):
            made.one()
        feed.moved.set()
        publishing.join()
        made.end()


def _compare(lab: Lab, feed: Feed, outcome: Outcome) -> None:
    expected = truth.expected(feed.packs, 10.0)
    counts, sums = landed(lab, sum(row["n"] for row in expected.values()))
    paths = lab.central.rig.counts(FLOW, "path")
    outcome.lost, outcome.doubled = differences({key: row["n"] for key, row in expected.items()}, counts)
    outcome.sums_right = sums == {key: row["total"] for key, row in expected.items()}
    wrong = [
        key
        for key, path in tracked(feed.packs).items()
        if not math.isclose(paths.get(key, math.nan), path, rel_tol=1e-9)
    ]
    outcome.out_of_order, outcome.keys_wrong = len(wrong), len({source for _, source in wrong})
