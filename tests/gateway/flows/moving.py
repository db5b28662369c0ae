"""`python -m tests.gateway.flows.moving --moves 200`: databases, links, parts and coordinator of the product in one
process, with kills of boards, of the coordinator, and of links amid most moves.

A board is all of a gateway but its MQTT connections; a kill throws away all but its database. So a move takes
milliseconds instead of the seconds that programs need to start (`python -m tests.lab moves` has these)."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import math
import random
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

import uvloop

from agent.migration.plan_change import (
    Change,
    Made,
    PlanChangeError,
    UnfinishedError,
    abort,
    change_plan,
    commit,
    decision,
    participants,
    staying,
)
from benchmarks.ports import free_port
from edgert.core.errors import EdgertError
from edgert.core.packing import pack, unpack
from edgert.core.results.results import RowsBatch, unpack_result_untrusted
from tests.gateway.flows.moving_board import HOST, Board, Broker
from tests.integration import truth
from tests.lab.faults import APART, BOARDS, FLOW, KEYED, differences, document, reading, tracked
from tests.waiting import until

SOURCE: Final = "g1"
FAULTS: Final = ("none", "kill", "kill", "coordinator", "coordinator", "cut", "kill and coordinator", "merge")
"""`merge`: all boards merge what they have stored of the flow, so that what was sent ahead of the stop is of no use."""
IN_FLIGHT: Final = 4_000
"""Messages that the broker of the source's board has open at most."""
AT_A_TIME: Final = 25


@dataclass(slots=True)
class Outcome:
    """Of one seed."""

    seed: int
    keys: int
    moves: int = 0
    made: int = 0
    faults: dict[str, int] = field(default_factory=dict)
    messages: int = 0
    lost: int = 0
    doubled: int = 0
    sums_right: bool = False
    out_of_order: int = 0
    """Windows of a key whose estimates are not those of its readings in order."""
    dropped: list[str] = field(default_factory=list)
    two_owners: list[str] = field(default_factory=list)
    looks: int = 0
    pauses_s: list[float] = field(default_factory=list)
    """Of moves without a fault."""

    @property
    def good(self) -> bool:
        whole = not self.lost and not self.doubled and self.sums_right and not self.out_of_order
        return whole and not self.two_owners and not self.dropped

    def plain(self) -> dict[str, Any]:
        return {"good": self.good, **asdict(self)}

    def __str__(self) -> str:
        pauses = sorted(self.pauses_s)
        pause = f"pause {1e3 * statistics.median(pauses):.0f} ms, at most {1e3 * pauses[-1]:.0f} ms" if pauses else ""
        return (
            f"seed {self.seed}: {'good' if self.good else 'BAD'}; {self.moves} moves, {self.made} made, amid "
            f"{self.faults}; {self.messages} messages of {self.keys} keys: lost {self.lost}, doubled "
            f"{self.doubled}, out of order {self.out_of_order}, sums {'right' if self.sums_right else 'WRONG'}; two "
            f"owners: {'; '.join(self.two_owners) or 'never'}, in {self.looks} looks; {pause}; {self.dropped or ''}"
        )


