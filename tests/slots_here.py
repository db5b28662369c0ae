"""Slots in this process, stepped by the test: real links, real slots; one dies by losing its memory and its links."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from edgert.core.clock import VirtualClock
from edgert.flow.document import from_plain
from edgert.flow.physical import Fusion, plan
from edgert.flow.plan import copy_name
from edgert.flow.spec import Registry
from edgert.links.unix import UnixLink
from edgert.operators.registry import REGISTRY
from edgert.runtime.pool.thread_roles import FAST_TURNS
from edgert.runtime.slot.__main__ import Slot
from gateway.hosts.slot_process import SlotProcess


class InThisProcess(SlotProcess):
    """A slot that the test steps."""

    clock = VirtualClock()
    made: ClassVar[list[InThisProcess]] = []
    """What the end of a process would close, a fixture does: beyond 1,024 files paho's select takes no more."""

    def __init__(self, *arguments: Any) -> None:
        self.slot: Slot | None = None
        super().__init__(*arguments)
        self.made.append(self)

    @classmethod
    def close_all(cls) -> None:
        for process in cls.made:
            process.leave_slot()
            process.activity.close()
            process.link.close()
            process._theirs.close()
        cls.made.clear()
        cls.clock = VirtualClock()

    def leave_slot(self) -> None:
        slot = self.slot
        if slot is None:
            return
        for link in slot.links.values():
            link.close()
        if slot._pool is not None:
            slot._pool.stop()
        slot._selector.close()
        os.close(slot._wake)
        self.slot = None

    def start(self, loop: Any = None) -> None:
        self._starting = None
        self.slot = Slot(UnixLink(self._theirs), REGISTRY, self.clock, self.activity)

    @property
    def running(self) -> bool:
        return self.slot is not None

    def step(self) -> None:
        """A bit of the slot's work."""
        if self.slot is not None:
            self.slot.step(0.0)
            for run in self.slot.runs.values():
                for instance in run.flow_run.all:
                    instance.schedule.fast_turns = FAST_TURNS

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
        self.leave_slot()
        self.link.close()
        self._theirs.close()
        self._died()
        self._renew()
        self._on_death(self)


def located(document: Mapping[str, Any], where: Sequence[int], fusion: Fusion, registry: Registry = REGISTRY) -> Any:
    """The assignment of a flow whose instances, in the plan's order, run in the slots `where`."""
    instances = plan(from_plain(dict(document), registry), registry, fusion).instances.values()
    return {
        copy_name(operator, instance.copy): ("", slot)
        for instance, slot in zip(instances, where, strict=True)
        for operator in instance.operators
    }
