"""The database's tables of links to other gateways and of plans: what a flow on several boards needs."""

from __future__ import annotations

import msgspec

from edgert.core.errors import DamagedError
from edgert.links.messages import NOTHING, Number
from edgert.links.protocol import Stored
from edgert.store import plan_change
from edgert.store.outbox import link_outbox
from edgert.store.plan_change import Prepared
from edgert.store.transactions import Transactions


class LinkTables(Transactions):
    """A part of `Database`."""

    def link_streams(self) -> dict[tuple[str, str], Number]:
        """(flow, gateway) → the greatest number given, of every stream that ever had a batch."""
        return self._read(link_outbox.streams)

    def link_last(self, flow: str, gateway: str) -> Number:
        """The greatest number ever given in a stream to another gateway."""
        return self._read(lambda db: link_outbox.last(db, flow, gateway))

    def link_position(self, flow: str, origin: str) -> Number:
        """The last number from another gateway that the flow's last commit covers."""
        found = self._rows("SELECT links FROM flow WHERE name = ?", flow)
        links = msgspec.msgpack.decode(found[0][0], type=dict[str, tuple[int, int]]) if found else {}
        return Number(*links.get(origin, NOTHING))

    def link_pending(self, flow: str, gateway: str, after: Number, limit_bytes: int) -> list[Stored]:
        """See `link_outbox.pending`."""
        return self._read(lambda db: link_outbox.pending(db, flow, gateway, after, limit_bytes))

    def link_delete_to(self, flow: str, gateway: str, number: Number) -> None:
        """The other gateway has committed everything up to `number`."""
        with self._transaction() as db:
            link_outbox.delete_to(db, flow, gateway, number)

    def link_begin_epoch(self, flow: str, gateway: str, epoch: int) -> None:
        """See `link_outbox.begin_epoch`."""
        with self._transaction() as db:
            link_outbox.begin_epoch(db, flow, gateway, epoch)

    def link_sizes(self) -> list[tuple[str, str, int, int, int]]:
        """(flow, gateway, batches, rows, bytes) of what waits for other gateways."""
        return self._read(link_outbox.sizes)

    # -- plans

    def fences(self) -> dict[str, int]:
        """See `plan_change.fences`."""
        return self._read(plan_change.fences)

    def put_fence(self, flow: str, fence: int) -> None:
        """See `plan_change.put_fence`."""
        with self._transaction() as db:
            plan_change.put_fence(db, flow, fence)

    def placement_rules(self) -> dict[str, tuple[int, bytes]]:
        """See `plan_change.rules`."""
        return self._read(plan_change.rules)

    def put_placement_rules(self, flow: str, fence: int, packed: bytes | None) -> None:
        """See `plan_change.put_rules`."""
        with self._transaction() as db:
            plan_change.put_rules(db, flow, fence, packed)

    def prepared(self) -> dict[str, Prepared | DamagedError]:
        """The parts of next plans that wait for the word to be run, by flow."""
        return {flow: Prepared.read(blob) for flow, blob in self._read(plan_change.prepared).items()}

    def put_prepared(self, flow: str, prepared: Prepared | None) -> None:
        """See `plan_change.prepare`."""
        with self._transaction() as db:
            plan_change.prepare(db, flow, None if prepared is None else prepared.pack())
