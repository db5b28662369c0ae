"""SUBSCRIBE and UNSUBSCRIBE under way: which packets belong to one request of the application, and their answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from edgert.core.errors import ProtocolError
from edgert.mqtt.session.events import Subscribed, Unsubscribed


@dataclass(slots=True)
class _Request:
    filters: tuple[str, ...]
    adds: bool
    token: int
    waiting: dict[int, Sequence[int]]
    """Packet id to indexes in `filters`."""
    results: dict[int, int]


class Requests:
    """Requests of one connection, by packet id."""

    def __init__(self) -> None:
        self._open: dict[int, _Request] = {}

    def __contains__(self, packet_id: object) -> bool:
        return packet_id in self._open

    def clear(self) -> None:
        self._open.clear()

    def add(
        self,
        filters: Sequence[str],
        groups: Sequence[Sequence[int]],
        adds: bool,
        new_id: Callable[[], int],
        results: Mapping[int, int],
    ) -> dict[int, Sequence[int]]:
        """Open a request that goes out in one packet per group of indexes in `filters`; returns indexes by packet id.
        `results`: by index, of those that are not asked for.

        The first packet id is the request's token. Raises ValueError if there is no filter.
        """
        if not filters:
            raise ValueError("expected at least one filter, got none")
        request = _Request(tuple(filters), adds, 0, {}, dict(results))
        for group in groups:
            if not (indexes := [index for index in group if index not in results]):
                continue
            packet_id = new_id()
            request.token = request.token or packet_id
            request.waiting[packet_id] = indexes
            self._open[packet_id] = request
        return dict(request.waiting)

    def answered(self, packet_id: int, reasons: Sequence[int] | None, adds: bool) -> Subscribed | Unsubscribed | None:
        """Take an answer (`reasons` None: success for each); the event once all of the request's answers are here.

        Raises ProtocolError for an answer to something else, or one of another length than was asked.
        """
        request = self._open.pop(packet_id, None)
        if request is None or request.adds is not adds:
            raise ProtocolError(f"expected an answer to a request of ours, got one to packet {packet_id}")
        indexes = request.waiting.pop(packet_id)
        if reasons is not None and len(reasons) != len(indexes):
            raise ProtocolError(f"expected {len(indexes)} results, got {len(reasons)}")
        request.results.update(zip(indexes, reasons or (0,) * len(indexes), strict=True))
        if request.waiting:
            return None
        if not adds:
            return Unsubscribed(request.token, request.filters)
        return Subscribed(request.token, tuple((f, request.results[i]) for i, f in enumerate(request.filters)))
