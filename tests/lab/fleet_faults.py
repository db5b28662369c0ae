"""A flow of the fleet, run by real agents, while its coordinator is killed amid its deployment and its moves, boards
that host its operators are killed, and ways are cut. Its results have to be those of plain Python."""

from __future__ import annotations

import contextlib
import random
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from agent.lease.grants import LEASE_S
from agent.placement.rendezvous import coordinator
from agent.simulation.described.description import CENTRAL, BoardDescription, Description
from edgert.control.messages import ControlError
from edgert.core.ids import short
from tests.integration import truth
from tests.lab.board import Board
from tests.lab.faults import BOARDS, FLOW, RATE, description, differences, landed, readings
from tests.lab.lab import Lab
from tests.lab.owners import Ask, Owners, Witness
from tests.waiting import wait_until

APART: Final = {"window": "g2", "central": "g3"}
"""Operator → board, as deployed; the source runs on g1, which is asked."""
SHORT_S: Final = (0.5, 4.0)
"""How long a cut lasts, and how long a board is down, mostly: its agent is suspected."""
LONG_S: Final = (9.0, 14.0)
"""In a fifth of the cases: its agent is declared dead, and another member coordinates its flows."""
RUNS_AGAIN_S: Final = 30.0
PAST_A_LEASE_S: Final = (5.0, 10.0)
"""How much longer than a lease a long cut lasts."""
HANDED_OVER_S: Final = 30.0
"""Longest time from a coordinator's death amid a deployment until another one has finished it: its death is noticed,
its lease lapses, and the next one looks. The user need not ask again."""
SLOWLY: Final = RATE / 4
"""Messages per second: so that they come in during all faults, not only the first."""


@dataclass(slots=True)
class Outcome:
    """Of one seed."""

    seed: int
    steps: list[str] = field(default_factory=list)
    coordinator_kills: int = 0
    lost: int = 0
    doubled: int = 0
    sums_right: bool = False
    two_owners: list[str] = field(default_factory=list)
    looks: int = 0
    """How often a gateway was asked what it runs, to see two owners."""
    starts_s: list[float] = field(default_factory=list)
    """How long the gateways and agents of killed boards took to start."""
    runs_again_s: list[float] = field(default_factory=list)
    """After each fault was over: until all boards were alive, and all parts ran by one plan."""
    guests_stop_s: list[float] = field(default_factory=list)
    """After each cut that was longer than a lease began: until the board that was cut off had stopped what it runs for
    others."""
    stopped_wrongly: list[str] = field(default_factory=list)
    """Boards of the greater side that stopped what they run for others meanwhile."""
    handed_over_s: list[float] = field(default_factory=list)
    """After the death of a coordinator between two steps of a deployment: until another one had ended it."""

    @property
    def good(self) -> bool:
        in_time = max(self.runs_again_s, default=0.0) <= RUNS_AGAIN_S
        in_time &= max(self.handed_over_s, default=0.0) <= HANDED_OVER_S
        owned = self.looks > 0 and not self.two_owners and not self.stopped_wrongly
        return not self.lost and not self.doubled and self.sums_right and owned and in_time

    def plain(self) -> dict[str, Any]:
        """Of JSON types only."""
        return {"good": self.good, **asdict(self)}

    def __str__(self) -> str:
        lines = ["good" if self.good else "BAD", *self.steps]
        lines.append(f"lost {self.lost}, doubled {self.doubled}, sums {'right' if self.sums_right else 'WRONG'}")
        lines.append(f"two owners: {'; '.join(self.two_owners) or 'never'}, in {self.looks} looks")
        lines.append(f"coordinators killed {self.coordinator_kills}; ran again after at most "
                     f"{max(self.runs_again_s, default=0.0):.1f} s; programs started within "
                     f"{max(self.starts_s, default=0.0):.1f} s")  # fmt: skip
        if self.guests_stop_s:
            lines.append(f"boards that were cut off stopped their guests after {_seconds(self.guests_stop_s)};"
                         f" boards of the greater side: {', '.join(self.stopped_wrongly) or 'none'}")  # fmt: skip
        if self.handed_over_s:
            lines.append(f"a deployment was handed over and ended after {_seconds(self.handed_over_s)}")
        return "\n  ".join(lines) + "\n"


