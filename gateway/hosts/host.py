"""What a host of flows can do. Flows run in this process (`in_process`) or in slots (`slots`); to the rest of the
gateway both look the same."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import Any, Protocol

from edgert.core.batch import Batch, RawBatch, Row
from edgert.core.position import Position
from edgert.operators.logic import PlainMessage
from edgert.runtime.drain import Said
from edgert.runtime.flow_run import FlowRun
from edgert.runtime.instance.figures import Figures
from edgert.runtime.instance.instance import Instance
from edgert.runtime.instance.queue import Entry
from edgert.runtime.instance.report import Report
from edgert.scheduling.consumption import Consumption
from gateway.hosts.weights import Weights

Send = Callable[[Instance, Sequence[PlainMessage]], None]
Feeding = AbstractContextManager[Any]
"""The lock under which flows are fed: what is read with it held belongs together."""
Entries = Iterable[tuple[Instance, int, Batch | RawBatch]]
"""(instance, number of its input, batch)."""
Arrival = tuple[Instance, int, int, Batch]
"""(instance, number of its input, which of the copies that feed that gave it, batch of another gateway)."""
Waiting = Mapping[str, Sequence[Entry]]
"""What waits in queues, by place."""


class Recovery(Protocol):
    """What a host asks of the registry of flows (see there), to bring one back to its last checkpoint."""

    feeding: threading.Lock
    """Held while anything is fed to a flow."""

    def store(self, call: Callable[[], Any], /) -> Awaitable[Any]:
        """Runs a call on the store thread."""
        ...

    def read_checkpoint(self, flow: str) -> tuple[list[bytes], bytes]:
        """State and queues of a flow's last checkpoint. On the store thread."""
        ...

    def last_checkpoint(self, flow: str) -> AbstractAsyncContextManager[tuple[list[bytes], bytes]]:
        """The same, while no checkpoint is made."""
        ...

    def fail(self, run: FlowRun, why: str) -> None:
        """The flow cannot go on."""
        ...


class Checkpoints(Protocol):
    """How flows of a host come to stand still, and what is taken from them. See `Host` for who may call."""

    def is_up(self, run: FlowRun) -> bool:
        """Whether it can come to a batch boundary at all: not while a slot of it is started again, or is silent."""
        ...

    def hangs(self, run: FlowRun) -> bool:
        """Whether it is in vain to wait for a batch boundary: a turn is longer under way than anybody would wait. Costs
        next to nothing; false where that is not known."""
        ...

    def capture(self, run: FlowRun, feeding: Feeding) -> bool:
        """Takes what a checkpoint needs into `run.pending`; false when the flow came to no batch boundary in time. On
        the store thread. Raises what an operator's `delta` raises."""
        ...

    def committed(self, run: FlowRun) -> None:
        """What was pending is in the database. On the store thread."""
        ...

    def spill(self, run: FlowRun, feeding: Feeding) -> tuple[Position, Waiting]:
        """What was fed to a flow that comes to no batch boundary, and is owed an acknowledgement, since its last
        checkpoint or spill, by place; and what is covered with it. On the store thread."""
        ...

    def spilled(self, run: FlowRun) -> None:
        """That is in the database. On the store thread."""
        ...

    def take_results(self, run: FlowRun) -> list[Row]:
        """What a flow has made since the last call or capture, to leave ahead of the next one: of an at-least-once flow
        only. On the store thread."""
        ...

    def give_back(self, run: FlowRun, rows: Sequence[Row]) -> None:
        """What was taken could not be written: the next capture has it. On the store thread, before that."""
        ...

    def halt(self, run: FlowRun, feeding: Feeding, timeout_s: float) -> bool:
        """Stops a flow for good at a batch boundary; false (and it goes on) when it comes to none in time. Waits, so on
        a thread of its own."""
        ...

    def stop_for_plan(self, run: FlowRun, feeding: Feeding, timeout_s: float) -> bool:
        """As `capture`, and the flow stands still then, until `go_on` or `succeed`. On a thread of its own."""
        ...

    def drain(self, run: FlowRun) -> Iterator[Said]:
        """On the store thread. What it returns runs a halted flow, to which nothing is fed any more, to its end, a turn
        at a time, on a thread of its own."""
        ...

    def rest(self, runs: Sequence[FlowRun], feeding: Feeding, timeout_s: float) -> list[FlowRun]:
        """For the end of the process: works off what is queued, as far as that is possible in the time, and computes
        nothing from then on. Returns the flows that stand still: all that they gave out has come then, and they may
        have a last checkpoint, by `capture`, or where it was taken here by what is pending. There is none of the others
        from then on, and `capture` is false at once. On a thread of its own."""
        ...

    def recount(self, run: FlowRun) -> None:
        """Of a flow that rests: what it has dropped may have become more, which its last checkpoint is to say."""
        ...