class World:
    """Boards on loopback, the broker of one, a flow over all of them."""

    def __init__(self, seed: int, folder: Path, outcome: Outcome) -> None:
        self.draw, self._folder, self.outcome = random.Random(seed), folder, outcome
        self._readings = random.Random(f"readings of {seed}")
        self.broker = Broker()
        self._ports = {name: free_port() for name in BOARDS}
        self.boards = {name: self._board(name) for name in BOARDS}
        self.packs: list[dict[str, Any]] = []
        self.document, self.on = document(), dict(APART)
        self.plan, self.fence = 1, 1
        self._cut: set[frozenset[str]] = set()
        self._tasks: list[asyncio.Task[None]] = []
        self.feeding, self.giving = asyncio.Event(), asyncio.Lock()
        self.last: Made | None = None
        """The last change of plan that its own coordinator made."""
        self._usual_s = 0.3
        """How long a move without a fault takes; a fault comes within a little more."""

    def _board(self, name: str) -> Board:
        return Board(self._folder / f"{name}.db", name, self._ports[name], self.broker)

    async def start(self) -> None:
        for board in self.boards.values():
            await board.start()
        self.link()
        assignment = {operator: [name, -1] for operator, name in self.on.items()}
        for name in BOARDS:
            part = {"document": self.document, "assignment": assignment, "plan": 1, "fence": 1}
            await self.ask(name, "part.deploy", part)
        self.connect()
        self._tasks = [asyncio.ensure_future(task) for task in (self._commit(), self._look(), self._feed())]

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for board in self.boards.values():
            await board.kill()

    def connect(self) -> None:
        """Connects the source's board to its broker, which delivers what is open."""
        source = self.boards[SOURCE]
        if not source.connected:
            source.ingest.feed(self.broker.again())
            source.connected = True

    def link(self) -> None:
        for name, board in self.boards.items():
            others = [other for other in BOARDS if other != name and frozenset((name, other)) not in self._cut]
            if board.alive:
                board.links.peers.set_peers({other: (HOST, self._ports[other]) for other in others})

    # -- what runs beside

    async def _commit(self) -> None:
        while True:
            for board in list(self.boards.values()):
                if board.alive:
                    with contextlib.suppress(EdgertError, RuntimeError):  # it was killed meanwhile
                        await board.checkpoint()
                        board.links.tick()
            await asyncio.sleep(0.02)

    async def _look(self) -> None:
        """All boards at one moment: an operator runs on one of them at most."""
        while True:
            owners: dict[str, list[str]] = {}
            for name, board in self.boards.items():
                part = board.parts.status().get(FLOW, {}) if board.alive else {}
                for operator, at in part.get("assignment", {}).items():
                    if part["state"] == "running" and at[0] == name:
                        owners.setdefault(operator, []).append(f"{name} by plan {part['plan']}")
            self.outcome.looks += 1
            self.outcome.two_owners += [f"{o}: {who}" for o, who in owners.items() if len(who) > 1][:3]
            await asyncio.sleep(0.002)

    async def _feed(self) -> None:
        """Keys by chance while `feeding` is set."""
        while True:
            await self.feeding.wait()
            async with self.giving:
                if self.feeding.is_set():
                    await self.give(self._readings.randrange(self.outcome.keys) for _ in range(AT_A_TIME))
            await asyncio.sleep(0.02)

    async def give(self, keys: Any) -> None:
        """One reading of each."""
        for key in keys:
            await until(lambda: len(self.broker.open) < IN_FLIGHT, "acknowledgements", 120.0)
            pack_ = reading(self._readings, len(self.packs), key)
            self.packs.append(pack_)
            ((topic, payload),) = truth.as_messages([pack_])
            message = self.broker.publish(topic, payload)
            source = self.boards[SOURCE]
            if source.alive and source.connected:
                source.ingest.feed([message])

    # -- the coordinator

    async def ask(self, name: str, verb: str, args: Mapping[str, Any]) -> Any:
        """As over the sockets: arguments and answers are packed, a board that dies gives none, one whose coordinator
        dies does what it was asked for."""
        await asyncio.sleep(self.draw.uniform(0.0, 0.003))
        board = self.boards[name]
        try:
            if not board.alive:
                raise EdgertError(f"{name} is down")
            work = asyncio.ensure_future(board.verbs[verb](unpack(pack(args))))
            work.add_done_callback(lambda done: done.cancelled() or done.exception())  # it may not be waited for
            answer = await asyncio.shield(work)
        except EdgertError:
            raise
        except Exception as error:
            if board.alive:
                raise
            raise EdgertError(f"{name} died") from error
        if not board.alive:
            raise EdgertError(f"{name} died")
        return unpack(pack(answer))

    async def move(self, on: Mapping[str, str], fault: str) -> None:
        self.fence += 1
        change = Change(self.document, dict(self.on), dict(on), self.fence)
        began, task = time.monotonic(), asyncio.ensure_future(change_plan(change, self.ask))
        faults = [self._inject(kind, task) for kind in fault.split(" and ") if kind != "none"]
        injecting = asyncio.gather(*faults)
        try:
            made = self.last = await task
            if fault == "none":
                self.outcome.pauses_s.append(made.pause.pause_s)
                self._usual_s = time.monotonic() - began
        except (PlanChangeError, UnfinishedError, asyncio.CancelledError):
            pass
        await injecting
        await self._settle(everywhere=fault == "none" or self.draw.random() < 0.5)
        self.outcome.moves += 1
        self.outcome.made += self.on == on
        self.outcome.faults[fault] = self.outcome.faults.get(fault, 0) + 1

    async def _inject(self, kind: str, coordinator: asyncio.Task[Made]) -> None:
        await asyncio.sleep(self.draw.uniform(0.0, 1.2 * self._usual_s))
        if kind == "coordinator":
            coordinator.cancel()
        elif kind == "kill":
            name = self.draw.choice(BOARDS)
            await self.boards[name].kill()
            await asyncio.sleep(self.draw.uniform(0.0, 0.2))
            self.boards[name] = self._board(name)
            await self.boards[name].start()
            self.link()
            self.connect()
        elif kind == "merge":
            for board in self.boards.values():
                if board.alive:
                    await board.merge(FLOW)
        else:
            pair = frozenset(self.draw.sample(BOARDS, 2))
            self._cut.add(pair)
            self.link()
            await asyncio.sleep(self.draw.uniform(0.0, 0.5))
            self._cut.discard(pair)
            self.link()

    async def _settle(self, everywhere: bool) -> None:
        """As the next coordinator, until the flow runs by one plan. `everywhere`: and no board without a part of it has
        anything prepared; else the next move begins as soon as coordinators let one begin."""
        deadline = time.monotonic() + 120
        while True:
            assert time.monotonic() < deadline, f"the flow does not come to one plan: {self._parts()}"
            parts = self._parts()
            if not everywhere:
                parts = {name: part for name, part in parts.items() if "plan" in part}
            newest = max(parts.values(), key=lambda part: part.get("plan", 0))
            wanted = {at[0] for at in newest["assignment"].values()}
            if all(part["state"] == "running" for part in parts.values()) and wanted == set(parts):
                assert len({part["plan"] for part in parts.values()}) == 1, parts
                self.on = {operator: at[0] for operator, at in newest["assignment"].items()}
                self.plan = newest["plan"]
                return
            await self._finish(set().union(*map(participants, self._parts().values())))
            await asyncio.sleep(0.01)

    def _parts(self) -> dict[str, dict[str, Any]]:
        found = {name: board.parts.status().get(FLOW, {}) for name, board in self.boards.items()}
        return {name: part for name, part in found.items() if part}

    async def _finish(self, boards: set[str]) -> None:
        self.fence += 1
        with contextlib.suppress(EdgertError):
            for name in boards:
                await self.ask(name, "part.rules", {"flow": FLOW, "fence": self.fence})
            parts = {name: (await self.ask(name, "part.status", {})).get(FLOW, {}) for name in boards}
            verdict, plan = decision(parts)
            if verdict == "commit":
                await commit(FLOW, boards, staying(parts, plan), plan, self.fence, self.ask)
            elif verdict == "abort":
                await abort(FLOW, boards, plan, self.fence, self.ask)

    # -- the end

    async def end(self) -> None:
        """All operators come to the source's board; there the flow ends."""
        await until_empty(lambda: self.broker.open, "messages without an acknowledgement")
        await self.move(dict.fromkeys(self.on, SOURCE), "none")
        self.outcome.moves -= 1
        self.outcome.made -= 1
        self.fence += 1
        await self.ask(SOURCE, "part.remove", {"flow": FLOW, "fence": self.fence})

    def compare(self) -> None:
        counts, sums, paths = Counter[Any](), Counter[Any](), Counter[Any]()
        for board in self.boards.values():
            self.outcome.dropped += [f"{key}: {n}" for key, n in board.links.dropped().items()]
            self.outcome.dropped += [f"gaps of {flow}: {n}" for flow, n in board.links.gaps.items()]
            for stream, _ in board.database.outbox_streams():
                for entry in board.database.outbox(*stream, 0, 1_000_000):
                    batch = unpack_result_untrusted(entry.payload)
                    if isinstance(batch, RowsBatch):
                        for values in batch.rows:
                            row = dict(zip(batch.columns, values, strict=True))
                            key = row["window_start"], row["source"]
                            counts[key] += row["n"]
                            sums[key] += row["total"]
                            paths[key] += row["path"]
        expected = truth.expected(self.packs, 10.0)
        made = self.outcome
        made.messages = len(self.packs)
        made.lost, made.doubled = differences({key: row["n"] for key, row in expected.items()}, counts)
        made.sums_right = dict(sums) == {key: row["total"] for key, row in expected.items()}
        made.out_of_order = sum(
            not math.isclose(paths.get(key, math.nan), path, rel_tol=1e-9) for key, path in tracked(self.packs).items()
        )