def _seconds(times: Sequence[float]) -> str:
    return ", ".join(f"{time:.1f} s" for time in times)


def with_agents(seed: int) -> Description:
    """The boards and links of `tests.lab.faults`, with agents that probe twice a second."""
    plain = description(seed)
    hasty = {"membership": {"probe_interval_s": 0.5, "probe_timeout_s": 0.2}}
    return Description(tuple(BoardDescription(name, agent=hasty) for name in BOARDS), plain.ways, seed)


class FleetRun:
    """One laboratory with a flow of the fleet."""

    def __init__(self, lab: Lab, draw: random.Random, outcome: Outcome) -> None:
        self.lab, self.draw, self.outcome = lab, draw, outcome
        self.document = truth.document(interval_s=0.3)
        self.pins: Mapping[str, str] = APART
        self._began = self._over = time.monotonic()

    def say(self, text: str) -> None:
        self.outcome.steps.append(f"{time.monotonic() - self._began:5.1f} s  {text}")

    # -- what the agents say

    def flows(self) -> dict[str, Any]:
        """`fleet.flows` of any agent that answers; empty without one."""
        for board in self.lab.boards.values():
            with contextlib.suppress(ControlError):
                found: dict[str, Any] = board.ask_agent("fleet.flows")
                return found
        return {}

    def runs(self) -> bool:
        """All boards are alive, and all parts of the flow run by its newest plan."""
        found = self.flows()
        one = found.get("flows", {}).get(FLOW, {})
        wanted = set(one.get("assignment", {}).values())
        states = one.get("boards", {})
        whole = bool(wanted) and wanted <= states.keys() and set(states.values()) == {"running"}
        return len(found.get("alive", ())) == len(BOARDS) and whole

    def members_known(self) -> bool:
        """All boards are alive for all, and vote: only those that vote coordinate."""

        def knows_all(name: str) -> bool:
            status = self.lab.boards[name].ask_agent("fleet.status")
            linked = [m for m in status["members"] if m["state"] == "alive" and m["board"].get("link", [0, 0])[1]]
            return len(linked) == len(status["coordination"]["boards"]) == len(BOARDS)

        with contextlib.suppress(ControlError):
            return all(knows_all(name) for name in BOARDS)
        return False

    def coordinator(self) -> str:
        """Who coordinates the flow now, as the agents of the boards pick it."""
        return coordinator(FLOW, self.flows().get("alive") or list(BOARDS))

    # -- steps

    def deploy(self) -> None:
        """In a third of the seeds the coordinator dies meanwhile and comes back soon; in another third it dies between
        two steps, and another one ends the deployment. Then the user asks again."""
        how = self.draw.choice(("calm", "killed", "handed over"))
        self.say(f"deploy, {how}")
        self._over = time.monotonic()
        if how == "handed over":
            self._hand_over()
        elif how == "killed":
            self._amid("deployment", "fleet.deploy", self._deployment)
        self.until_done("fleet.deploy", self._deployment)
        self._settle()

    def fault(self) -> None:
        """One of the faults, and its end."""
        kind = self.draw.choice(
            ("coordinator", "coordinator amid a move", "move", "host", "cut", "one-way", "cut for longer than a lease")
        )
        lasts = self.draw.uniform(*(LONG_S if self.draw.random() < 0.2 else SHORT_S))
        if kind in ("cut", "one-way"):
            a, b = self.draw.sample([*BOARDS, CENTRAL], 2)
            self.say(f"{kind} from {a} to {b} for {lasts:.1f} s")
            self.lab.change(a, b, one_way=kind == "one-way", cut=True)
            time.sleep(lasts)
            self._over = time.monotonic()
            self.lab.heal()
        elif kind == "cut for longer than a lease":
            self._cut_off()
        elif kind == "coordinator":
            self._kill(self.coordinator(), lasts, "the coordinator")
        elif kind == "host":
            self._kill(self.draw.choice(BOARDS), lasts, "a board that hosts operators")
        elif kind == "move":
            self._over = time.monotonic()
            self._ask_once("fleet.move", self._a_move())
        else:
            self._amid("move", "fleet.move", self._a_move())
        self._settle()

    def _cut_off(self) -> None:
        """One board from the two others: it has to stop what it runs for them, and they go on."""
        alone, way = self.draw.choice(BOARDS), self.draw.choice(("both ways", "from it", "to it"))
        lasts = LEASE_S + self.draw.uniform(*PAST_A_LEASE_S)
        others = [name for name in BOARDS if name != alone]
        self.say(f"cut {alone} off from {' and '.join(others)}, {way}, for {lasts:.1f} s")
        began = time.monotonic()
        for other in others:
            a, b = (other, alone) if way == "to it" else (alone, other)
            self.lab.change(a, b, one_way=way != "both ways", cut=True)
        if self._guests(alone, "running"):
            wait_until(lambda: not self._guests(alone, "running"), f"the guests of {alone} to stop", poll_s=0.1)
            self.outcome.guests_stop_s.append(time.monotonic() - began)
        time.sleep(max(0.0, began + lasts - time.monotonic()))
        self.outcome.stopped_wrongly += [other for other in others if self._guests(other, "stopped")]
        self._over = time.monotonic()
        self.lab.heal()

    def _guests(self, name: str, state: str) -> list[str]:
        """Flows of whose operators the board runs some, but no source, and that are in that state there."""
        parts = self.lab.boards[name].ask("part.status")
        return [flow for flow, part in parts.items() if part.get("guest") is True and part["state"] == state]

    def _hand_over(self) -> None:
        """The coordinator, which has no part of the flow, dies when the first part is there, and stays away until
        another one has ended the deployment: all parts run, or there is none."""
        victim = self.coordinator()
        others = [name for name in BOARDS if name != victim]
        assert "g1" in others, "the source's board is asked, and must live on"
        self.pins = dict.fromkeys(APART, next(name for name in others if name != "g1"))
        asking = threading.Thread(target=self._ask_once, args=("fleet.deploy", self._deployment))
        asking.start()
        wait_until(lambda: self._parts(others) > 0, "the first part", poll_s=0.002)
        self._stop(victim)
        began, parts = time.monotonic(), self._parts(others)
        self.say(f"kill -9 {victim} (the coordinator) with {parts} of {len(others)} parts there")
        self.outcome.coordinator_kills += 1
        asking.join()
        wait_until(lambda: self._parts(others) in (0, len(others)), "another one to end the deployment", 90.0)
        if parts < len(others):
            self.outcome.handed_over_s.append(time.monotonic() - began)
        self.say(f"the deployment was ended: {self._parts(others)} of {len(others)} parts are there")
        self._revive(victim)

    def _parts(self, boards: Sequence[str]) -> int:
        """How many of them have a part of the flow that runs."""
        states = [self.lab.boards[name].ask("part.status").get(FLOW, {}).get("state") for name in boards]
        return states.count("running")

    @property
    def _deployment(self) -> Mapping[str, Any]:
        return {"document": self.document, "pins": self.pins}

    def _a_move(self) -> Mapping[str, Any]:
        moves = {"window": self.draw.choice(BOARDS), "central": self.draw.choice(BOARDS)}
        self.say(f"move {moves}")
        return {"flow": FLOW, "moves": moves}

    def _ask(self, verb: str, args: Mapping[str, Any]) -> Any:
        """Of the agent of g1: the source runs on the board that is asked."""
        return self.lab.boards["g1"].ask_agent(verb, args, timeout_s=60.0)

    def _ask_once(self, verb: str, args: Mapping[str, Any]) -> None:
        try:
            found = self._ask(verb, args)
            self.say(f"plan {short(found['plan'])}, still for {found.get('pause_s', 0.0):.2f} s")
        except ControlError as error:
            self.say(f"{verb}: {error}")

    def _amid(self, what: str, verb: str, args: Mapping[str, Any]) -> None:
        """The coordinator is killed while it does what it is asked for. Programs are started from this thread only:
        the kernel ends them with the thread that started them."""
        victim, after, lasts = self.coordinator(), self.draw.uniform(0.0, 0.4), self.draw.uniform(*SHORT_S)
        asking = threading.Thread(target=self._ask_once, args=(verb, args))
        asking.start()
        time.sleep(after)
        self._kill(victim, lasts, f"the coordinator {after:.2f} s into the {what}")
        asking.join()

    def _kill(self, name: str, lasts: float, what: str) -> None:
        """SIGKILL of a board's gateway and agent; in a third of the cases of the agent alone."""
        self.outcome.coordinator_kills += what.startswith("the coordinator")
        only = self._stop(name)
        self.say(f"kill -9 {name}{only} ({what}) for {lasts:.1f} s")
        time.sleep(lasts)
        self._revive(name)

    def _stop(self, name: str) -> str:
        """Says what is left of the board."""
        board, alone = self.lab.boards[name], self.draw.random() < 1 / 3
        if alone and board.agent is not None:
            board.agent.kill()
            return ", its agent only"
        board.kill()
        return ""

    def _revive(self, name: str) -> None:
        board, began = self.lab.boards[name], time.monotonic()
        board.start_programs()  # the agents, not the laboratory, tell the gateways where the others listen
        board.wait_ready()
        wait_until(lambda: self._agent_answers(name), f"the agent of {name}", 180.0, poll_s=0.1)
        self._over = time.monotonic()
        self.outcome.starts_s.append(self._over - began)

    def _agent_answers(self, name: str) -> bool:
        with contextlib.suppress(ControlError):
            return bool(self.lab.boards[name].ask_agent("fleet.status"))
        return False

    def until_done(self, verb: str, args: Mapping[str, Any]) -> None:
        """Asks until it is done, as a user would."""
        deadline = time.monotonic() + 90
        while True:
            try:
                self._ask(verb, args)
                return
            except ControlError as error:
                self.say(f"{verb}: {error}")
                assert time.monotonic() < deadline, f"{verb} was refused for 90 s"
                time.sleep(1.0)

    def _settle(self) -> None:
        """The flow has to run again. Counted from when ways were given back, gateways were connected to their brokers,
        and agents answered: how long a program takes to start on a busy machine is told apart."""
        wait_until(self.runs, "the flow to run by one plan", 90.0, poll_s=0.2)
        self.outcome.runs_again_s.append(time.monotonic() - self._over)


