"""The interface of a host of flows. Flows run in this process (`in_process`) or in slots (`slots`); both look the same
to the rest of the gateway."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import Any, Protocol

from edgert.core.batch import Batch, RawBatch, Row
from edgert.core.checkpoint.position import Position
from edgert.operators.base.memory import MemoryBudget
from edgert.runtime.flow_run import FlowRun
from edgert.runtime.instance.figures import RawFigures
from edgert.runtime.instance.instance import Instance
from edgert.runtime.instance.queue import Entry
from edgert.runtime.instance.report import Report
from edgert.runtime.run_out import NO_HEIRS, Heirs, Said
from edgert.scheduling.consumption import Consumption
from gateway.hosts.weights import Weights

Feeding = AbstractContextManager[Any]
"""The lock under which flows are fed: what is read with it held belongs together."""
Entries = Iterable[tuple[Instance, int, Batch | RawBatch]]
"""(instance, number of its input, batch)."""
Arrival = tuple[Instance, int, int, Batch]
"""(instance, number of its input, which of the copies that feed that gave it, batch of another gateway)."""
QueueContents = Mapping[str, Sequence[Entry]]
"""Queue entries, by stage."""


class Recovery(Protocol):
    """The part of the registry of flows that a host needs to bring a flow back to its last checkpoint."""

    feeding: threading.Lock
    """The lock held while a batch is fed to a flow."""

    def store(self, call: Callable[[], Any], /) -> Awaitable[Any]:
        """Runs a call on the store thread."""
        ...

    def read_checkpoint(self, flow: str) -> tuple[list[bytes], bytes]:
        """State and queues of a flow's last checkpoint. On the store thread."""
        ...

    def last_checkpoint(self, flow: str) -> AbstractAsyncContextManager[tuple[list[bytes], bytes]]:
        """Gives what `read_checkpoint` does; no checkpoint is made within the context."""
        ...

    def fail(self, run: FlowRun, why: str) -> None:
        """Stops a flow that cannot go on."""
        ...


class Checkpoints(Protocol):
    """How flows of a host come to stand still, and what is taken from them. See `Host` for who may call."""

    def is_up(self, run: FlowRun) -> bool:
        """True if the flow can reach a batch boundary: no slot of it is being started again, and none is silent."""
        ...

    def hangs(self, run: FlowRun) -> bool:
        """True if a turn of the flow is under way for so long that waiting for a batch boundary is in vain. Cheap;
        False if unknown."""
        ...

    def capture(self, run: FlowRun, feeding: Feeding) -> bool:
        """Takes what a checkpoint needs into `run.pending`; false when the flow came to no batch boundary in time. On
        the store thread. Raises what an operator's `delta` raises."""
        ...

    def committed(self, run: FlowRun) -> None:
        """Notes that the pending capture is in the database. On the store thread."""
        ...

    def spill(self, run: FlowRun, feeding: Feeding) -> tuple[Position, QueueContents]:
        """Returns (position, entries by stage) of the input fed since the last checkpoint or spill that is owed an
        acknowledgement, of a flow that reaches no batch boundary. On the store thread."""
        ...

    def spilled(self, run: FlowRun) -> None:
        """Notes that the spilled input is in the database. On the store thread."""
        ...

    def take_results(self, run: FlowRun) -> list[Row]:
        """Returns the results since the last call or capture, which may leave before the next checkpoint; of
        at-least-once flows only. On the store thread."""
        ...

    def give_back(self, run: FlowRun, rows: Sequence[Row]) -> None:
        """Takes back results that could not be written: the next capture has them. On the store thread, before that
        capture."""
        ...

    def halt(self, run: FlowRun, feeding: Feeding, timeout_s: float) -> bool:
        """Stops a flow for good at a batch boundary; false (and it goes on) when it comes to none in time. Waits, so on
        a thread of its own."""
        ...

    def stop_for_plan(self, run: FlowRun, feeding: Feeding, timeout_s: float) -> bool:
        """Works as `capture`, and the flow stands still afterwards, until `go_on`, or until its `successor` takes over.
        On a thread of its own."""
        ...

    def run_out(self, run: FlowRun, heirs: Heirs = NO_HEIRS) -> Iterator[Said]:
        """Returns the turns that bring a halted flow, to which nothing is fed any more, to its end: to be run on a
        thread of its own. Itself called on the store thread. `heirs`: see `edgert.runtime.run_out`."""
        ...

    def quiesce(self, runs: Sequence[FlowRun], feeding: Feeding, timeout_s: float) -> list[FlowRun]:
        """Works off the queues at the end of the process, as far as the time allows, and computes nothing afterwards.
        Returns the flows that stand still. All output of these has been given out, and they may have a last checkpoint:
        by `capture`, or the pending one. For the other flows `capture` returns false. On a thread of its own."""
        ...

    def recount(self, run: FlowRun) -> None:
        """Takes the present drop counts of a resting flow into its last checkpoint."""
        ...


