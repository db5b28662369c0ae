"""Several operators that stand in a line, as one instance: batches go from one to the next at once.

The parts keep their state, counters and names: a checkpoint made without fusion is good with it, and the other way
round. What waited in front of part k then comes by an input of its own: `entrance(k)`.
"""

from __future__ import annotations

from collections.abc import Sequence

from edgert.core.batch import Batch, RawBatch
from edgert.operators.guard import Guard
from edgert.operators.logic import Emission, Logic, Now


class Line(Logic):
    """`ports[k]` is the port by which part k feeds part k + 1; `inputs` is how many inputs the first part has."""

    def __init__(self, parts: Sequence[Logic], ports: Sequence[int], inputs: int = 1) -> None:
        super().__init__()
        self.parts = tuple(parts)
        self.drops = self.parts[0].drops
        self.guards = tuple(map(Guard, self.parts))
        """By part."""
        self.took = [0] * len(self.parts)
        """Rows (for a source: messages) that each part has taken."""
        self.gave = [0] * len(self.parts)
        """Rows that each part gave to the next, or out."""
        self._ports = tuple(ports)
        self._inputs = max(1, inputs)
        self.held: dict[int, list[tuple[int, Batch | RawBatch]]] = {}
        """By part: what waits for a row that is to be tried again, and the input of the line by which it comes back."""

    def entrance(self, part: int) -> int:
        """The number of the input by which rows come to `part` (for the first one: its first)."""
        return self._inputs + part - 1 if part else 0

    def process(self, batch: Batch | RawBatch, source: int, now: Now) -> Sequence[Emission]:
        if source < self._inputs:
            return self.through(0, source, batch, now)
        return self.through(source - self._inputs + 1, 0, batch, now)

    def through(self, part: int, source: int, batch: Batch | RawBatch, now: Now) -> Sequence[Emission]:
        """A batch that comes to `part` by its input number `source`, through all that follow."""
        last = len(self.parts) - 1
        emissions: Sequence[Emission] = self._turn(part, batch, source, now)
        while part < last and emissions:
            port = self._ports[part]
            part += 1
            nexts: list[Emission] = []
            for emission in emissions:
                if emission.port == port:
                    nexts += self._turn(part, emission.batch, 0, now)
            emissions = nexts
        return emissions

    def _turn(self, part: int, batch: Batch | RawBatch, source: int, now: Now) -> Sequence[Emission]:
        if part in self.held:  # nothing overtakes
            self.held[part].append((self.entrance(part) if part else source, batch))
            return ()
        guard = self.guards[part]
        self.took[part] += len(batch)
        emissions = guard.process(batch, source, now)
        if guard.held:
            self.hold(part, source)
        self.take_messages(guard.logic)
        self.gave[part] += sum([len(emission.batch) for emission in emissions])
        return emissions

    def hold(self, part: int, source: int) -> None:
        """What the guard of `part` could not give to it yet comes to it anew."""
        guard = self.guards[part]
        held, guard.held = guard.held, []
        self.took[part] -= sum(map(len, held))
        self.held[part] = [(self.entrance(part) if part else source, batch) for batch in held]

    def take_held(self) -> list[tuple[int, Batch | RawBatch]]:
        """What is to come again before anything else, and by which input. What is nearest to the end is oldest."""
        held, self.held = self.held, {}
        return [again for part in sorted(held, reverse=True) for again in held[part]]

    def take_messages(self, logic: Logic) -> None:
        """The messages of a part are those of the line."""
        if logic.messages:
            self.messages += logic.messages
            logic.messages = []

    def flush(self, now: Now) -> Sequence[Emission]:
        out: list[Emission] = []
        last = len(self.parts) - 1
        for part, logic in enumerate(self.parts):
            emissions = self.guards[part].flush(now)
            self.take_messages(logic)
            self.gave[part] += sum([len(emission.batch) for emission in emissions])
            if part == last:
                out += emissions
                break
            for emission in emissions:
                if emission.port == self._ports[part]:
                    out += self.through(part + 1, 0, emission.batch, now)
        return out
