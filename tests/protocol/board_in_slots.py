"""The same board with its flows in slots: the product's own daemon side and slots over real links, all in this process
and stepped by whoever drives it. A slot dies by losing its memory and its links."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar, Final
from unittest import mock

from edgert.core.settings.gateway import Pool as PoolSettings
from edgert.flow.physical import Fusion
from edgert.operators.registry import REGISTRY
from edgert.runtime.flow_run import FlowRun
from gateway.hosts.host import Host
from gateway.hosts.slots import Slots
from tests.protocol.board import Board, drive
from tests.slots_here import InThisProcess

ROUNDS: Final = 12
"""Steps of every slot until what was sent to them has come to its end: a link's frames take a step each way."""


class Stepper:
    """What goes on while the daemon waits for its slots."""

    step: Callable[[], None] = staticmethod(lambda: None)
    later: ClassVar[deque[Coroutine[Any, Any, None]]] = deque()
    """What the daemon's loop has to do then."""


class _Begun:
    """Stands for the task of a coroutine that is driven later."""

    def add_done_callback(self, _: object) -> None:
        """It is driven to its end."""


@contextmanager
def stepped() -> Iterator[None]:
    """Waiting for slots is stepping them, and what is to be done by the loop is done by `BoardInSlots.catch_up`."""

    def wait_for(self: threading.Condition, predicate: Callable[[], bool], timeout: float | None = None) -> bool:
        for _ in range(ROUNDS):
            if predicate():
                return True
            Stepper.step()
        return predicate()

    def ensure_future(work: Coroutine[Any, Any, None]) -> _Begun:
        Stepper.later.append(work)
        return _Begun()

    Stepper.step, Stepper.later = staticmethod(lambda: None), deque()
    with (
        mock.patch.object(threading.Condition, "wait_for", wait_for),
        mock.patch.object(asyncio, "ensure_future", ensure_future),
        mock.patch("gateway.hosts.slot_deaths.MOST_DEATHS", 1_000),
        mock.patch("gateway.hosts.slot_deaths.SUSPECT", 1_000),  # the wait for who is tried needs a loop
    ):
        yield


class BoardInSlots(Board):
    """`asleep`: its slots do nothing, as if an operator of each were blocked."""

    FUSION: Fusion = "none"
    """So that rows go from slot to slot."""
    SLOTS: Final = 2

    def _make_host(self) -> Host:
        InThisProcess.clock = self.clock
        self.asleep = False
        self.slots = Slots(
            PoolSettings(workers=0, slots=self.SLOTS, placement="even"), REGISTRY, self.clock,
            level="warning", send=lambda instance, messages: None,
            recovery=self.flow_registry,
            make_process=InThisProcess,
        )  # fmt: skip
        Stepper.step = self._step
        self._step()
        return self.slots

    @property
    def processes(self) -> list[InThisProcess]:
        return self.slots.processes  # type: ignore[return-value]

    def _start(self) -> None:
        self.flow_registry.on_failed = self._failed
        super()._start()

    def _failed(self, run: FlowRun, why: str) -> None:
        raise AssertionError(f"flow {run.flow.name} was given up: {why}")

    def _step(self) -> None:
        for process in self.processes:
            if not process.running:
                process.start()
            if not self.asleep:
                process.step()
        for process in self.processes:
            process.listen()

    def catch_up(self) -> None:
        """Flows whose slot died are brought back, if the database can be read for it."""
        while Stepper.later and not self.full:
            drive(Stepper.later.popleft())

    def slot_dies(self, number: int) -> None:
        process = self.processes[number % self.SLOTS]
        if process.running:
            process.die()

    def crash(self) -> None:
        while Stepper.later:
            Stepper.later.popleft().close()
        Stepper.step = staticmethod(lambda: None)
        for process in self.processes:
            if process.running:
                process.stop_now()
            else:
                process.link.close()
        super().crash()

    # -- operators

    def begin_turn(self) -> bool:
        self.catch_up()
        self._step()
        return True

    def end_turns(self) -> None:
        """They end by themselves."""

    def work(self) -> None:
        self.catch_up()
        for _ in range(ROUNDS):
            self._step()

    # -- flows

    def checkpoint(self, flows: Any = ()) -> bool:
        self.catch_up()
        made = super().checkpoint(flows)
        self.catch_up()
        return made
