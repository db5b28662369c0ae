"""Rows of one flow in a simulated fleet, as a fluid: how many each instance gets, works on and gives in a step of time.

Rows are never lost: those that an instance has no time for wait in its queue, those for an instance on another board
wait where they were made until the way is open. Sources' rows wait with their devices.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from agent.simulation.shape import SimulatedInstance

LEAST: Final = 1e-9
PASSES: Final = 8
"""Over the instances in one step: time that one leaves goes to others. Fewer: a full board seems to have time left."""


@dataclass(slots=True)
class Counted:
    """Counters of one instance under one plan."""

    rows_in: float = 0.0
    rows_out: float = 0.0
    busy_s: float = 0.0
    sent: dict[str, float] = field(default_factory=dict)
    """Rows that went to each instance."""


class Working(NamedTuple):
    """An instance that runs now. `cores`: of its board; `speed`: of one of them."""

    instance: SimulatedInstance
    counted: Counted
    cores: float
    speed: float


Bandwidth = Callable[[str, str], float]
"""(gateway, gateway) -> bytes per second between them: infinity without a limit, 0 while the way is cut."""


class SimulatedRows:
    """The rows of one flow. `sources`: heads of its source instances."""

    def __init__(self, rate: float, row_bytes: float, sources: Iterable[str]) -> None:
        """`rate`: rows per second into each source."""
        self._rate, self._row_bytes, self._sources = rate, row_bytes, tuple(sources)
        self._queues: dict[str, float] = {}
        """Rows that wait, by operator copy at the head of an instance."""
        self._under_way: dict[tuple[str, str], float] = {}
        """At a gateway for the head of an instance on another one."""
        self._sending = False
        self.came = self.left = self.most_waiting = 0.0

    @property
    def waiting(self) -> float:
        """Rows in all queues now."""
        return sum(self._queues.values()) + sum(self._under_way.values())

    def begin(self) -> None:
        """The devices begin to send: nothing came before."""
        self._sending = True

    def step(self, seconds: float, working: Iterable[Working], heads: Mapping[str, str], way: Bandwidth) -> None:
        """Lets `seconds` go by. `working`: each instance after all that feed it; `heads`: operator copy -> the head of
        the instance in which it runs now."""
        running = {one.instance.head: one for one in working}
        for source in self._sources if self._sending else ():
            self._queues[source] = self._queues.get(source, 0.0) + self._rate * seconds
            self.came += self._rate * seconds
        self._take_along(heads)
        self._carry(seconds, running, way)
        room = {one.instance.gateway: one.cores * seconds for one in running.values()}
        spent = dict.fromkeys(running, 0.0)
        for _ in range(PASSES):
            shares = self._shares(seconds, running, room, spent)
            for one in running.values():
                busy_s = self._work(seconds - spent[one.instance.head], one, shares[one.instance.gateway])
                spent[one.instance.head] += busy_s
                room[one.instance.gateway] -= busy_s
        self.most_waiting = max(self.most_waiting, self.waiting)

    def _take_along(self, heads: Mapping[str, str]) -> None:
        """Moves rows that waited for an operator which is now inside an instance to that instance."""
        for operator in [operator for operator in self._queues if heads.get(operator, operator) != operator]:
            self._add(heads[operator], self._queues.pop(operator))
        for gateway, operator in [key for key in self._under_way if heads.get(key[1], key[1]) != key[1]]:
            key, rows = (gateway, heads[operator]), self._under_way.pop((gateway, operator))
            self._under_way[key] = self._under_way.get(key, 0.0) + rows

    def _carry(self, seconds: float, running: Mapping[str, Working], way: Bandwidth) -> None:
        for (gateway, head), rows in list(self._under_way.items()):
            to = running.get(head)
            if to is None:
                continue
            most = way(gateway, to.instance.gateway) * seconds / self._row_bytes
            carried = min(rows, most)
            self._add(head, carried)
            if carried < rows:
                self._under_way[gateway, head] = rows - carried
            else:
                del self._under_way[gateway, head]

    def _shares(
        self, seconds: float, running: Mapping[str, Working], room: Mapping[str, float], spent: Mapping[str, float]
    ) -> dict[str, float]:
        """The part of what they could use that the instances of each gateway get of the `room` (core-seconds) that it
        has left, by what waits now and what will come in this step."""
        coming = {head: self._queues.get(head, 0.0) for head in running}
        need: dict[str, float] = {}
        for head, one in running.items():
            instance, rows = one.instance, coming[head]
            need_s = min(rows * instance.cost_s / one.speed, seconds - spent[head])  # by one worker at a time
            need[instance.gateway] = need.get(instance.gateway, 0.0) + need_s
            for _, to, _, gives in instance.gives:
                if to in coming:
                    coming[to] += rows * gives
        return {name: min(1.0, max(room[name], 0.0) / max(need_s, LEAST)) for name, need_s in need.items()}

    def _work(self, seconds: float, one: Working, share: float) -> float:
        """Returns the core-seconds that it took, of `share` times what it could use in `seconds`."""
        instance, counted = one.instance, one.counted
        rows = self._queues.get(instance.head, 0.0)
        busy_s = min(rows * instance.cost_s / one.speed, seconds) * share
        done = min(rows, busy_s * one.speed / instance.cost_s) if instance.cost_s > 0 else rows
        self._queues[instance.head] = rows - done
        counted.rows_in += done
        counted.busy_s += busy_s
        self.left += done * instance.ends
        for name, head, gateway, gives in instance.gives:
            given = done * gives
            counted.rows_out += given
            counted.sent[name] = counted.sent.get(name, 0.0) + given
            if gateway == instance.gateway:
                self._add(head, given)
            elif given:
                key = instance.gateway, head
                self._under_way[key] = self._under_way.get(key, 0.0) + given
        return busy_s

    def _add(self, head: str, rows: float) -> None:
        self._queues[head] = self._queues.get(head, 0.0) + rows