class HostFigures(Protocol):
    """Figures of a host's flows."""

    def report(self, run: FlowRun, name: str) -> Report:
        """The report of the stage `name` of a flow."""
        ...

    def changes(self, run: FlowRun) -> float:
        """A number that stays the same while the counts in the flow's reports do; NaN, which equals no number, where
        the host does not know."""
        ...

    def slots(self) -> list[dict[str, Any]]:
        """The figures of each slot, for the status; empty if all flows run in this process."""
        ...

    async def ask(self) -> None:
        """Requests raw figures; to be called before `of`. Figures that are not requested cost nothing."""
        ...

    def of(self, run: FlowRun) -> Sequence[RawFigures]:
        """Raw figures of each instance of a flow, in the plan's order."""
        ...

    def where(self, run: FlowRun) -> Sequence[int | None]:
        """The slot of each instance of a flow, in the plan's order; `DAEMON`: this process; None: another gateway."""
        ...

    def processes(self) -> Mapping[int, tuple[int, Mapping[int, str]]]:
        """Process id of each running slot, and the roles of its threads."""
        ...


class Host(Protocol):
    """Runs flows. Calls come from the daemon's loop unless it says otherwise."""

    weights: Weights
    """The weights of operators of the host's flows."""
    memory: MemoryBudget
    """The budget for what operators of all flows keep by key; what is held in slots is not in it."""

    @property
    def checkpoints(self) -> Checkpoints:
        """The part that stops its flows and takes their state."""
        ...

    @property
    def figures(self) -> HostFigures:
        """The figures of the host's flows."""
        ...

    async def start(self) -> None:
        """Lets workers begin."""
        ...

    async def leave(self) -> None:
        """The process ends: from now on no flow is brought back to its checkpoint."""
        ...

    async def stop(self) -> None:
        """Ends all work, after `quiesce`; rows in queues stay where they are."""
        ...

    def begin(self, run: FlowRun, blobs: Sequence[bytes] = (), queue: bytes = b"", *, stands: bool = False) -> None:
        """Runs a flow from a checkpoint; with `stands` not before `go_on` (or a run that succeeds it). Raises
        `StoreError` where that does not fit it."""
        ...

    def remove(self, run: FlowRun) -> None:
        """Forgets a flow that was halted and ran out."""
        ...

    def put(self, entries: Entries) -> None:
        """Feeds batches, under the lock `Feeding`."""
        ...

    def deliver(self, run: FlowRun, arrivals: Sequence[Arrival]) -> None:
        """Feeds batches of other gateways, under the lock `Feeding`."""
        ...

    def has_room(self, run: FlowRun) -> bool:
        """True if none of the flow's queues is over its budget, as far as this process knows."""
        ...

    def waiting(self, run: FlowRun) -> int:
        """Rows (messages of a source) that a flow was fed since it was stopped for another plan."""
        ...

    def lend(self) -> None:
        """Call this after `put` or `deliver`, without the lock."""
        ...

    def go_on(self, run: FlowRun, state: Sequence[bytes] = ()) -> None:
        """Lets a stopped flow go on; one that stands since `begin` from `state`, which the database has as its first
        checkpoint. Raises `StoreError` where that does not fit it."""
        ...

    def successor(self, old: FlowRun, new: FlowRun, blobs: Sequence[bytes], queue: bytes) -> Callable[[], None]:
        """Prepares `new`, another plan of the same flow, from the checkpoint with which `old` was stopped. Returns what
        puts it in the place of `old`, with the input since the stop: to be called once, while nothing can be fed.
        Raises `StoreError` where the checkpoint does not fit."""
        ...

    def tick(self, runs: Iterable[FlowRun]) -> bool:
        """Call this four times a second; once a second suffices after it was false."""
        ...

    def consume(self, consumption: Consumption, rows: int) -> None:
        """Sets how many rows an instance takes per turn: the rule, and its most rows."""
        ...

    def log_level(self, level: str) -> None:
        """Sets the log level of other processes."""
        ...

    def offer_model(self, run: FlowRun, operator: str, document: Mapping[str, Any]) -> None:
        """Hands a model to an operator of a running flow that has accepted it; operators in this process have taken it
        already."""
        ...

    def weigh(self, flow: str, weights: Mapping[str, object]) -> None:
        """Sets weights of operators of a running flow, in all its runs: see `Candidates.weigh`. Raises `EdgertError`
        where a weight is no weight, or the host has none; no weight is changed then."""
        ...
