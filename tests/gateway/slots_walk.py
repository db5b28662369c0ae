"""A random walk of a daemon and its slots, with the truth.

Real links and slots, in this process and stepped by hand on a virtual clock. A slot dies by losing its memory and its
links."""

from __future__ import annotations

import asyncio
import random
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, get_args

from edgert.core.batch import RawBatch
from edgert.core.checkpoint.checkpoint import Checkpoint
from edgert.core.checkpoint.position import Position
from edgert.core.settings.gateway import Pool as PoolSettings
from edgert.flow.document import from_plain
from edgert.flow.physical import Fusion
from edgert.flow.plan import Location
from edgert.operators.registry import REGISTRY
from edgert.runtime.checkpoint.packing import join_queues, pack_queues
from edgert.runtime.checkpoint.progress import Progress
from edgert.runtime.flow_run import FlowRun
from gateway.hosts.slots import Slots
from tests.runtime.worlds import CHAINED
from tests.slots_here import InThisProcess

MESSAGES = 120
WINDOW_S = 10
JOINED: dict[str, Any] = {
    "name": "f",
    "operators": CHAINED["operators"]
    | {
        "again": {"type": "map", "input": "in", "set": {"v": "v * 2"}},
        "kept": {"type": "filter", "input": "again", "where": "v > 0"},
        "both": {"type": "publish", "input": "kept", "topic": "out/{source}"},
    },
}
"""Also a branch that publishes, which may repeat."""
SPLIT: dict[str, Any] = {
    "name": "f",
    "operators": {
        name: {**operator, "instances": {"in": 2, "minute": 3}.get(name, 2)} if name not in ("by", "out") else operator
        for name, operator in CHAINED["operators"].items()
    },
}
"""Copies: rows and watermarks go from each of two to each of three."""