class HostFigures(Protocol):
    """What flows of a host have done."""

    def report(self, run: FlowRun, name: str) -> Report:
        """What the place `name` of a flow has done."""
        ...

    def slots(self) -> list[dict[str, Any]]:
        """What is to be said of each slot, for the status; none where all runs in this process."""
        ...

    async def ask(self) -> None:
        """Raw figures are wanted: to be called before `of`. They cost nothing while nobody asks."""
        ...

    def of(self, run: FlowRun) -> Sequence[Figures]:
        """Raw figures of each instance of a flow, in the plan's order."""
        ...

    def where(self, run: FlowRun) -> Sequence[int | None]:
        """The slot of each instance of a flow, in the plan's order; `DAEMON`: this process; None: another gateway."""
        ...

    def processes(self) -> Mapping[int, tuple[int, Mapping[int, str]]]:
        """Of each slot that runs: the process id, and what its threads are for."""
        ...


class Host(Protocol):
    """Runs flows. Calls come from the daemon's loop unless it says otherwise."""

    weights: Weights
    """Of operators of its flows."""

    @property
    def checkpoints(self) -> Checkpoints:
        """How its flows come to stand still, and what is taken from them."""
        ...

    @property
    def figures(self) -> HostFigures:
        """What its flows have done."""
        ...

    async def start(self) -> None:
        """Rows may be worked on from now on."""
        ...

    async def leave(self) -> None:
        """The process ends: no flow is brought back to its checkpoint any more."""
        ...

    async def stop(self) -> None:
        """Ends all work, after `rest`; rows in queues stay where they are."""
        ...

    def begin(self, run: FlowRun, blobs: Sequence[bytes] = (), queue: bytes = b"", *, stands: bool = False) -> None:
        """Runs a flow from a checkpoint; with `stands` not before `go_on` (or a run that succeeds it). Raises
        `StoreError` where that does not fit it."""
        ...

    def remove(self, run: FlowRun) -> None:
        """Forgets a flow that was halted and drained."""
        ...

    def put(self, entries: Entries) -> None:
        """Feeds batches, under the lock `Feeding`."""
        ...

    def deliver(self, run: FlowRun, arrivals: Sequence[Arrival]) -> None:
        """Feeds batches of other gateways, under the lock `Feeding`."""
        ...

    def has_room(self, run: FlowRun) -> bool:
        """Whether the flow keeps up: none of its queues is over its budget, as far as is known here."""
        ...

    def lend(self) -> None:
        """To be called after `put` or `deliver`, without the lock."""
        ...

    def go_on(self, run: FlowRun) -> None:
        """The flow works on."""
        ...

    def succeed(self, old: FlowRun, new: FlowRun, blobs: Sequence[bytes], queue: bytes) -> Callable[[], None]:
        """Prepares `new`, another plan of the same flow, from the checkpoint with which `old` was stopped. What it
        returns lets `new` go on in the place of `old`, with what was fed since; to be called while nothing can be fed.
        Raises `StoreError` where the checkpoint does not fit."""
        ...

    def tick(self, runs: Iterable[FlowRun]) -> None:
        """To be called four times a second."""
        ...

    def consume(self, consumption: Consumption, rows: int) -> None:
        """How much an instance takes at a time from now on: the policy, and its most rows."""
        ...

    def log_level(self, level: str) -> None:
        """How much other processes are to say from now on."""
        ...

    def offer_model(self, run: FlowRun, operator: str, document: Mapping[str, Any]) -> None:
        """A model that the operator of the running flow has no objection to, and has taken where it runs here."""
        ...

    def weigh(self, flow: str, weights: Mapping[str, object]) -> None:
        """From now on operators of a running flow have these weights, in all its runs: see `Candidates.weigh`. Raises
        `EdgertError` where one is none, or cannot be given here; then none is."""
        ...
