"""Slots in this process, stepped by the test: real links, real slots; one dies by losing its memory and its links."""

from __future__ import annotations

from typing import Any

from edgert.core.clock import VirtualClock
from edgert.links.unix import UnixLink
from edgert.operators.registry import REGISTRY
from edgert.runtime.lending import FAST_TURNS
from edgert.runtime.slot import Slot
from gateway.slot_process import SlotProcess


class InThisProcess(SlotProcess):
    """A slot that the test steps."""

    clock = VirtualClock()

    def start(self, loop: Any = None) -> None:
        self._starting = None
        self.slot: Slot | None = Slot(UnixLink(self._theirs), REGISTRY, self.clock, self.doing)

    @property
    def running(self) -> bool:
        return getattr(self, "slot", None) is not None

    def step(self) -> None:
        """A bit of the slot's work."""
        if self.slot is not None:
            self.slot.step(0.0)
            for run in self.slot._runs.values():
                for instance in run.flow_run.all:
                    instance.fast_turns = FAST_TURNS

    def listen(self) -> None:
        """The daemon reads what the slot says."""
        self.link.flush()
        for received in self.link.receive():
            self._on_frame(self, received)

    def stop_now(self) -> None:
        """As at the end of its daemon."""
        assert self.slot is not None
        self.link.close()
        self.slot.serve()

    def die(self) -> None:
        """With all its links; the daemon notices at once."""
        assert self.slot is not None
        for link in self.slot._links.values():
            link.close()
        if self.slot._pool is not None:
            self.slot._pool.stop()
        self.slot = None
        self.link.close()
        self._died()
        self._renew()
        self._on_death(self)
