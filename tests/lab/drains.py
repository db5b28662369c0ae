"""Every board of a laboratory in turn is drained, restarted and filled again, while flows over all of them run.

A window is on time if it is shipped once and whole (rows that come after their window was shipped stand in a second
contribution), and if its result arrives within the bound of `tests.lab.on_time` after its end."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from agent.simulation.described.description import read
from edgert.control.messages import ControlError
from tests.integration import truth
from tests.integration.rig import Message
from tests.lab.faults import KEYED, differences, document, reading
from tests.lab.lab import Lab
from tests.lab.on_time import Delays, Down, Sent, with_arrival
from tests.waiting import wait_until

FILE: Final = Path(__file__).parent / "eleven.toml"
FLOWS: Final = 4
SENSORS: Final = 5
"""Of each flow."""
RATE: Final = 20.0
"""Messages per second of each flow: a window of ten seconds of their time takes five."""
STEP_S: Final = 0.1
"""Event time from one message to the next."""
BEFORE: Final = 400
"""Messages of each flow before the first drain: windows to compare with."""
MOVABLE: Final = (("valid",), KEYED, ("central",))
"""Operators that go together; the source stays with its sensors."""


@dataclass(slots=True)
class Turn:
    """One board."""

    board: str
    moved: int = 0
    """Operators that the drain moved away."""
    stays: Mapping[str, str] = field(default_factory=dict)
    left: list[str] = field(default_factory=list)
    """Operators, sources apart, that were on the board after its drain, or while it was down."""
    back: bool = False
    """All of them were on the board again after the fill."""
    drain_s: float = 0.0
    down_s: float = 0.0
    pause_s: float = 0.0
    """Longest time for which a flow stood still, of the drain and the fill."""
    down: Down | None = None

    @property
    def good(self) -> bool:
        return self.moved > 0 and self.back and not self.stays and not self.left

    def __str__(self) -> str:
        end = "good" if self.good else f"BAD: stays {self.stays}, left {self.left}, back {self.back}"
        times = f"drained in {self.drain_s:.1f} s, down for {self.down_s:.1f} s, longest pause {self.pause_s:.2f} s"
        return f"{self.board:9} {self.moved} operators moved; {times}; {end}"


@dataclass(slots=True)
class Outcome:
    """Of one seed."""

    seed: int
    turns: list[Turn] = field(default_factory=list)
    messages: int = 0
    windows: int = 0
    lost: int = 0
    doubled: int = 0
    late: int = 0
    """Windows that were shipped more often than once."""
    delays: Delays = field(default_factory=Delays)

    @property
    def good(self) -> bool:
        wrong = self.lost or self.doubled or self.late or self.delays.slow
        return all(turn.good for turn in self.turns) and not wrong

    @property
    def moves(self) -> int:
        return sum(turn.moved for turn in self.turns)

    def plain(self) -> dict[str, Any]:
        """Of JSON types only."""
        return {"good": self.good, "moves": self.moves, **asdict(self), "delays": self.delays.plain()}

    def __str__(self) -> str:
        end = f"lost {self.lost}, doubled {self.doubled}, late {self.late} of {self.windows} windows"
        lines = ["good" if self.good else "BAD", *map(str, self.turns), f"{self.messages} messages; {end}"]
        lines.append(str(self.delays))
        return "\n  ".join(lines) + "\n"


class Flow:
    """One flow, and what it was fed. Flows whose sources share a board have topics of their own."""

    def __init__(self, seed: int, number: int, boards: list[str]) -> None:
        """Its source is on a board of the edge; its operators are spread so that every board has some."""
        self.name, self.source = f"flow-{number}", boards[-1 - number % len(boards)]
        self.document = {**document(), "name": self.name}
        self.document["operators"]["readings"]["topic"] = f"{self.name}/{{source}}/sense"
        places = [boards[(len(MOVABLE) * number + n) % len(boards)] for n in range(len(MOVABLE))]
        self.pins = {operator: at for some, at in zip(MOVABLE, places, strict=True) for operator in some}
        self.packs: list[dict[str, Any]] = []
        self.published: list[float] = []
        """When each was, seconds since 1970."""
        self._draw = random.Random(f"{self.name} of {seed}")

    def messages(self, ends: threading.Event) -> Iterator[Message]:
        began = time.monotonic()
        while not ends.is_set():
            number = len(self.packs)
            pack = reading(self._draw, number, number % SENSORS)
            self.packs.append(pack)
            self.published.append(time.time())
            for topic, payload in truth.as_messages([pack]):
                yield f"{self.name}/{topic.split('/', 1)[1]}", payload
            if (ahead := began + number / RATE - time.monotonic()) > 0.01:
                time.sleep(ahead)

    @property
    def sent(self) -> Sent:
        return Sent(self.source, self.packs[0]["bt"] / 1e3, STEP_S, STEP_S * SENSORS, self.published)


class DrainRun:
    """One laboratory, and flows on all of its boards."""

    def __init__(self, lab: Lab, seed: int) -> None:
        self.lab, self.ends = lab, threading.Event()
        self.flows = {flow.name: flow for flow in (Flow(seed, n, list(lab.boards)) for n in range(FLOWS))}

    def begin(self) -> list[threading.Thread]:
        wait_until(self._all_known, "all boards to know each other", 300.0, poll_s=1.0)
        for flow in self.flows.values():
            self._until_done(flow.source, "fleet.deploy", {"document": flow.document, "pins": flow.pins})
        publishing = []
        for flow in self.flows.values():
            board = self.lab.boards[flow.source]
            with board.namespace.inside():
                publishing.append(board.rig.publishing(flow.messages(self.ends), 0.0))
        some = "messages of all flows before the first drain"
        wait_until(lambda: all(len(flow.packs) >= BEFORE for flow in self.flows.values()), some, 120.0, poll_s=0.5)
        return publishing

    def turn(self, name: str) -> Turn:
        """Drains a board, starts its programs anew, and fills it."""
        made, board = Turn(name), self.lab.boards[name]
        before = self._on(name)
        asked = next(other for other in self.lab.boards if other != name)
        began = time.monotonic()
        drained = self._until_done(asked, "fleet.drain", {"board": name})
        made.drain_s, made.stays = round(time.monotonic() - began, 1), drained["stays"]
        made.moved, made.pause_s = sum(map(len, drained["moved"].values())), drained["pause_s"]
        made.left = self._on(name)
        began, since = time.monotonic(), time.time()
        for process in (board.agent, board.gateway):
            assert process is not None
            process.terminate()
        board.start_programs()
        board.wait_ready()
        made.down = Down(name, since, time.time())
        wait_until(self._all_known, f"{name} to be back", 180.0, poll_s=0.5)
        made.down_s = round(time.monotonic() - began, 1)
        made.left += self._on(name)
        filled = self._until_done(asked, "fleet.fill", {"board": name})
        made.stays = {**made.stays, **filled["stays"]}
        made.pause_s = round(max(made.pause_s, filled["pause_s"]), 2)
        made.back = self._on(name) == before
        return made

    def end(self) -> None:
        """Removes the flows after everything came in."""
        self.ends.set()
        for flow in self.flows.values():
            gateway = self.lab.boards[flow.source].gateway
            gateway.wait(lambda s: not s["ingest"]["unacknowledged"], "the acknowledgements", 120.0)
            self._until_done(flow.source, "fleet.remove", {"flow": flow.name})
        for board in self.lab.boards.values():
            self.lab.central.rig.drained(board.gateway, 180.0)

    def _on(self, board: str) -> list[str]:
        """Operators on a board that a drain has to move."""
        wait_until(self._runs, "all flows to run by one plan", 180.0, poll_s=0.5)
        found = self._told()["flows"]
        return sorted(
            f"{name}: {operator}"
            for name in self.flows
            for operator, at in found[name]["assignment"].items()
            if at == board and operator != "readings"
        )

    def _runs(self) -> bool:
        found = self._told().get("flows", {})
        return self.flows.keys() <= found.keys() and all(
            set(one["boards"].values()) == {"running"} and set(one["assignment"].values()) <= one["boards"].keys()
            for one in found.values()
        )

    def _told(self) -> dict[str, Any]:
        for board in self.lab.boards.values():
            try:
                found: dict[str, Any] = board.ask_agent("fleet.flows", timeout_s=30.0)
            except ControlError:
                continue
            if len(found["alive"]) == len(self.lab.boards):
                return found
        return {}

    def _all_known(self) -> bool:
        """Each agent knows all boards, and where their gateways listen."""

        def knows_all(name: str) -> bool:
            members = self.lab.boards[name].ask_agent("fleet.status", timeout_s=30.0)["members"]
            linked = [m for m in members if m["state"] == "alive" and m["board"].get("link", [0, 0])[1]]
            return len(linked) == len(self.lab.boards)

        try:
            return all(map(knows_all, self.lab.boards))
        except ControlError:
            return False

    def _until_done(self, board: str, verb: str, args: Mapping[str, Any]) -> Any:
        """Asks until it is done, as a user would."""
        deadline = time.monotonic() + 180
        while True:
            try:
                return self.lab.boards[board].ask_agent(verb, args, timeout_s=300.0)
            except ControlError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(1.0)


def run(seed: int, folder: Path, file: Path = FILE) -> Outcome:
    """One laboratory as described in `file`, each of its boards drained, restarted and filled."""
    outcome = Outcome(seed)
    with Lab(read(file), folder).running() as lab:
        made = DrainRun(lab, seed)
        try:
            publishing = made.begin()
            began = time.time()
            for name in lab.boards:
                outcome.turns.append(made.turn(name))
                print(f"  {outcome.turns[-1]}", flush=True)
        finally:
            made.ends.set()
        for thread in publishing:
            thread.join()
        made.end()
        for flow in made.flows.values():
            _compare(lab, flow, outcome, began)
    return outcome


def _compare(lab: Lab, flow: Flow, outcome: Outcome, began: float) -> None:
    expected = {key: row["n"] for key, row in truth.expected(flow.packs, 10.0).items()}
    rig = lab.central.rig
    deadline = time.monotonic() + 60
    while sum(rig.counts(flow.name).values()) < sum(expected.values()) and time.monotonic() < deadline:
        time.sleep(1.0)  # the collector may be a moment behind
    rows = rig.landed(flow.name)
    lost, doubled = differences(expected, rig.counts(flow.name))
    times = Counter((row["window_start"], row["source"]) for row in rows)
    outcome.messages += len(flow.packs)
    outcome.windows += len(expected)
    outcome.lost, outcome.doubled = outcome.lost + lost, outcome.doubled + doubled
    outcome.late += sum(number > 1 for number in times.values())
    arrived = with_arrival(rows, rig.tables / "landing" / flow.name)
    outcome.delays.add(flow.sent, arrived, began, [turn.down for turn in outcome.turns if turn.down is not None])