def watched(owners: Owners, lab: Lab) -> Witness:
    """Asks all boards what they run, while the context lasts."""

    def asking(board: Board) -> Ask:
        return lambda: board.ask("part.status")

    return Witness(owners, {name: asking(board) for name, board in lab.boards.items()})


def run(seed: int, folder: Path, faults: int = 4) -> Outcome:
    """One laboratory; that many faults, one after the other, while messages come in."""
    draw, outcome = random.Random(seed), Outcome(seed)
    packs = readings(draw, round(12.0 * RATE))
    owners = Owners(FLOW)
    try:
        with Lab(with_agents(seed), folder).running() as lab, watched(owners, lab):
            made = FleetRun(lab, draw, outcome)
            wait_until(made.members_known, "all boards to know each other", poll_s=0.2)
            made.deploy()
            with lab.boards["g1"].namespace.inside():
                publishing = lab.boards["g1"].rig.publishing(truth.as_messages(packs), SLOWLY)
            for _ in range(faults):
                time.sleep(draw.uniform(0.0, 2.0))
                made.fault()
            publishing.join()
            g1 = lab.boards["g1"].gateway
            g1.wait(lambda s: not s["ingest"]["unacknowledged"], "the acknowledgements")
            wait_until(made.members_known, "all boards to know each other", poll_s=0.2)
            made.until_done("fleet.remove", {"flow": FLOW})
            for board in lab.boards.values():
                lab.central.rig.drained(board.gateway)
            expected = truth.expected(packs, 10.0)
            counts, sums = landed(lab, sum(row["n"] for row in expected.values()))
    except AssertionError as error:  # waited in vain
        raise AssertionError("\n  ".join([str(error), *outcome.steps])) from error
    outcome.lost, outcome.doubled = differences({key: row["n"] for key, row in expected.items()}, counts)
    outcome.two_owners, outcome.looks = owners.violations, owners.looks
    outcome.sums_right = sums == {key: row["total"] for key, row in expected.items()}
    return outcome