class Walk:
    """A daemon with slots, a database of one flow, and the truth."""

    def __init__(
        self, draw: random.Random, document: dict[str, Any], placement: str, slots: int, fusion: Fusion | None = None
    ) -> None:
        self.draw = draw
        self.document = document
        self.forms: list[Checkpoint] = []
        self.spilled: list[bytes] = []
        self.shipped: list[dict[str, Any]] = []
        self.busy = asyncio.Lock()
        """As a checkpointer's."""
        self.published = self.rewritten = self.placed = 0
        self.feeding = threading.Lock()
        """As the one that keeps anything from being fed."""
        pool = PoolSettings(workers=draw.choice([0, 0, 1]), slots=slots, placement=placement)
        fused: Fusion = draw.choice(get_args(Fusion)) if fusion is None else fusion
        self.slots = Slots(
            pool, REGISTRY, InThisProcess.clock, level="warning",
            send=self._sent, recovery=self, make_process=InThisProcess,
        )  # fmt: skip
        self.slots.checkpoints.hold_s = 30.0  # a busy machine makes no flow stuck
        self.run = FlowRun(from_plain(document, REGISTRY), REGISTRY, 1, 1, Progress(Position()), fused)
        self.fed = 0
        self.stopped: list[str] | None = None
        """Why its flow was, where that is allowed."""

    @property
    def processes(self) -> list[InThisProcess]:
        return self.slots.processes  # type: ignore[return-value]

    def _sent(self, instance: Any, messages: Any) -> None:
        self.published += len(messages)

    def read_checkpoint(self, name: str) -> tuple[list[bytes], bytes]:
        queue = self.forms[-1].queue if self.forms else b""
        return [d for form in self.forms for d in form.deltas], join_queues([queue, *self.spilled])

    async def store(self, call: Callable[[], Any], /) -> Any:
        return call()

    @asynccontextmanager
    async def last_checkpoint(self, flow: str) -> AsyncIterator[tuple[list[bytes], bytes]]:
        async with self.busy:
            yield self.read_checkpoint(flow)

    def fail(self, run: FlowRun, why: str) -> None:
        assert self.stopped is not None, why
        self.stopped.append(why)

    # -- steps

    def feed(self, owed: bool = True, *, bad: bool = False) -> None:
        """One message, whose window is its number divided by ten; or one that cannot be decoded."""
        self.fed += 1
        payload = b"{" if bad else b'{"time": %d, "v": %d}' % (self.fed, self.fed % 3 - 1)
        ((_, copies),) = self.run.sources()
        batch = RawBatch([f"x/{'ab'[self.fed % 2]}"], [payload], 0.0, 1_000.0, 50, owed)
        with self.feeding:
            self.run.progress.fed = self.fed
            self.slots.put([(copies[self.fed % 2 % len(copies)], 0, batch)])

    def work(self) -> None:
        process = self.draw.choice(self.processes)
        if not process.running:
            process.start()
        process.step()
        if self.draw.random() < 0.5:
            process.listen()

    async def while_it_waits(self, call: Callable[[], bool]) -> bool:
        """Runs what waits for the slots' answers in a thread, the slots in this one."""
        answer: list[bool] = []
        thread = threading.Thread(target=lambda: answer.append(call()))
        thread.start()
        deadly = self.draw.random() < 0.2
        while thread.is_alive():
            self.work()
            if self.draw.random() < 0.3:
                self.feed()
            for process in self.processes:
                process.listen()
            if deadly and self.draw.random() < 0.1:
                self.die()
                deadly = False
            thread.join(0.0002)
            await asyncio.sleep(0)  # what was lost is brought back
        return answer[0]

    async def checkpoint(self) -> None:
        async with self.busy:
            self.run.rewrite |= self.draw.random() < 0.2
            if not self.run.pending:
                await self.while_it_waits(lambda: self.slots.checkpoints.capture(self.run, self.feeding))
            if self.draw.random() < 0.2:
                return  # the commit failed
            if (form := self.run.form()) is not None:
                self.commit(form)
                self.run.committed(form)
                self.slots.checkpoints.committed(self.run)

    async def spill(self) -> None:
        """It is taken to be stuck: what it was fed goes to the database."""
        async with self.busy:
            if not self.run.pending:
                _, queues = self.slots.checkpoints.spill(self.run, self.feeding)
                if queues and self.draw.random() < 0.8:  # or it could not be written
                    self.spilled.append(pack_queues(queues))
                    self.slots.checkpoints.spilled(self.run)

    async def place(self) -> None:
        """By hand, to slots that are drawn: stopped at a checkpoint, and from there by another plan."""
        async with self.busy:
            if self.run.pending or not await self.while_it_waits(
                lambda: self.slots.checkpoints.stop_for_plan(self.run, self.feeding, 1.0)
            ):
                return
            form = self.run.form()
            if form is not None and self.draw.random() < 0.2:
                self.slots.go_on(self.run)  # the commit failed
                return
            if form is not None:
                self.commit(form)
                self.run.committed(form)
            self.slots.checkpoints.committed(self.run)
            old = self.run
            assignment = {
                operator: Location("", self.draw.randrange(len(self.processes))) for operator in old.plan.assignment()
            }
            new = FlowRun(
                old.flow, REGISTRY, 1, 1, old.progress, old.fusion, True, "", assignment, old.plan.number + 1
            )  # fmt: skip
            for _ in range(self.draw.randrange(3)):
                self.feed()  # what comes while it stands still
            successor = self.slots.successor(old, new, *self.read_checkpoint("f"))
            with self.feeding:
                successor()
            self.run = new
            self.placed += 1

    def commit(self, form: Checkpoint) -> None:
        if form.whole:
            self.rewritten += 1
            self.forms.clear()
        self.forms.append(form)
        self.spilled.clear()
        self.shipped += [dict(zip(form.columns, row, strict=True)) for row in form.rows]

    def die(self) -> None:
        process = self.draw.choice(self.processes)
        if process.running:
            process.die()

    async def finish(self) -> Counter[tuple[float, str]]:
        """To the end of the flow; what was shipped, by window and source."""
        while not self.run.ended:
            async with self.busy:
                if await self.while_it_waits(lambda: self.slots.checkpoints.halt(self.run, self.feeding, 5.0)):
                    for instance, messages in self.slots.checkpoints.run_out(self.run):
                        self._sent(instance, messages)
                    form = self.run.form()
                    assert form is not None
                    self.commit(form)
                    self.slots.remove(self.run)
            for process in self.processes:
                if not process.running:
                    process.start()
            await asyncio.sleep(0)
        got: Counter[tuple[float, str]] = Counter()
        for row in self.shipped:
            got[row["window_start"], row["source"]] += row["n"]
        return got


def truth(fed: int) -> Counter[tuple[float, str]]:
    wanted: Counter[tuple[float, str]] = Counter()
    for number in range(1, fed + 1):
        if number % 3 - 1 >= 0:
            wanted[number // WINDOW_S * WINDOW_S, "ab"[number % 2]] += 1
    return wanted