async def until_empty(waiting: Callable[[], Any], what: str, deadline_s: float = 120.0) -> None:
    ends = time.monotonic() + deadline_s
    while found := waiting():
        assert time.monotonic() < ends, f"waited {deadline_s:g} s for no {what}, there are {len(found)}"
        await asyncio.sleep(0.02)


async def run(seed: int, moves: int, keys: int, folder: Path, say: Callable[[str], None] = lambda _: None) -> Outcome:
    """So many moves that are made, under load, and those that are undone meanwhile; most of them with a fault."""
    outcome = Outcome(seed, keys)
    world = World(seed, folder, outcome)
    await world.start()
    try:
        await world.give(world.draw.sample(range(keys), keys))
        world.feeding.set()
        while outcome.made < moves:
            on = {**APART, **dict.fromkeys(KEYED, world.draw.choice(BOARDS)), "central": world.draw.choice(BOARDS)}
            if on != world.on:
                await world.move(on, world.draw.choice(FAULTS))
                say(f"{outcome.moves} moves, {outcome.made} made, plan {world.plan}")
        world.feeding.clear()
        async with world.giving:  # the last of the others has been given
            await world.give(world.draw.sample(range(keys), keys))
        await world.end()
        world.compare()
    finally:
        await world.stop()
    return outcome


def main() -> int:
    parser = argparse.ArgumentParser("tests.gateway.flows.moving", description=__doc__)
    parser.add_argument(
        "--moves", type=int, default=200, metavar="N", help="that are made, of each seed (default: %(default)s)"
    )
    parser.add_argument("--keys", type=int, default=10_000, metavar="N", help="(default: %(default)s)")
    parser.add_argument("--seeds", type=int, default=1, metavar="N", help="how many (default: %(default)s)")
    parser.add_argument("--first", type=int, default=0, metavar="N", help="the first of them (default: %(default)s)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write what came of each seed there, as it ends")
    args = parser.parse_args()
    outcomes: list[Outcome] = []
    for seed in range(args.first, args.first + args.seeds):
        with tempfile.TemporaryDirectory() as folder, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            say = lambda text, seed=seed: print(f"  seed {seed}: {text}", flush=True)  # noqa: E731
            outcomes.append(runner.run(run(seed, args.moves, args.keys, Path(folder), say)))
        print(outcomes[-1], flush=True)
        if args.json:
            args.json.write_text(json.dumps([outcome.plain() for outcome in outcomes], indent=1) + "\n")
    return 0 if all(outcome.good for outcome in outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
