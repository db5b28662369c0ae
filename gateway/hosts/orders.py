"""Orders of the daemon to all slots of a flow."""

from __future__ import annotations

from collections.abc import Sequence

from edgert.links import frames
from edgert.links.frames import frame
from gateway.hosts.slot_process import SlotProcess
from gateway.hosts.slotted_flow import SlottedFlow


class Orders:
    """Lives with the host; calls under the flow's lock."""

    def __init__(self, processes: Sequence[SlotProcess]) -> None:
        self._processes = processes
        self.by_number: dict[int, SlottedFlow] = {}
        """Flows by the number of their present life: what slots say of another life belongs to no flow."""

    def to_all(self, hosted: SlottedFlow, data: bytes) -> None:
        """Sends a frame to every slot of the flow."""
        for slot in hosted.slots:
            self._processes[slot].link.send(data)

    def end_life(self, hosted: SlottedFlow) -> None:
        """Ends the flow's present life in all its slots."""
        self.by_number.pop(hosted.number, None)
        self.to_all(hosted, frame(frames.DROP, hosted.number))
